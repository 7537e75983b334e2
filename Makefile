# The two commands of the README, `make demo` and `make test`, and what CI runs besides.
# Each creates .venv and installs what it needs.
PY := .venv/bin/python
PYTHON ?= python3

.PHONY: install test test-outside demo lint types docs mutants clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Processes of one thread each: two threads in each of two processes would be slower than one after the other.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 4

# All that needs no outside program.
test: install
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

docs: install
	$(PY) -m pytest tests/test_docs.py

mutants: install
	$(PY) tests/mutants.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
