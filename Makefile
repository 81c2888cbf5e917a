# The targets that README.md names; `make help` lists them. One environment, .venv, serves all of them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests and notebooks run in two workers; more threads than that only get in each other's way.
WORKERS = OMP_NUM_THREADS=1 python -m pytest -q -n 2 --dist loadfile

.PHONY: help setup book serve lab export test test-fast test-slow lint clean
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.done  ## make .venv and install everything, pinned
$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	python -m pip install -q -c constraints.txt $(PIP_ARGS) -e '.[dev]'
	touch $@

export: setup  ## write transformer_lit/ from the notebooks
	python book/export.py
	nbdev_clean

book: export  ## build the site and say which page to open
	jupyter-book build . --config _config.yml --toc book/_toc.yml --path-output . -W -n --keep-going
	@echo "open $(CURDIR)/_build/html/index.html"

serve: book  ## build the site and serve it at http://127.0.0.1:8000
	python -m http.server --bind 127.0.0.1 --directory _build/html 8000

lab: setup  ## edit the notebooks in JupyterLab
	jupyter lab nbs

lint: setup  ## ruff: rules and form
	ruff check .
	ruff format --check .

test: lint  ## everything: form, package, rules of the house, every cell of every notebook
	$(WORKERS) tests
	$(WORKERS) --nbval -p no:cacheprovider nbs

test-fast: setup  ## the package's tests alone
	$(WORKERS) tests

test-slow: setup  ## the tests of benchmarks and experiments
	$(WORKERS) -m slow tests

clean:  ## remove what was built; .venv stays
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
