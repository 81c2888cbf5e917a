# The targets that README.md names; `make help` lists them. One environment, .venv, serves all of them.
# pip brings torch, in the build that you have chosen for your machine; uv, which is quicker, the rest.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests and notebooks run in two workers; more threads than that only get in each other's way.
THREADS ?= 1
WORKERS = OMP_NUM_THREADS=$(THREADS) python -m pytest -q -n 2 --dist loadfile
# What a processor with older instructions computes: torch, oneDNN and MKL are all held to them.
ISA_avx2 = ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
ISA_default = ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2

.PHONY: help setup locked lock check test package cells test-needs test-machinery test-book test-book-all \
	test-default test-avx2 test-slow weekly book pdf serve lab handout copies run-copies export bench rerun lint clean
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.done  ## make .venv and install everything, pinned
$(VENV)/.done: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	python -m pip install -q --no-compile -c $(CONSTRAINTS) $(PIP_ARGS) torch uv
	uv pip install -q --python $(BIN)/python -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

locked:  ## make .venv as CI does: each file that is installed has the hash that .ci/requirements.txt names
	$(PYTHON) -m venv $(VENV)
	python -m pip install -q --no-compile --require-hashes -r .ci/requirements.txt
	python -m pip install -q --no-deps --no-build-isolation -e .
	touch $(VENV)/.done

LOCK = uv pip compile -q --generate-hashes -c constraints.txt --custom-compile-command "make lock" \
	--python-version 3.11.9 --python-platform x86_64-manylinux_2_28
lock: setup  ## write the hashes of what CI installs, after a change of dependencies
	$(LOCK) .ci/build.in -o .ci/build.txt
	$(LOCK) .ci/build.in pyproject.toml --extra dev -o .ci/requirements.txt

export: setup  ## write transformer_lit/ from the notebooks
	python book/export.py
	python book/marks.py
	nbdev_clean

book: export  ## build the site and say which page to open
	jupyter-book build . --config _config.yml --toc book/_toc.yml --path-output . -W -n --keep-going
	@echo "open $(CURDIR)/_build/html/index.html"

serve: book  ## build the site and serve it at http://127.0.0.1:8000
	python -m http.server --bind 127.0.0.1 --directory _build/html 8000

pdf: book  ## print the book and its first pass (needs Chromium)
	python book/make_pdf.py _build/html _build/html/pdf/transformer_lit.pdf
	python book/make_pdf.py _build/html _build/html/pdf/first-pass.pdf --first-pass
	@echo "open $(CURDIR)/_build/html/pdf/transformer_lit.pdf"

lab: setup  ## edit the notebooks in JupyterLab
	jupyter lab nbs

HANDOUT ?= _build/handout
handout: setup  ## write the chapters for a class, without solutions, to HANDOUT
	python book/notebooks.py handout $(HANDOUT)

COPIES ?= _build/copies
copies: setup  ## write the notebooks that stand alone, for Colab and Jupyter, to COPIES
	python book/notebooks.py copies $(COPIES)

run-copies: copies  ## run each of them from its first cell to its last, without a network
	cd $(COPIES) && ls nbs/*/*.ipynb | sed 's/\.ipynb$$//' | OMP_NUM_THREADS=$(THREADS) xargs -P 2 -n 8 \
		python $(CURDIR)/book/notebooks.py run .

lint: setup  ## ruff: rules and form
	ruff check .
	ruff format --check .

check: setup  ## what you changed: exported, its form, its tests, its cells; then the balance
	OMP_NUM_THREADS=$(THREADS) python tests/changed.py

test: lint package cells  ## form, the package's tests, every cell of every notebook

package: setup  ## the package's tests
	$(WORKERS) -p no:nbval tests --ignore tests/book

cells: setup  ## every cell of every notebook
	$(WORKERS) --nbval -p no:cacheprovider nbs

test-needs: setup  ## what needs data sets or published models: fetch them first
	$(WORKERS) -p no:nbval -m "needs and not slow" tests --ignore tests/book
	WITH_DATA=1 $(WORKERS) --nbval -p no:cacheprovider $$(grep -lr --include='*.ipynb' 'available(' nbs)

test-machinery: setup  ## processes, compilers, trainings of seconds
	$(WORKERS) --dist loadscope -p no:nbval -m "machinery and not needs" tests --ignore tests/book

test-book: book  ## the pages in Chromium: each page for errors, links and width; a sample for the rest
	BOOK_HTML=_build/html $(WORKERS) -p no:nbval tests/book

test-book-all: book  ## all that the pages do; screen readers, times, the whole PDF
	BOOK_HTML=_build/html $(WORKERS) -p no:nbval -m "not needs" tests/book

test-default test-avx2: test-%: setup  ## the tests and all cells, as older processors compute
	$(ISA_$*) $(WORKERS) -p no:nbval tests --ignore tests/book
	$(ISA_$*) $(WORKERS) --nbval -p no:cacheprovider nbs

test-slow: setup  ## the tests of benchmarks
	$(WORKERS) -p no:nbval -m "slow and not needs" tests --ignore tests/book

weekly: setup  ## what pushes don't run: machinery, other processors, Pythons and pins; up to 90 minutes
	.ci/weekly

bench: setup  ## our models beside other libraries: results/benchmarks-cpu.json, book/runs.md
	python -m benchmarks

rerun: setup  ## measure a record again with the code that made it: RECORD=results/x.json
	python -m experiments.rerun $(RECORD)

clean:  ## remove what was built; .venv stays
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
