# The front door. `make` alone lists what there is.

ENV      ?= CartPole-v1
ALGO     ?= ppo
SEED     ?= 1
STEPS    ?=
# The last part of the name: the class of path/to/file.py:Class, the game of ALE/Game-v5.
LAST     := $(shell echo '$(ENV)' | sed 's/.*[:\/]//')
RUN      ?= runs/$(ALGO)-$(LAST)-$(SEED)
NAME     ?= $(shell echo '$(LAST)' | sed 's/-v[0-9]*$$//' | tr 'A-Z' 'a-z')
MODELS   ?= models
METHOD   ?= ptq
EPISODES ?= 100
EVAL_SEED ?= 7
PRECISION ?= float32
HOST     ?= 127.0.0.1
PORT     ?= 8000
RUNS     ?= runs
BOARD_PORT ?= 8040
ONLY     ?=
JOBS     ?= 1
ARGS     ?=
PEERS    := sb3 sbx cleanrl parl

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
# -P: our own stages are found before the current folder's files.
RUN_PY := $(BIN)/python -P

.DEFAULT_GOAL := help
.PHONY: help setup demo train resume board evaluate quantize export serve test test-slow gpu-check \
  image-check manifests sbom audit bench-edge bench-learning bench-policy bench-quantize bench-serve bench-train lint format clean

help: ## print this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s%s\n", $$1, $$2}'
	@echo
	@echo "Variables, with what they are now:"
	@echo "  ENV=$(ENV) ALGO=$(ALGO) SEED=$(SEED) STEPS=$(or $(STEPS),as preset) RUN=$(RUN) NAME=$(NAME) MODELS=$(MODELS)"
	@echo "  METHOD=$(METHOD) EPISODES=$(EPISODES) EVAL_SEED=$(EVAL_SEED) PRECISION=$(PRECISION) HOST=$(HOST) PORT=$(PORT)"
	@echo "  RUNS=$(RUNS) BOARD_PORT=$(BOARD_PORT)"
	@echo "  ARGS= more options for the command, e.g.  make train STEPS=200000 ARGS='--learning-rate 3e-4'"

setup: $(VENV)/.ready ## make .venv with everything a developer needs (quick when it is there)

$(VENV)/.ready: pyproject.toml constraints.txt tools/check_machine.py
	@test -n "$(PYTHON)" || { echo "make: this needs Python 3.11 or 3.12 and found none; name one with PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) tools/check_machine.py python
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --config-settings editable_mode=compat -e '.[dev]'
	@$(BIN)/python tools/check_machine.py libraries
	@touch $@

demo: setup ## train, quantize, export and serve CartPole in build/demo, and compare all four (about a minute)
	$(RUN_PY) examples/demo.py

train: setup ## train ALGO on ENV into RUN, for STEPS steps or what its preset says
	$(BIN)/paddleport train --algo $(ALGO) --env $(ENV) --seed $(SEED) --run-dir $(RUN) \
	  $(if $(STEPS),--total-steps $(STEPS)) $(ARGS)

resume: setup ## continue the training in RUN exactly where its last checkpoint is
	$(BIN)/paddleport train --run-dir $(RUN) --resume $(ARGS)

board: setup ## show the curves of all trainings in RUNS in a browser, at 127.0.0.1:BOARD_PORT, as they grow
	@test -d $(RUNS) || { echo "make: there is no folder $(RUNS) yet; train first, or name one with RUNS=…"; exit 1; }
	@echo "VisualDL comes up at http://127.0.0.1:$(BOARD_PORT)/ (Ctrl-C ends it)"
	$(BIN)/visualdl --logdir $(RUNS) --host 127.0.0.1 --port $(BOARD_PORT) --disable-telemetry

evaluate: setup ## play EPISODES whole episodes with the policy in RUN
	$(BIN)/paddleport evaluate $(RUN) --episodes $(EPISODES) --seed $(EVAL_SEED) $(ARGS)

quantize: setup ## decide int8 scales for RUN by METHOD
	$(BIN)/paddleport quantize $(RUN) --method $(METHOD) $(ARGS)

export: setup ## publish RUN as the next version of MODELS/NAME
	$(BIN)/paddleport export $(RUN) --name $(NAME) --models $(MODELS) $(ARGS)

serve: setup ## serve MODELS at HOST:PORT
	$(BIN)/paddleport serve --models $(MODELS) --host $(HOST) --port $(PORT) --precision $(PRECISION) $(ARGS)

test: setup ## run the tests (5 to 8 minutes on 2 cores)
	$(RUN_PY) -m pytest -n auto --dist loadfile $(ARGS)

test-slow: setup ## run the long learning runs as well
	$(RUN_PY) -m pytest -n auto --dist loadfile -m "slow or not slow" $(ARGS)

bench-quantize: setup ## measure float32 and every int8 of the runs in RUNS: size, agreement, return, latency
	$(RUN_PY) benchmarks/quantize.py $(wildcard $(RUNS)/*) $(ARGS)

gpu-check: setup ## on a GPU: doctor, float32 against mixed precision, int8, export, serving by CUDA and TensorRT; one report
	$(RUN_PY) tools/gpu_report.py $(ARGS)

image-check: setup ## build the CPU images without a daemon (buildah, debootstrap; root), train, serve and stop in them
	$(RUN_PY) tools/image_check.py $(ARGS)

manifests: setup ## render deploy/ into deploy/rendered, for whoever has no kustomize
	$(RUN_PY) tools/render_manifests.py

sbom: setup ## list all packages of .venv as CycloneDX, in build/sbom.json
	@mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o build/sbom.json $(BIN)/python

audit: setup ## ask the public list of vulnerabilities about constraints.txt (needs the network; says so where it has none)
	$(RUN_PY) tools/audit.py $(ARGS)

bench-policy: setup ## paddleport.Policy beside a bare ONNX Runtime call, and how long an export takes
	$(BIN)/python -m benchmarks.policy_latency --exports $(ARGS)

bench-serve: setup $(foreach peer,mosec mlserver litserve bentoml ray,build/peers/$(peer)/.ready) ## the policy server beside others; needs wrk
	$(BIN)/python -m benchmarks.serve $(ARGS)

build/peers/%/.ready: benchmarks/peers/serve_%/requirements.txt
	$(PYTHON) -m venv build/peers/$*
	build/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

bench-train: setup $(PEERS:%=build/peers/%/.ready) ## compare the training speed with other libraries' (about an hour)
	$(BIN)/python benchmarks/training_speed.py $(ARGS)

# An environment for each of them. What cannot be installed with its own requirements comes on top, without them.
build/peers/%/.ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv build/peers/$*
	build/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	test ! -f benchmarks/peers/$*.no-deps.txt || PIP_CONSTRAINT=benchmarks/peers/build-constraints.txt \
	  build/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  -r benchmarks/peers/$*.no-deps.txt
	@touch $@

bench-learning: setup ## train the presets over seeds beside published returns (ONLY=row, JOBS=at a time); hours in all, resumable
	$(BIN)/python -m benchmarks.learning --jobs $(JOBS) $(addprefix --only ,$(ONLY)) $(ARGS)

bench-edge: setup build/peers/emx/.ready ## policies in C: flash, RAM, instructions and time, beside ONNX Runtime and emx-onnx-cgen
	$(BIN)/python -m benchmarks.edge $(ARGS)

lint: setup ## ruff, mypy, import rules, the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove build/ and caches; runs/, models/ and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
