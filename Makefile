# The two commands of the README, `make demo` and `make test`, and what CI runs besides.
# Each creates .venv and installs what it needs.
PY := .venv/bin/python
PYTHON ?= python3

.PHONY: install test coverage test-outside demo lint types docs mutants dist oldest fuzz clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Processes of one thread each: two threads in each of two processes would be slower than one after the other.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 4

# All that needs no outside program.
test: install
	$(PYTEST) -m "not outside"

# The same, with what no test runs; a quarter slower. (Whether tests notice what they run, `make mutants` says.)
coverage: install
	$(PYTEST) -m "not outside" --cov --cov-fail-under=90

# What needs a browser or a database server; skipped where they are not installed.
test-outside: install
	$(PYTEST) -m outside

demo: install
	.venv/bin/deeppc compare --algorithms pc+s+f,bp --seeds 0

lint: install
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: install
	$(PY) -m mypy

# The site, in build/site: a broken link, anchor or name fails. What its pages say is run by `make test`.
docs: install
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

mutants: install
	$(PY) tests/mutants.py

# Wheel and sdist, and the wheel used from an empty environment, outside of this tree.
dist: install
	rm -rf dist
	$(PY) -m build --no-isolation
	OMP_NUM_THREADS=1 $(PY) tests/installed.py dist

# The lowest versions that pyproject.toml allows, in an environment of their own (gigabytes: torch's CUDA packages). They
# use each other in ways that are deprecated by now, and torch warned of its own schedulers then.
OLDEST := tests/core tests/models/test_registry.py tests/data tests/report tests/presets tests/training/test_fit.py
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt \
		. pytest pytest-xdist hypothesis
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n auto --maxprocesses 4 -m "not outside and not slow" \
		-W ignore::DeprecationWarning -W "ignore:The epoch parameter:UserWarning" $(OLDEST)

# Thousands of bad inputs and faults; the counts go to docs/reliability.md. SEED=1 draws others.
fuzz: install
	OMP_NUM_THREADS=1 $(PY) tests/fuzz/run.py --jobs 2 --seed $(or $(SEED),0) --markdown docs/reliability.md

clean:
	rm -rf .venv .venv-oldest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
