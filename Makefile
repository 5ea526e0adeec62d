# Two commands do all the set-up: `make demo` and `make test`. Both need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow lint format docs bench-noise clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install --editable .
	touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(PIP) install --editable ".[$*]"
	touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

# Two workers by default; the numba cache is filled once by whichever comes first.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadscope

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-test $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-noise: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/noise.py

clean:
	rm -rf $(VENV) build dist site demo-output
