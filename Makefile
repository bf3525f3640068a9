# Everything runs in virtual environments that these targets make, named .venv*. They need a Python of version 3.10
# to 3.12 and a package index; PYTHON=... names the Python to be used where the first one found is not the right one.

VENV := .venv
LINT := .venv-lint
ORACLE := .venv-oracle
TENSORBOARD := .venv-tensorboard
BENCH := .venv-bench
DOCS := .venv-docs
DIST := .venv-dist
PYTHON_VERSIONS := 3.11 3.12 3.10
PIP_INSTALL := -m pip --disable-pip-version-check --no-input -qq install

# $(call make_venv,DIRECTORY): an empty environment with the first Python that serves.
define make_venv
python=$$(tools/find-python $(PYTHON_VERSIONS)) || \
{ echo "Install one, or name one: make PYTHON=/path/to/python" >&2; exit 3; }; \
echo "Making $(1) with $$python" && $$python -m venv --clear $(1)
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two targets at once would install into one environment at once.
.NOTPARALLEL:
.PHONY: help demo test lint docs messages test-matrix test-slow test-examples test-packaging faults oracle tensorboard bench bench-read bench-profile dist clean

help: ## Print this list
	@echo "usage: make TARGET [PYTHON=/path/to/python]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: $(VENV)/demo.stamp ## Train LeNet-5 on the digits that come with scikit-learn, record and profile it, show what is there
	@$(VENV)/bin/python examples/lenet5.py

test: lint $(VENV)/test.stamp ## Check everything: lint, then the tests (ARGS="-k scalar" goes to pytest), against MindInsight and TensorBoard too
	@$(MAKE) --no-print-directory oracle || echo "Going on without MindInsight: tests that ask it are skipped."
	@$(MAKE) --no-print-directory tensorboard || echo "Going on without TensorBoard: tests that ask it are skipped."
	@$(VENV)/bin/python -m pytest --durations=10 $(ARGS)

lint: $(LINT)/installed.stamp ## Check style and types: ruff check, ruff format --check, mypy --strict
	@$(LINT)/bin/python -m ruff check
	@$(LINT)/bin/python -m ruff format --check
	@$(LINT)/bin/python -m mypy

docs: $(DOCS)/installed.stamp ## Build the documentation into build/site; a warning, or a link to nothing, ends it
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --quiet --strict
	@echo "Open build/site/index.html"

# In a copy of the tree, where a few tests that read the source fail: it is not the source any more.
messages: $(VENV)/test.stamp ## List the messages of the package that no test makes happen, slow tests among them (TESTS=tests/read)
	@$(VENV)/bin/python -m tests.docs.unsaid $(or $(TESTS),tests) -m "slow or not slow"

test-matrix: ## Run the tests on MindSpore 2.7 to 2.10 and NumPy 1.26 and 2 (ROWS="ms2.7.2-np1" for some)
	@python=$$(tools/find-python $(PYTHON_VERSIONS)) && PYTHON= $$python tools/test_matrix.py $(ROWS)

# What `make test` leaves out because it takes long. Tests that need what is not installed say so and are skipped.
test-slow: $(VENV)/test.stamp $(DOCS)/installed.stamp ## Run all tests that take long (ARGS="tests/read" for some)
	@$(VENV)/bin/python $(PIP_INSTALL) viztracer
	@$(VENV)/bin/python -m pytest -m slow --durations=10 $(ARGS)

test-examples: $(VENV)/test.stamp ## Run the examples, notebooks and pages that take long or start several processes
	@$(VENV)/bin/python -m pytest -m slow --durations=10 tests/integration tests/docs $(ARGS)

test-packaging: $(VENV)/test.stamp ## Build, install the wheel into a fresh environment with all extras, and train there
	@$(VENV)/bin/python -m pytest -m slow --durations=10 tests/test_packaging.py $(ARGS)

# What was counted is shown also where a test fails; a seed in it repeats its line.
faults: $(VENV)/test.stamp ## Kill trainers and workers 200 times each for some 8 minutes, and count what is lost; JSON in build/ (KILLS=50)
	@mkdir -p build && rm -f build/faults.json
	@INSTRUMENT_TEST_KILLS=$(or $(KILLS),200) INSTRUMENT_TEST_TALLIES=$(CURDIR)/build/faults.json \
	$(VENV)/bin/python -m pytest -m "slow or not slow" -o faulthandler_timeout=3600 \
	tests/faults/test_random.py tests/faults/test_all_killed.py tests/faults/test_kernel.py $(ARGS); \
	status=$$?; cat build/faults.json; exit $$status

# INSTRUMENT_ORACLE_PYTHON names the Python of an environment that stands elsewhere: nothing is to be made then.
oracle: $(if $(INSTRUMENT_ORACLE_PYTHON),,$(ORACLE)/installed.stamp) ## Install MindInsight 2.3.1, the viewer that must read our files, into .venv-oracle
	@echo "MindInsight is in $(or $(INSTRUMENT_ORACLE_PYTHON),$(ORACLE)/bin/python)"

