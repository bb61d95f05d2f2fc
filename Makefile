# Every target sets up what it needs in .venv and does so once: a second run starts at once.
# PYTHON=... chooses the interpreter (3.11 or newer), ARGS=... goes to the program that is run, JOBS=... is how many
# processes run tests.

PYTHON ?=
ARGS ?=
JOBS ?= 2
BIN := .venv/bin
MADE := .venv/.made
PEERS := .venv/peers
QUIETLY := scripts/quietly build/log

NATIVE := CMakeLists.txt $(shell find native -type f)
PIP := $(BIN)/python -m pip install --disable-pip-version-check
PEERS_PIP := $(PEERS)/bin/python -m pip install --disable-pip-version-check --no-deps --no-compile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo test lint bench docs wheel clean same-python

help:  ## What there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(MADE)/dev $(MADE)/package $(MADE)/peers  ## Set up everything for development in .venv

demo: $(MADE)/demo $(MADE)/package  ## Every modality in one dataset; then one as loose files and as .fld, compared
	@$(BIN)/python examples/every_modality.py
	@echo
	@$(BIN)/python examples/demo.py $(ARGS)

test: lint $(MADE)/tests  ## Lint, then run all tests; ARGS goes to pytest
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: setup  ## Check format, style, types and import layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## Run every benchmark; ARGS goes to bench/run.py
	@$(BIN)/python bench/run.py $(ARGS)

docs: $(MADE)/docs  ## Build the documentation into build/site and check every link
	@NO_MKDOCS_2_WARNING=1 $(QUIETLY)/site.log "Building the documentation" $(BIN)/mkdocs build --strict
	@$(BIN)/python scripts/check_site.py build/site

wheel: $(MADE)/dev  ## Build a wheel that brings its libraries along, into dist/
	@$(QUIETLY)/wheel.log "Building the wheel" $(BIN)/python scripts/build_wheel.py dist
	@ls dist/*.whl

clean:  ## Remove .venv and everything built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the interpreter and the machine lack is found, and as root installed, before anything is downloaded.
$(MADE)/venv: scripts/find_python scripts/system_packages | same-python
	@python=$$(scripts/find_python "$(PYTHON)") && scripts/system_packages "$$python" \
	  && $(QUIETLY)/venv.log "Making .venv with $$python" "$$python" -m venv .venv \
	  && $(QUIETLY)/pip.log "Updating pip" $(PIP) --upgrade "pip>=25.1"
	@mkdir -p $(MADE) && touch $@

# Only tests need other people's encoders, and FFCV, which has no wheels.
$(MADE)/tests: scripts/system_packages pyproject.toml | $(MADE)/peers
	@scripts/system_packages $(BIN)/python tests
	@$(QUIETLY)/ffcv.log "Building FFCV, to compare with" $(PEERS_PIP) --group ffcv
	@touch $@

# Other loaders, in an environment that finds in .venv what it lacks itself, such as torch.
$(MADE)/peers: pyproject.toml | $(MADE)/dev
	@$(BIN)/python -m venv --without-pip $(PEERS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth"
	@$(QUIETLY)/peers.log "Installing other loaders, to compare with" $(PEERS_PIP) --group peers
	@touch $@

# An existing .venv is not another interpreter's.
same-python:
	@[ -z "$(PYTHON)" ] || [ ! -e $(MADE)/venv ] || { \
	  python=$$(scripts/find_python "$(PYTHON)") || exit 1; \
	  [ "$$(readlink -f "$$python")" = "$$(readlink -f $(BIN)/python)" ] || { \
	    echo "Python in .venv is $$(readlink -f $(BIN)/python). To use $$python, run make clean first." >&2; exit 1; }; }

$(MADE)/demo: $(MADE)/venv pyproject.toml
	@$(QUIETLY)/demo.log "Installing what the build and the demo need" $(PIP) --group build --group demo
	@touch $@

$(MADE)/dev: $(MADE)/venv pyproject.toml
	@$(QUIETLY)/dev.log "Installing the development tools" $(PIP) --group dev
	@touch $@ $(MADE)/demo $(MADE)/docs

$(MADE)/docs: $(MADE)/venv pyproject.toml
	@$(QUIETLY)/docs.log "Installing what the documentation needs" $(PIP) --group docs
	@touch $@

# The tools of --no-build-isolation come with either group.
$(MADE)/package: $(MADE)/venv pyproject.toml $(NATIVE) | $(MADE)/demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(QUIETLY)/package.log "Building fastloader" $(PIP) --no-build-isolation -e .
	@touch $@
