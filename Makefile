# Every target does its own set-up: `make run` and `make test` are all a fresh machine needs.
#
#   make install    system packages (where it may), .venv, the extension
#   make run        the main job: a 2 GiB heat problem in 256 MiB of memory, plan first, report and picture after
#   make test       lint, C++ tests, Python tests
#   make test-mpi   tests of several ranks under four builds of MPI, which it installs
#   make bench      measured figures: benchmark=core, options in `options`
#   make lint       ruff, mypy, clang-format
#   make docs       HTML pages in docs/_build
#   make sanitize   C++ tests under the address, undefined-behaviour and thread sanitizers
#   make hostile    generated nonsense on everything that is read: report of counts; number=5200 seed=1
#   make soak       the random tests, with many more examples, 1000 kills of whole programs, 200 killed gradients
#   make clean      remove everything that was built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS := $(shell nproc 2>/dev/null || echo 2)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start about a thousand Python processes. Without cached bytecode, each of them compiles every module that it
# imports, which takes about 0.3 s.
unexport PYTHONDONTWRITEBYTECODE

# Where `make run` puts its two arrays (4.3 GiB) and its picture.
RUN_DIRECTORY ?= run.oc
RUN_STEPS ?= 200
RUN_PROBLEM := heat7 -n 1024 1024 512 -t $(RUN_STEPS) -d $(RUN_DIRECTORY) --memory 256MiB --dtype float32

cpp_files := $(shell find core aggregate bindings tests/core -name '*.?pp' -o -name '*.h' 2>/dev/null)
built_from := CMakeLists.txt aggregate/CMakeLists.txt pyproject.toml $(filter-out tests/% aggregate/tests/%,$(cpp_files))

.PHONY: install run test test-core test-python test-mpi bench lint format docs sanitize hostile soak clean
.DELETE_ON_ERROR:

install: $(VENV)/.built

$(VENV)/.packages: pyproject.toml scripts/system_packages
	PYTHON=$(PYTHON) scripts/system_packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip<26.3'
	$(BIN)/python -m pip install -q 'scikit-build-core>=0.10' 'nanobind>=2.4' ninja
	$(BIN)/python -m pip install -q $$($(BIN)/python scripts/extra_requirements.py test)
	touch $@

$(VENV)/.built: $(VENV)/.packages $(built_from)
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install -q --no-build-isolation -e '.[test]'
	touch $@

$(VENV)/.lint $(VENV)/.docs: $(VENV)/.%: $(VENV)/.built
	$(BIN)/python -m pip install -q --no-build-isolation \
	  $$($(BIN)/python scripts/extra_requirements.py $*)
	touch $@

run: install
	@$(BIN)/outcrop run $(RUN_PROBLEM) --init gaussian --force --json $(RUN_DIRECTORY:.oc=).json
	@$(BIN)/outcrop plot $(RUN_DIRECTORY) --slice z=256 -o $(RUN_DIRECTORY:.oc=).png

test: lint test-core test-python

# The C++ tests of the two libraries. `make test-core core_tests=outcrop_aggregate_tests` builds and tests aggregation alone.
# They are built in the folder of the extension, so that no library is compiled twice.
core_tests ?= outcrop_core_tests outcrop_aggregate_tests
test-core: install
	cmake -S . -B build/py -DOUTCROP_TESTS=ON >/dev/null
	cmake --build build/py --parallel $(JOBS) --target $(core_tests) >/dev/null
	set -e; for tests in $(core_tests); do build/py/$$tests --gtest_brief=1 & all="$$all $$!"; done; \
	  for one in $$all; do wait $$one; done

# Three tests at once on any number of cores: most tests use one core, some use all, and many wait for the disk or for the
# end of a time limit. Those of one library alone: `make test-python python_tests=aggregate/tests`, or `=tests`.
python_tests ?=
test-python: install
	$(BIN)/python -m pytest -q -n 3 --dist worksteal --durations 10 $(python_tests)

test-mpi: install
	$(BIN)/python scripts/mpi_builds.py install
	$(BIN)/python scripts/mpi_builds.py test all -q aggregate/tests/test_mpi_*.py tests/test_stream.py

benchmark ?= core
options ?=
bench: install
	$(BIN)/outcrop bench $(benchmark) $(options)

lint: $(VENV)/.lint
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(cpp_files)

format: $(VENV)/.lint
	$(BIN)/ruff check -q --fix .
	$(BIN)/clang-format -i $(cpp_files)

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build/html

sanitize: $(VENV)/.packages
	for kind in address,undefined thread; do \
	  cmake -S . -B build/$$kind -DCMAKE_BUILD_TYPE=RelWithDebInfo -DOUTCROP_PYTHON=OFF -DOUTCROP_TESTS=ON \
	    -DOUTCROP_SANITIZE=$$kind >/dev/null && \
	  cmake --build build/$$kind --parallel $(JOBS) --target $(core_tests) >/dev/null || exit 1; \
	  for tests in $(core_tests); do build/$$kind/$$tests --gtest_brief=1 || exit 1; done; \
	done

number ?= 5200
seed ?= 1
hostile: install
	$(BIN)/python -m tests.hostile --number $(number) --seed $(seed)

kills ?= 1000
gradients ?= 200
soak: install
	$(BIN)/python -m tests.hostile.kills --kills $(kills) --seed $(seed)
	$(BIN)/python -m tests.hostile.gradients --number $(gradients) --seed $(seed)
	OUTCROP_SOAK=20 OUTCROP_HOSTILE=2000 OUTCROP_KILLS=500 OUTCROP_TRIALS=500 $(BIN)/python -m pytest -q --timeout 0

clean:
	rm -rf build docs/_build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
