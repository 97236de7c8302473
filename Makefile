# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv once and reuse it.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

# `make test-all` adds what takes long: builds, several processes, a browser, gigabytes, every GPU that Triton compiles for.
.PHONY: demo test test-all test-matrix check docs campaign install clean
MINUTES ?= 10

demo: $(READY)
	$(VENV)/bin/acda demo --out demo

test: check
	$(VENV)/bin/python -m pytest -n 2 -q

test-all: check
	$(VENV)/bin/python -m pytest -n 2 -q -m 'not campaign'

# Kernel, layers and functions with fewer vectors, other numbers of threads and other seeds; SEEDS=20 adds seeds.
test-matrix: $(READY)
	$(VENV)/bin/python -m tests.matrix --seeds $(or $(SEEDS),0)

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The site, in build/docs/index.html; a warning is an error.
docs: $(READY)
	$(VENV)/bin/python -m sphinx -W --keep-going -q docs build/docs

# Random cases until the minutes are over, e.g. make campaign MINUTES=60 ONLY=kernel FIGURES=campaign.json
campaign: $(READY)
	$(VENV)/bin/python -m pytest tests/campaigns -m campaign -q -p no:cacheprovider --minutes $(MINUTES) \
	  $(if $(ONLY),-k $(ONLY)) $(if $(SEED),--seed $(SEED)) $(if $(FIGURES),--figures $(FIGURES))

install: $(READY)

# torch first, and no build isolation: the kernel is compiled against it.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard acda/backends/csrc/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "acda needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt pip setuptools
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
