# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv once and reuse it.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

# `make test-all` adds what takes long: builds, several processes, a browser, gigabytes, every GPU that Triton compiles for.
.PHONY: demo test tests test-all test-matrix check docs wheel campaign install clean
MINUTES ?= 10

demo: $(READY)
	$(VENV)/bin/acda demo --out demo

# The checks run beside the tests; it fails if either does. Each worker begins with one half of the tests and takes over
# some of the other's when it is done: what a file's tests share is made once.
test: $(READY)
	$(MAKE) --jobs=2 check tests

tests: $(READY)
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal -q

test-all: check
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal -q -m 'not campaign'

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

# In dist/: the source distribution, and one wheel for this platform, any Python and any torch from 2.10 on. On Linux
# its tag says how old the system may be; torch's own libraries are not copied into it, and of torch the kernel uses
# the stable ABI alone.
wheel: $(READY)
	rm -rf dist build/wheel
	$(VENV)/bin/python -m build --no-isolation --outdir dist
	if ls dist/*-linux_*.whl >/dev/null 2>&1; then \
	  PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' -w build/wheel dist/*-linux_*.whl && \
	  rm dist/*-linux_*.whl && mv build/wheel/*.whl dist/ && \
	  $(VENV)/bin/python -m zipfile -e dist/*.whl build/wheel && \
	  $(VENV)/bin/torch-abi-audit --check torch build/wheel/acda/backends/_native.so; fi
	ls -l dist

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
	rm -rf $(VENV) build dist *.egg-info