# INSTRUMENT_TENSORBOARD_PYTHON works likewise.
tensorboard: $(if $(INSTRUMENT_TENSORBOARD_PYTHON),,$(TENSORBOARD)/installed.stamp) ## Install TensorBoard 2.21, whose readers must read our files, into .venv-tensorboard
	@echo "TensorBoard is in $(or $(INSTRUMENT_TENSORBOARD_PYTHON),$(TENSORBOARD)/bin/python)"

# INSTRUMENT_BENCH_PYTHON works likewise. Tables of a run with ARGS are shown, and do not replace those of a whole run.
bench: $(VENV)/base.stamp $(if $(INSTRUMENT_BENCH_PYTHON),,$(BENCH)/installed.stamp) ## Measure recording beside its peers for some 22 minutes, and put the tables into benchmarks/README.md (ARGS="--quick")
	@mkdir -p build
	@$(VENV)/bin/python benchmarks/write.py $(ARGS) > build/write.json
	@$(VENV)/bin/python benchmarks/write.py --table build/write.json $(if $(ARGS),,--into benchmarks/README.md)

bench-read: $(VENV)/base.stamp $(if $(INSTRUMENT_BENCH_PYTHON),,$(BENCH)/installed.stamp) ## Measure reading beside its peers, and put the tables into benchmarks/README.md
	@mkdir -p build
	@$(VENV)/bin/python benchmarks/read.py $(ARGS) > build/read.json
	@$(VENV)/bin/python benchmarks/read.py --table build/read.json $(if $(ARGS),,--into benchmarks/README.md)

bench-profile: $(VENV)/base.stamp ## Measure profiling beside MindSpore's own for some 10 minutes, and reading large traces; JSON in build/
	@mkdir -p build
	@$(VENV)/bin/python benchmarks/profiled.py $(ARGS) > build/profiled.json
	@$(VENV)/bin/python benchmarks/trace.py > build/trace.json
	@cat build/profiled.json build/trace.json

# A build that warns is none: setuptools says by a warning what a later release will refuse.
dist: $(DIST)/installed.stamp ## Build the source distribution, and the wheel out of it, into dist/
	@rm -rf dist build/dist.log && mkdir -p build
	@env -u PYTHONDONTWRITEBYTECODE $(DIST)/bin/python -m build > build/dist.log 2>&1 && ! grep -E 'warning:|Warning|[Dd]eprecat' build/dist.log || \
	{ cat build/dist.log >&2; exit 1; }
	@$(DIST)/bin/python -m twine check --strict dist/*

clean: ## Remove all that these targets made: environments, caches, builds, recordings
	rm -rf $(VENV) $(LINT) $(ORACLE) $(TENSORBOARD) $(BENCH) $(DOCS) $(DIST) .venv-matrix-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	rm -rf *_run examples/*_run pandas_runs demo_landscape rank_* kernel_meta
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/base.stamp: setup.cfg pyproject.toml
	@$(call make_venv,$(VENV))
	@echo "MindSpore alone is a download of some 350 MB"
	@$(VENV)/bin/python $(PIP_INSTALL) -e .
	@touch $@

$(VENV)/demo.stamp: $(VENV)/base.stamp
	@$(VENV)/bin/python $(PIP_INSTALL) scikit-learn
	@touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp
	@$(VENV)/bin/python $(PIP_INSTALL) -e '.[test]'
	@touch $@

# What mypy finds depends on the release of NumPy, hence an environment of fixed versions. It needs no MindSpore.
$(LINT)/installed.stamp: tools/lint-requirements.txt
	@$(call make_venv,$(LINT))
	@$(LINT)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

$(DOCS)/installed.stamp: tools/docs-requirements.txt
	@$(call make_venv,$(DOCS))
	@$(DOCS)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

$(DIST)/installed.stamp:
	@$(call make_venv,$(DIST))
	@$(DIST)/bin/python $(PIP_INSTALL) build twine
	@touch $@

$(BENCH)/installed.stamp: benchmarks/requirements.txt
	@$(call make_venv,$(BENCH))
	@$(BENCH)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# A half-made environment would look to the tests like a whole one.
$(TENSORBOARD)/installed.stamp: tools/tensorboard-requirements.txt
	@$(call make_venv,$(TENSORBOARD)) && \
	$(TENSORBOARD)/bin/python $(PIP_INSTALL) -r $< && touch $@ || \
	{ rm -rf $(TENSORBOARD); echo "TensorBoard could not be installed: $(TENSORBOARD) is not made." >&2; exit 4; }

$(ORACLE)/installed.stamp: tools/oracle-requirements.txt
	@python=$$(PYTHON= tools/find-python 3.10 3.11) || \
	{ echo "MindInsight needs Python 3.10 or 3.11: $(ORACLE) is not made." >&2; exit 3; }; \
	echo "Making $(ORACLE) with $$python" && $$python -m venv --clear $(ORACLE) && \
	$(ORACLE)/bin/python $(PIP_INSTALL) -r tools/oracle-requirements.txt && touch $@ || \
	{ rm -rf $(ORACLE); echo "MindInsight could not be installed: $(ORACLE) is not made." >&2; exit 4; }
