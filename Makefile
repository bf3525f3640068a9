# Everything runs in virtual environments that these targets make. They need a Python of version 3.10 to 3.12 and a
# package index; PYTHON=... names the Python to use where the first one found is not the right one. `.venv`, the name
# that people give to an environment of their own, is never touched.

VENV := .venv-instrument
LINT := .venv-lint
ORACLE := .venv-oracle
TENSORBOARD := .venv-tensorboard
BENCH := .venv-bench
DOCS := .venv-docs
DIST := .venv-dist
PYTHON_VERSIONS := 3.11 3.12 3.10
PIP_INSTALL := -m pip --disable-pip-version-check --no-input -qq install
# What targets, and setuptools, put into build/.
BUILT := demo_run site lib bdist.* unsaid faults.json write.json read.json profiled.json trace.json dist.log
# Environments of tools/test_matrix.py.
MATRIX = $(patsubst %/installed,%,$(wildcard .venv-matrix-*/installed))

# A stamp in an environment says that one of these targets made it: others are neither cleared nor removed.
# $(call is_not_ours,DIRECTORY): true for a link, and for a folder without a stamp.
is_not_ours = { [ -L $(1) ] || { [ -e $(1) ] && ! ls $(1)/*.stamp >/dev/null 2>&1; }; }

# $(call check_ours,DIRECTORY): refuse to clear what these targets did not make.
define check_ours
if $(call is_not_ours,$(1)); then \
echo "$(1) was not made by this Makefile and is left as it is: move it away, then try again." >&2; exit 3; fi
endef

# $(call new_venv,DIRECTORY): an empty environment with $$python. The stamp comes first: what is interrupted is ours too.
define new_venv
echo "Making $(1) with $$python" && rm -rf $(1) && mkdir $(1) && touch $(1)/venv.stamp && $$python -m venv $(1)
endef

# $(call make_venv,DIRECTORY): an empty environment with the first usable Python.
define make_venv
$(call check_ours,$(1)); \
python=$$(tools/find-python $(PYTHON_VERSIONS)) || \
{ echo "Install one, or name one: make PYTHON=/path/to/python" >&2; exit 3; }; \
$(call new_venv,$(1))
endef

# $(call remove_venv,DIRECTORY): remove an environment that these targets made; another one is named and left.
define remove_venv
if $(call is_not_ours,$(1)); then echo "left: $(1), not made by this Makefile"; else rm -rf $(1); fi
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
	@rm -rf build/demo_run && mkdir -p build
	@$(VENV)/bin/python examples/lenet5.py build/demo_run

# Tests run in two processes (JOBS=4: in four), those marked `alone` when all others are over: tests/schedule.py. The few
# that fail run again, beside nothing and with the same seed: a fault of the code shows again, one of the load does not.
test: lint $(VENV)/test.stamp ## Check everything: lint, then the tests (ARGS="-k scalar" goes to pytest), against MindInsight and TensorBoard too
	@$(MAKE) --no-print-directory oracle || echo "Going on without MindInsight: tests that ask it are skipped."
	@$(MAKE) --no-print-directory tensorboard || echo "Going on without TensorBoard: tests that ask it are skipped."
	@export INSTRUMENT_TEST_SEED=$${INSTRUMENT_TEST_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	$(VENV)/bin/python -m pytest -n $(or $(JOBS),2) --dist loadgroup --durations=10 --maxfail=200 $(ARGS); \
	status=$$?; [ $$status -eq 1 ] || exit $$status; \
	echo "Tests failed. They run again, beside nothing; a test that passes now depends on the load, which is to be mended."; \
	$(VENV)/bin/python -m pytest -n 0 --last-failed --last-failed-no-failures=none -rA --show-capture=no $(ARGS)

lint: $(LINT)/installed.stamp ## Check style and types: ruff check, ruff format --check, mypy --strict
	@$(LINT)/bin/python -m ruff check
	@$(LINT)/bin/python -m ruff format --check
	@$(LINT)/bin/python -m mypy

docs: $(DOCS)/installed.stamp ## Build the documentation into build/site; a warning, or a link to nothing, ends it
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --quiet --strict
	@echo "Open build/site/index.html"

# In a copy of the tree, where a few tests that read the source fail: it is not the source any more.
messages: $(VENV)/test.stamp ## List the messages of the package that no test makes happen, slow tests among them (TESTS=tests/runs)
	@$(VENV)/bin/python -m tests.docs.unsaid $(or $(TESTS),tests) -m "slow or not slow"

test-matrix: ## Run the tests on MindSpore 2.7 to 2.10 and NumPy 1.26 and 2 (ROWS="ms2.7.2-np1" for some)
	@python=$$(tools/find-python $(PYTHON_VERSIONS)) && PYTHON= $$python tools/test_matrix.py $(ROWS)

# What `make test` leaves out because it takes long. Tests that need what is not installed say so and are skipped.
test-slow: $(VENV)/test.stamp $(DOCS)/installed.stamp ## Run all tests that take long (ARGS="tests/runs" for some)
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
	@rm -rf dist/mindspore_instrument-* build/dist.log && mkdir -p build
	@env -u PYTHONDONTWRITEBYTECODE $(DIST)/bin/python -m build > build/dist.log 2>&1 && ! grep -E 'warning:|Warning|[Dd]eprecat' build/dist.log || \
	{ cat build/dist.log >&2; exit 1; }
	@$(DIST)/bin/python -m twine check --strict dist/mindspore_instrument-*

# Runs, packages and environments that somebody else put here have other names, or no stamp, and stay.
clean: ## Remove what these targets made: environments, caches, builds, the run of the demo; nothing else
	@$(foreach venv,$(VENV) $(LINT) $(ORACLE) $(TENSORBOARD) $(BENCH) $(DOCS) $(DIST),$(call remove_venv,$(venv));)
	rm -rf $(MATRIX) $(addprefix build/,$(BUILT)) dist/mindspore_instrument-* mindspore_instrument.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache
	find benchmarks examples instrument tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	@for folder in build dist; do [ ! -d $$folder ] || rmdir $$folder 2>/dev/null || echo "left: $$folder, which holds other files"; done

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
	@$(call check_ours,$(ORACLE)); python=$$(PYTHON= tools/find-python 3.10 3.11) || \
	{ echo "MindInsight needs Python 3.10 or 3.11: $(ORACLE) is not made." >&2; exit 3; }; \
	$(call new_venv,$(ORACLE)) && \
	$(ORACLE)/bin/python $(PIP_INSTALL) -r tools/oracle-requirements.txt && touch $@ || \
	{ rm -rf $(ORACLE); echo "MindInsight could not be installed: $(ORACLE) is not made." >&2; exit 4; }
