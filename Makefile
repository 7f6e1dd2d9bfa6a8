# Everything runs in .venv, made from the hash-pinned files in requirements/. Needs python3 (3.11 to 3.13) with venv.
PYTHON ?= python3
# Processes for the tests: twice the two processors of a small machine, for a test often waits for a server; the quick
# ones start none. A file's tests stay in one process, so its servers and module fixtures start once.
WORKERS ?= $(if $(FAST),2,4)
ARGS ?=
# Whose pip a release is tried with; what is not here is named as skipped.
PYTHONS ?= 3.11 3.12 3.13
# What the manifests are judged by; kubernetes-validate knows the versions of its own time.
KUBERNETES := 1.34.0
# FAST=1 leaves out what trains long, draws samples, starts servers, asks PostgreSQL or follows a whole page: for the
# inner loop.
FAST ?=

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
DEPLOY := .venv-deploy
FEDERATED := .venv-federated
STORES := .venv-stores
BILL := .venv-bill
CLIENTS := .venv-clients
MLFLOW := .venv-mlflow
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
LOCK := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package dpserve-verify

# What plugs in: a distribution each, in extensions/.
EXTENSIONS := parties cluster platform

FULL := --extra train --extra serve --extra bento --extra sklearn --extra client --extra postgres --extra notebook
IMAGE := --extra train --extra doors --extra client --extra postgres --extra notebook -c requirements/dev.txt

.PHONY: help install demo demo-local test wheel-test image-test federated-test stores-test clients-test mlflow-test lint lint-deploy format serve bench bench-utility bench-serving wheel release signing-key recording docs lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

install: $(VENV)/run.stamp ## Make .venv and install dpserve into it

demo: install ## From rows to a served, certified model, in one go
	@$(BIN)/python examples/demo.py

demo-local: install ## Owners who keep their rows train models: by reports, and by two aggregators
	@$(BIN)/python examples/demo_local.py

test: lint ## Lint, then run all tests (FAST=1: the quick ones)
	@$(if $(FAST),echo 'FAST=1 leaves out every test marked slow or server or statistical: run make test before you commit')
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		-m "not federation and not wheel and not image and not stores and not clients and not mlflow$(if $(FAST), and not slow and not server and not statistical)" $(ARGS)

wheel-test: wheel ## Install the wheel as pip does, in each of PYTHONS that is here (minutes), and what `make install` makes
	@WHEEL=$$(echo $(CURDIR)/dist/dpserve-*.whl) WHEEL_PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest -s -v -rs tests/deploy/test_wheel.py $(ARGS)

image-test: $(VENV)/dev.stamp ## Build the image and run it (as root on Debian, with buildah; two minutes)
	@DPSERVE_NO_SKIP=1 $(BIN)/python -m pytest -s tests/deploy/test_image.py $(ARGS)

federated-test: $(VENV)/dev.stamp $(FEDERATED)/made.stamp ## Run a federation of three institutions with NVFlare (three minutes)
	@FEDERATED_PYTHON=$(CURDIR)/$(FEDERATED)/bin/python $(BIN)/python -m pytest tests/local/federated $(ARGS)

stores-test: $(VENV)/dev.stamp $(STORES)/made.stamp ## Register rows of a real object store, moto's S3 (half a minute)
	@STORES_PYTHON=$(CURDIR)/$(STORES)/bin/python $(BIN)/python -m pytest tests/training/rows/test_stores.py $(ARGS)

clients-test: $(VENV)/dev.stamp $(CLIENTS)/made.stamp ## Make clients of the description by two generators, and train by each (needs java)
	@CLIENTS_PYTHON=$(CURDIR)/$(CLIENTS)/bin/python $(BIN)/python -m pytest tests/serving/test_generated_clients.py $(ARGS)

mlflow-test: $(VENV)/dev.stamp $(MLFLOW)/made.stamp ## Load and serve exported models as MLflow does
	@MLFLOW_PYTHON=$(CURDIR)/$(MLFLOW)/bin/python $(BIN)/python -m pytest tests/models/test_mlflow.py $(ARGS)

