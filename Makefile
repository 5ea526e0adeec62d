# Two commands do all the set-up: `make demo` and `make test`. Both need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo serve-demo test test-slow test-exhaustive test-wheel lint format notebooks docs bench bench-quick bench-noise bench-service bench-service-abuse clean

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

# A server on a generated table; prints its address and two keys.
serve-demo: $(VENV)/.installed-serve
	$(BIN)/python examples/serve_demo.py

# Three workers, as many tests wait for servers; the numba cache is filled once by whichever comes first.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 3 --dist loadscope

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 3 --dist loadscope -m slow

# Every cell of the joints, and the longest audits; hours, and not part of CI. docs/tests.md has the last result.
test-exhaustive: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadscope -m exhaustive

# The wheel in empty environments, one for each extra; a few minutes, most of them installing.
test-wheel: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m packaging tests/packaging

lint: $(VENV)/.installed-test $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Run from top to bottom, each into a page with its figures beside it; an error in a cell stops the build.
NOTEBOOKS := $(wildcard docs/notebooks/*.ipynb)
AS_PLAIN_TEXT := $(addprefix --NbConvertBase.display_data_priority=,image/svg+xml text/plain)
notebooks: $(VENV)/.installed-docs
	rm -rf $(NOTEBOOKS:.ipynb=.md) $(NOTEBOOKS:.ipynb=_files)
	$(BIN)/python -m nbconvert --execute --to markdown $(AS_PLAIN_TEXT) $(NOTEBOOKS)

docs: $(VENV)/.installed-docs notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Under 90 minutes on two cores; EPSILEARN_DATA names the folder with the tables. Writes docs/benchmarks/.
# Both go on where an earlier run stopped; OPTIONS=--fresh forgets its results.
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks $(OPTIONS)

# The same on a few thousand rows, under five minutes once the peers' environments exist; writes nothing into docs/.
bench-quick: $(VENV)/.installed-bench
	$(BIN)/python benchmarks --quick $(OPTIONS)

# Two analysts, sixteen connections, twenty thousand stored records; about ten minutes, most of them one fit.
bench-service: $(VENV)/.installed-serve
	$(BIN)/python benchmarks/service.py $(OPTIONS)

# What another analyst notices while somebody abuses a server; about eight minutes. OPTIONS="--only half-open --seconds 10"
bench-service-abuse: $(VENV)/.installed-serve
	$(BIN)/python benchmarks/service_abuse.py --output docs/benchmarks/service-abuse.json $(OPTIONS)

bench-noise: $(VENV)/.installed
	$(BIN)/python benchmarks/noise.py

clean:
	rm -rf $(VENV) build dist site demo-output
