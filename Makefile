# Every target sets up what it needs: a virtual environment with pinned versions and an editable install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_WAIT_POLICY := PASSIVE

test verify: export OMP_NUM_THREADS := 1  # two workers, two cores
test verify: export PYTHONDONTWRITEBYTECODE :=  # the tests start Python some 200 times

.PHONY: setup demo test verify lint types imports docs dist model clean

$(VENV)/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

setup: $(VENV)/stamp  ## editable install for contributors

demo: $(VENV)/stamp  ## the main job on the embedded model, ends with the verdict and the report's path
	$(BIN)/dpassay assay examples/claims/keys-median.yaml -o demo

test: $(VENV)/stamp  ## the test-suite, about 10 minutes on 2 idle cores
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"

verify: $(VENV)/stamp  ## everything (two to three hours on 2 cores), with new random examples and the coverage; resumes where it was interrupted
	$(BIN)/python tests/verify.py

lint: $(VENV)/stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/stamp  ## mypy on an installed copy, so that import names are those of users; then on tests and benchmarks
	rm -rf build/installed build/lib build/bdist.*
	$(BIN)/pip install --quiet --no-deps --target build/installed .
	$(BIN)/mypy --package dpassay
	$(BIN)/mypy tests benchmarks

imports: $(VENV)/stamp  ## imports go down the floors, never up
	$(BIN)/pytest -q tests/test_import_direction.py

docs: $(VENV)/stamp  ## the documentation as a site, in build/site; opened as files, it asks nothing of any network
	cd docs && ../$(BIN)/python -m build_site

dist: $(VENV)/stamp  ## source and wheel of this commit, built twice and compared, in dist
	$(BIN)/pip install --quiet --constraint constraints.txt build twine check-wheel-contents
	$(BIN)/python .ci/build_release.py

model: $(VENV)/stamp  ## trains the embedded language model anew (16 to 18 minutes on 2 idle cores, by its processor time)
	cd benchmarks && ../$(BIN)/python -m embedded_model.train -o ../mechanisms/models/embedded/weights

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
