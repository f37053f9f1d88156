# Everything starts from nothing: the first target called builds .venv from the project's own files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint lint-js plot-library axe screenshots format pretended gpu docs gallery dist bench bench-tables \
	peers growth lock licences audit clean

help:
	@echo "make demo    set up, then train and explain an example (under a minute after set-up)"
	@echo "make check   set up, then lint, type-check and run the quick tests (under three minutes of CPU time)"
	@echo "make test    set up, then lint, type-check and run all tests"
	@echo "make gpu     the tests and a table of times on a real GPU, to send us (an hour)"
	@echo "make pretended   the quick tests of training and prediction on a pretended GPU (needs g++; five minutes)"
	@echo "make lint    ruff and mypy"
	@echo "make lint-js ESLint on the report's script, where there is node"
	@echo "make plot-library   the report's plot library from its npm packages (needs npm)"
	@echo "make axe     axe-core, with which the tests check the report and the site for access (needs npm)"
	@echo "make screenshots   the pictures of the report and the site in docs/images (needs Chromium and pdftoppm)"
	@echo "make docs    the documentation as a site, in site/index.html; broken links are errors"
	@echo "make gallery   run the notebooks, and write docs/gallery and the pictures of the README and the pages (some minutes)"
	@echo "make dist    wheel and source distribution in dist/, checked by twine"
	@echo "make bench   the side-by-side measurements in benchmarks/, which write docs/benchmarks.md (a quarter of an hour)"
	@echo "make bench-tables   real tables beside CatBoost, LightGBM, NGBoost and others, in benchmarks/results/tables.md (hours)"
	@echo "make peers   all neighbours beside this library, in benchmarks/results/peers.md (hours; QUICK=yes: twenty minutes)"
	@echo "make growth  how time and memory grow with members, rows, columns and others, in benchmarks/results/growth.md"
	@echo "make lock    resolve the dependencies anew into requirements.lock; make licences then lists their licences"
	@echo "make audit   known vulnerabilities of the locked packages, where PyPI can be asked"
	@echo "make clean   remove the virtual environment and caches"

setup: $(READY)

# Packages by requirements.lock, whose hashes pip checks; LOCKED=no takes the ranges of pyproject.toml. See tools/set_up.py.
LOCKED ?= yes

$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/set_up.py $(if $(filter no,$(LOCKED)),--unlocked)
	@touch $(READY)

# What the demo needs and no more, unless everything is there already.
demo: $(VENV)/.demo
	$(BIN)/wherefrom demo

$(VENV)/.demo: pyproject.toml constraints.txt requirements.lock
	@test -e $(READY) || $(PYTHON) -m venv $(VENV)
	@test -e $(READY) || $(BIN)/python tools/set_up.py demo $(if $(filter no,$(LOCKED)),--unlocked)
	@touch $(VENV)/.demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# npx fetches ESLint; eslint.config.mjs needs nothing else.
lint-js:
	@if command -v npx > /dev/null; then npx --yes eslint@9 src/wherefrom/report/assets/script; \
	else echo "no node here: the report's script was not linted"; fi

# Observable Plot as one file, by the versions and hashes in tools/plot; the same bytes each time.
plot-library:
	$(PYTHON) tools/plot_library.py

axe:
	cd tools/axe && npm ci --no-audit --no-fund --loglevel=error

screenshots: $(VENV)/.docs
	$(BIN)/python tools/screenshots.py

# Before a commit: what is not marked slow, in one process, since a second one imports and collects everything again.
check: lint audit
	$(BIN)/python -m pytest -q -m "not slow" tests src

# Two processes that share the files: each goes through the whole of one, and so trains only once what it uses often.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# As if every posterior were on a GPU; tests/pretended/plugin.py lists the exceptions, with a reason for each.
pretended: setup
	PYTHONPATH=tests $(BIN)/python -m pytest -o addopts= -p pretended.plugin --on-device -q -m "not slow" \
		tests/predictive tests/training tests/variables tests/test_posterior.py tests/test_store.py

# On a machine with a GPU: the same tests there, and a table of times to send us.
GPU ?= cuda
gpu: setup
	PYTHONPATH=tests WHEREFROM_TEST_DEVICE=$(GPU) $(BIN)/python -m pytest -o addopts= -p pretended.plugin -q \
		tests/pretended/scenarios*.py
	PYTHONPATH=tests WHEREFROM_TEST_DEVICE=$(GPU) $(BIN)/python -m pytest -o addopts= -p pretended.plugin --on-device -q \
		-m "not slow" tests/predictive tests/training tests/variables tests/own_loop tests/test_posterior.py tests/test_store.py
	$(BIN)/python benchmarks/gpu.py --device $(GPU) --out gpu.md

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $(VENV)/.docs

gallery: setup
	$(BIN)/python tools/gallery.py
	$(BIN)/python tools/readme_picture.py
	$(BIN)/python tools/page_pictures.py

# Built without isolation, by the locked hatchling; tests/test_dist.py installs the wheel and runs it.
dist: $(VENV)/.supply
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m twine check --strict dist/*

bench: setup
	$(BIN)/python benchmarks/training.py --markdown docs/benchmarks.md
	$(BIN)/python benchmarks/native_speed.py --markdown benchmarks/results/native_speed.md
	$(BIN)/python benchmarks/convnet.py --markdown docs/benchmarks.md
	$(BIN)/python benchmarks/prediction.py
	$(BIN)/python benchmarks/one_shot.py --markdown docs/one_shot_measured.md

# The peers get a virtual environment of their own. BEFORE is an older source tree to compare with, if any.
bench-tables: setup .venv-peers
	$(BIN)/python benchmarks/tables.py --full $(if $(BEFORE),--before $(BEFORE))

.venv-peers:
	$(BIN)/python benchmarks/tables.py --set-up

# Each neighbour gets a virtual environment of its own, in .venvs; an interrupted run goes on where it stopped.
peers: setup
	$(BIN)/python benchmarks/peers.py $(if $(QUICK),--quick)

growth: setup
	$(BIN)/python benchmarks/growth.py $(if $(FULL),--full)

$(VENV)/.supply: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[supply]"
	@touch $(VENV)/.supply

lock: $(VENV)/.supply
	$(BIN)/python tools/lock.py

licences: setup
	$(BIN)/python tools/licences.py

audit: setup
	@$(MAKE) --no-print-directory $(VENV)/.supply 2> /dev/null || echo "pip-audit cannot be had here"
	$(BIN)/python tools/audit.py

clean:
	rm -rf $(VENV) .venv-peers .venvs .pytest_cache .mypy_cache .ruff_cache dist site