lint: $(VENV)/dev.stamp ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-deploy: $(DEPLOY)/made.stamp ## Judge the Containerfile, the compose file and the manifests (needs kubectl and npm)
	$(DEPLOY)/bin/hadolint deploy/Containerfile
	$(DEPLOY)/bin/yamllint --strict -c deploy/lint/yamllint.yaml deploy serving/grafana/kustomization.yaml serving/grafana/prometheus.yml
	for overlay in deploy/kubernetes/overlays/* deploy/lint/components; do \
		kubectl kustomize $$overlay | $(DEPLOY)/bin/kubernetes-validate --quiet --strict --kubernetes-version $(KUBERNETES) -; \
	done
	$(DEPLOY)/bin/kubernetes-validate --quiet --strict --kubernetes-version $(KUBERNETES) deploy/kubernetes/migrate.yaml
	cd deploy/lint && npm exec -- dclint --quiet ../compose.yaml ../compose.cluster.yaml ../compose.federation.yaml

format: $(VENV)/dev.stamp ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

serve: install ## Serve the released models
	@$(BIN)/dpserve serve $(ARGS)

bench: $(VENV)/dev.stamp ## Measure speed and accuracy
	@$(BIN)/python -m benchmarks.speed
	@$(BIN)/python benchmarks/ledger.py
	@$(BIN)/python benchmarks/audit.py

bench-utility: $(BENCH)/made.stamp ## Compare accuracy with every private learner there is (DATA=folder: more than Adult)
	@$(BENCH)/bin/python -m benchmarks.utility $(if $(DATA),--data $(DATA)) $(ARGS)

bench-serving: $(VENV)/dev.stamp $(BENCH)-serving/made.stamp ## Load the server, beside bare Starlette, BentoML and MLServer (needs wrk)
	@$(BIN)/python -m benchmarks.serving --mlserver $(BENCH)-serving/bin/python $(ARGS)

BUILT = 315619200 # the time in the verifier's file, so that its sha256 says what is in it, whoever makes it

wheel: $(VENV)/dev.stamp ## Build what pip installs: dist/dpserve-VERSION-py3-none-any.whl
	@rm -rf build dist
	@rm -rf serving/docs && cp -r docs serving/docs && cp mkdocs.yml serving/docs/ # which the server shows at /docs
	@rm -rf serving/docs/*.py serving/docs/__pycache__
	@mkdir -p training/datasets/drafts/sample && cp examples/data/adult_train.parquet examples/data/adult.schema.yaml examples/data/README.md training/datasets/drafts/sample/ # the sample of the pages
	@PYTHONPATH=. $(BIN)/python docs/reference.py serving/docs # what is made from the code
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . > dist.log 2>&1 || { cat dist.log; exit 1; }
	@SOURCE_DATE_EPOCH=$(BUILT) $(BIN)/python -m build --wheel --no-isolation --outdir dist verify > dist.log 2>&1 || { cat dist.log; exit 1; }
	@for each in $(EXTENSIONS); do $(BIN)/python -m build --wheel --no-isolation --outdir dist extensions/$$each > dist.log 2>&1 || { cat dist.log; exit 1; }; done
	@rm -rf build verify/build $(EXTENSIONS:%=extensions/%/build) dist.log serving/docs training/datasets/drafts/sample
	@echo "pip install $$(echo dist/dpserve_verify-*.whl dist/dpserve_parties-*.whl dist/dpserve_cluster-*.whl dist/dpserve_platform-*.whl) \"$$(echo dist/dpserve-*.whl)[train,serve,client]\""

signing-key: # asked for before anything is built
	@test -f "$(KEY)" || { echo 'KEY=$(KEY): name the file of the key that signs: make release KEY=release.pem [DIGEST=sha256:...]' >&2; exit 2; }

# KEY: the maintainers' Ed25519 key, which only who releases has. DIGEST: of the image that was pushed (sha256:...).
release: signing-key wheel $(BILL)/made.stamp ## Make what goes out, each file signed: wheels, bill of materials, image's digest (KEY=release.pem)
	@test -z "$$(git status --porcelain)" || { echo 'release: commit first, for each file says its commit' >&2; exit 2; }
	@for each in run image; do $(BILL)/bin/cyclonedx-py requirements requirements/$$each.txt --pyproject pyproject.toml \
		--output-reproducible --of JSON -o dist/dpserve-$$each.cdx.json; done
	@test -z "$(DIGEST)" || echo "$(DIGEST)" | grep -xE 'sha256:[0-9a-f]{64}' > dist/image.digest
	@$(BIN)/python deploy/release.py sign dist --key $(KEY) --commit "$$(git rev-parse HEAD)" \
		--version "$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"

docs: $(VENV)/dev.stamp ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

recording: install ## Record the demo, as asciinema's players show it
	@$(BIN)/python examples/record.py docs/img/demo.cast

lock: $(VENV)/dev.stamp ## Pin again what pyproject.toml asks for (ARGS=--upgrade: newest versions)
	$(LOCK) requirements/build.in $(FULL) --extra duckdb --extra stats --extra hsm --extra dask --extra dev $(ARGS) -o requirements/dev.txt
	$(LOCK) requirements/build.in $(FULL) -c requirements/dev.txt $(ARGS) -o requirements/run.txt
	$(LOCK) $(FULL) -c requirements/dev.txt $(ARGS) -o serving/requirements.txt
	$(LOCK) requirements/build.in benchmarks/requirements.in --extra train --extra pictures -c requirements/dev.txt $(ARGS) -o benchmarks/requirements.txt
	$(subst pyproject.toml ,,$(LOCK)) benchmarks/requirements-diffprivlib.in $(ARGS) -o benchmarks/requirements-diffprivlib.txt
	$(subst pyproject.toml ,,$(LOCK)) benchmarks/requirements-synthetic.in $(ARGS) -o benchmarks/requirements-synthetic.txt
	$(subst pyproject.toml ,,$(LOCK)) benchmarks/requirements-serving.in $(ARGS) -o benchmarks/requirements-serving.txt
	$(LOCK) requirements/build.in --extra train --extra doors --extra federated -c requirements/dev.txt $(ARGS) -o requirements/federated.txt
	$(subst pyproject.toml ,,$(LOCK)) requirements/stores.in $(ARGS) -o requirements/stores.txt
	$(subst pyproject.toml ,,$(LOCK)) requirements/clients.in $(ARGS) -o requirements/clients.txt
	$(subst pyproject.toml ,,$(LOCK)) requirements/mlflow.in $(ARGS) -o requirements/mlflow.txt
	$(LOCK) requirements/build.in $(FULL) --extra dask -c requirements/dev.txt $(ARGS) -o requirements/dask.txt
	$(LOCK) $(IMAGE) $(ARGS) -o requirements/image.txt
	for more in dask duckdb grpc hsm federated; do $(LOCK) $(IMAGE) --extra $$more $(ARGS) -o requirements/image-$$more.txt; done
	$(subst pyproject.toml ,,$(LOCK)) requirements/build.in requirements/sbom.in $(ARGS) -o requirements/build.txt
	$(subst pyproject.toml ,,$(LOCK)) deploy/lint/requirements.in $(ARGS) -o deploy/lint/requirements.txt

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) $(BENCH) $(BENCH)-serving $(DEPLOY) $(FEDERATED) $(STORES) $(CLIENTS) $(BILL) $(MLFLOW) deploy/lint/node_modules build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments of their own: what is in them would not go together with dpserve's. Each has its own .gitignore, which keeps
# it out of commits. $(1): the folder, $(2): the requirement file.
define make_environment
	@$(PYTHON) -m venv --clear $(1)
	@echo '*' > $(1)/.gitignore
	@echo 'Installing $(2) into $(1) (some minutes)'
	@$(1)/bin/python -m pip --disable-pip-version-check --no-input install -qq --require-hashes -r $(2)
endef

$(BENCH)/made.stamp: benchmarks/requirements.txt benchmarks/requirements-diffprivlib.txt
	$(call make_environment,$(BENCH),benchmarks/requirements.txt)
	@touch $@

$(BENCH)-serving/made.stamp: benchmarks/requirements-serving.txt
	$(call make_environment,$(BENCH)-serving,benchmarks/requirements-serving.txt)
	@touch $@

$(DEPLOY)/made.stamp: deploy/lint/requirements.txt deploy/lint/package-lock.json
	$(call make_environment,$(DEPLOY),deploy/lint/requirements.txt)
	@cd deploy/lint && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# With dpserve itself and what plugs in, which is looked for among what is installed.
$(FEDERATED)/made.stamp: requirements/federated.txt pyproject.toml $(EXTENSIONS:%=extensions/%/pyproject.toml)
	$(call make_environment,$(FEDERATED),requirements/federated.txt)
	@$(FEDERATED)/bin/python -m pip --disable-pip-version-check --no-input install -qq --no-deps --no-build-isolation \
		-e verify -e . $(EXTENSIONS:%=-e extensions/%)
	@touch $@

$(STORES)/made.stamp: requirements/stores.txt
	$(call make_environment,$(STORES),requirements/stores.txt)
	@touch $@

$(BILL)/made.stamp: requirements/build.txt
	$(call make_environment,$(BILL),requirements/build.txt)
	@touch $@

$(CLIENTS)/made.stamp: requirements/clients.txt
	$(call make_environment,$(CLIENTS),requirements/clients.txt)
	@touch $@

$(MLFLOW)/made.stamp: requirements/mlflow.txt
	$(call make_environment,$(MLFLOW),requirements/mlflow.txt)
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
		sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else f"python={v}: must be 3.11, 3.12 or 3.13; try make PYTHON=python3.12")'
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# $(1): the requirement file. One dot for every package, because pip's own lines are long and its silence is longer; and
# no line for every package that a mirror in the user's own pip configuration lacks.
define install_from
	@printf 'Installing %s (some minutes the first time) ' '$(1)'
	@$(PIP) install --progress-bar off --require-hashes -r $(1) \
		2> >(sed '/^WARNING: Location .* is ignored/d' >&2) \
		| while read -r word _; do case $$word in Collecting) printf .;; Installing) printf ' unpacking ';; esac; done
	@$(PIP) install --quiet --no-deps --no-build-isolation -e verify -e . $(EXTENSIONS:%=-e extensions/%)
	@printf ' compiling '
	@$(BIN)/python -W ignore -m training.jobs.compile_ahead
endef

$(VENV)/run.stamp: $(BIN)/python requirements/run.txt pyproject.toml verify/pyproject.toml $(EXTENSIONS:%=extensions/%/pyproject.toml)
	$(call install_from,requirements/run.txt)
	@touch $@

# The development set holds everything that the other one does, at the same versions.
$(VENV)/dev.stamp: $(BIN)/python requirements/dev.txt pyproject.toml verify/pyproject.toml $(EXTENSIONS:%=extensions/%/pyproject.toml)
	$(call install_from,requirements/dev.txt)
	@touch $(VENV)/run.stamp $@
