# Every target installs what it needs, so `make run` and `make test` work on a new machine.
#
#   make install    install the system packages (if allowed), the environment .venv and the extension
#   make run        solve a heat problem of 2 GiB in 256 MiB of memory, and write a report and a picture
#   make test       run ruff, mypy, clang-format, the C++ tests and the Python tests
#   make test-mpi   install four builds of MPI, and run the tests of several ranks with each build
#   make wheels     build the wheels and the source archive into dist, and check them in environments and bare systems
#   make bench      run a benchmark; benchmark=core sets its name, and options=... sets its options
#   make lint       run ruff, mypy and clang-format
#   make docs       write HTML pages to docs/_build
#   make screens    make the pictures of the documents; pictures="watch.png view.png" makes only these
#   make sanitize   run the C++ tests with the address, undefined-behaviour and thread sanitizers
#   make hostile    test all code that reads input with random invalid input; options: number=5200 seed=1
#   make soak       run random tests with many more examples, kill programs 1000 times, and kill 200 gradient programs
#   make clean      remove everything that was built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS := $(shell nproc 2>/dev/null || echo 2)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start about a thousand Python processes. Cached bytecode saves about 0.3 s in each process.
unexport PYTHONDONTWRITEBYTECODE

# The directory of the arrays of `make run` (4.3 GiB). The picture is written next to this directory.
RUN_DIRECTORY ?= run.oc
RUN_STEPS ?= 200
RUN_PROBLEM := heat7 -n 512 512 2048 -t $(RUN_STEPS) -d $(RUN_DIRECTORY) --memory 256MiB --dtype float32

cpp_files := $(shell find core aggregate bindings tests/core -name '*.?pp' -o -name '*.h' 2>/dev/null)
built_from := CMakeLists.txt aggregate/CMakeLists.txt pyproject.toml $(filter-out tests/% aggregate/tests/%,$(cpp_files))

.PHONY: install run test test-core test-python test-mpi bench lint format docs screens wheels sanitize hostile soak clean
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

$(VENV)/.lint $(VENV)/.docs $(VENV)/.screens: $(VENV)/.%: $(VENV)/.built
	$(BIN)/python -m pip install -q --no-build-isolation \
	  $$($(BIN)/python scripts/extra_requirements.py $*)
	touch $@

run: install
	@$(BIN)/outcrop run $(RUN_PROBLEM) --init gaussian --force --json $(RUN_DIRECTORY:.oc=).json
	@$(BIN)/outcrop plot $(RUN_DIRECTORY) --slice z=256 -o $(RUN_DIRECTORY:.oc=).png

test: lint test-core test-python

# The C++ tests of both libraries. `make test-core core_tests=outcrop_aggregate_tests` builds and tests only
# aggregation. The tests are built in the build folder of the extension, so that no library is compiled twice.
core_tests ?= outcrop_core_tests outcrop_aggregate_tests
test-core: install
	cmake -S . -B build/py -DOUTCROP_TESTS=ON >/dev/null
	cmake --build build/py --parallel $(JOBS) --target $(core_tests) >/dev/null
	set -e; for tests in $(core_tests); do build/py/$$tests --gtest_brief=1 & all="$$all $$!"; done; \
	  for one in $$all; do wait $$one; done

# Three tests run at the same time on any number of cores. Most tests use one core, some use all cores, and many wait
# for the disk or for a time limit. `make test-python python_tests=aggregate/tests` runs only the tests of aggregation.
python_tests ?=
test-python: install
	$(BIN)/python -m pytest -q -n 3 --dist worksteal --durations 10 $(python_tests)

test-mpi: install
	$(BIN)/python scripts/mpi_builds.py install
	$(BIN)/python scripts/mpi_builds.py test all -q aggregate/tests/test_mpi_*.py tests/test_stream.py
	$(BIN)/python scripts/mpi_builds.py test all -q -m mpi tests

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

pictures ?=
screens: $(VENV)/.screens
	$(BIN)/python scripts/screens.py $(pictures)

# By default, each Python of this machine gets a wheel, and the bare system is the release of Debian or Ubuntu of this
# machine. `make wheels pythons="python3.10 python3.13" processors=x86_64 trees="bookworm trixie"` names them.
processors ?= x86_64 aarch64
wheels:
	$(PYTHON) scripts/wheels.py --processors $(processors) $(if $(pythons),--pythons $(pythons))
	$(PYTHON) scripts/wheel_checks.py $(if $(pythons),--pythons $(pythons)) \
	  $(if $(filter undefined,$(origin trees)),,--trees $(trees))

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
	rm -rf build dist docs/_build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
