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
ISA_native =
ISA_avx2 = ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
ISA_default = ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2
# Native: all. Older, at each push: the folders whose claims are of numbers, in tests and notebooks; text, commands and
# files do not differ. `make test-processors` runs all of it, with all of the older instructions.
COMPUTE = attention position block text models training inference
TESTS_native = tests --ignore tests/book
TESTS_avx2 = $(addprefix tests/,$(COMPUTE))
TESTS_default = $(TESTS_avx2)
# Shapes and types of what is called are checked once, natively: they are the same on every processor.
CHECKS_native =
CHECKS_avx2 = -o addopts='-m "not slow and not machinery"'
CHECKS_default = $(CHECKS_avx2)
NOTEBOOKS_native = nbs
NOTEBOOKS_avx2 = $(addprefix nbs/,$(COMPUTE))
NOTEBOOKS_default = $(NOTEBOOKS_avx2)

.PHONY: help check setup book pdf serve lab handout copies export test test-native test-avx2 \
	test-default package-native package-avx2 package-default cells-native cells-avx2 \
	cells-default test-machinery test-book test-book-slow test-processors test-fast test-slow bench lint clean
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.done  ## make .venv and install everything, pinned
$(VENV)/.done: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	python -m pip install -q --no-compile -c $(CONSTRAINTS) $(PIP_ARGS) torch uv
	uv pip install -q --python $(BIN)/python -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

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

lint: setup  ## ruff: rules and form
	ruff check .
	ruff format --check .

check: export lint  ## what you changed: exported, its form, its tests, its cells
	OMP_NUM_THREADS=$(THREADS) python tests/changed.py

test: test-native  ## everything: form, package, rules of the house, every cell of every notebook

test-native test-avx2 test-default: test-%: lint package-% cells-%

package-native package-avx2 package-default: package-%: setup
	$(ISA_$*) $(WORKERS) -p no:nbval $(CHECKS_$*) $(TESTS_$*)

cells-native cells-avx2 cells-default: cells-%: setup
	$(ISA_$*) $(WORKERS) --nbval -p no:cacheprovider $(NOTEBOOKS_$*)

test-machinery: setup  ## processes, compilers, trainings of seconds: what pushes run too
	$(WORKERS) --dist loadscope -p no:nbval -m machinery tests --ignore tests/book

test-book: book  ## what the pages do, in Chromium
	BOOK_HTML=_build/html $(WORKERS) tests/book

test-book-slow: book  ## each article for readers with a screen reader, times, the whole PDF
	BOOK_HTML=_build/html $(WORKERS) -m slow tests/book

test-processors: setup  ## all as older processors compute, with 1 and 2 threads, another seed
	for threads in 1 2; do for isa in default avx2; do \
		TEST_SEED=$$threads $(MAKE) test-$$isa THREADS=$$threads TESTS_$$isa='$(TESTS_native)' NOTEBOOKS_$$isa=nbs \
		|| exit 1; done; done

test-fast: setup  ## the package's tests alone
	$(WORKERS) -p no:nbval tests --ignore tests/book

test-slow: setup  ## the tests of benchmarks and experiments
	$(WORKERS) -m slow tests

bench: setup  ## our models beside other libraries: results/benchmarks-cpu.json, book/runs.md
	python -m benchmarks

clean:  ## remove what was built; .venv stays
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
