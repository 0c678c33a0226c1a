# A thin front for CMake. `make` builds, `make demo` shows, `make test` checks; CMakeLists.txt has the rest.
BUILD  ?= build
PREFIX ?= /usr/local
MAKEFLAGS += --no-print-directory
SECONDS ?= 60
JOBS   ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

# CC counts only where the user gave one. CMake wants it with its path, or it takes the next `make` for a change.
ifneq ($(origin CC),default)
CHOSEN_CC := -DCMAKE_C_COMPILER=$(shell command -v $(CC) || echo $(CC))
endif
CONFIGURE = cmake -S . --log-level=NOTICE -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CHOSEN_CC) $(CMAKE_FLAGS)

.NOTPARALLEL:
.PHONY: all demo test test-full asan asan-fast tsan fuzz lint coverage mutants golden test-aarch64 static install \
    clean bootstrap bootstrap-tests

all: bootstrap
	@$(CONFIGURE) -B $(BUILD)
	@cmake --build $(BUILD) --parallel $(JOBS)

bootstrap:
	@scripts/bootstrap.sh

bootstrap-tests:
	@scripts/bootstrap.sh tests

demo: all
	@scripts/demo.sh $(BUILD)/minrnn

# What tests need comes first, because the build takes in what is there.
test: bootstrap bootstrap-tests all
	@scripts/test.sh $(BUILD) --label-exclude slow

test-full: all asan tsan
	$(BUILD)/minrnn check
	$(BUILD)/minrnn check --mutate
	@cmake --build $(BUILD) --target slow_tests --parallel $(JOBS)
	@scripts/test.sh $(BUILD)
	@$(MAKE) fuzz

asan: bootstrap
	@$(CONFIGURE) -B build-asan -DMINRNN_SANITIZE=address,undefined -DMINRNN_CUDA=OFF -DMINRNN_EMULATED_CUDA=ON
	@cmake --build build-asan --parallel $(JOBS)
	@scripts/test.sh build-asan --label-exclude slow

# The tests without the label `long` (tests/CMakeLists.txt), for CI.
asan-fast: bootstrap
	@$(CONFIGURE) -B build-asan -DMINRNN_SANITIZE=address,undefined -DMINRNN_CUDA=OFF -DMINRNN_EMULATED_CUDA=OFF
	@cmake --build build-asan --parallel $(JOBS)
	@scripts/test.sh build-asan --label-exclude 'slow|long'

tsan: bootstrap
	@$(CONFIGURE) -B build-tsan -DMINRNN_SANITIZE=thread -DMINRNN_CUDA=OFF
	@cmake --build build-tsan --parallel $(JOBS)
	@scripts/test.sh build-tsan --label-exclude slow

test-aarch64:
	@scripts/aarch64.sh

static: bootstrap
	@$(CONFIGURE) -B build-static -DMINRNN_STATIC=ON -DMINRNN_TESTS=OFF
	@cmake --build build-static --parallel $(JOBS)

fuzz: bootstrap
	@if ! command -v clang >/dev/null; then \
	    echo "minrnn: NOT FUZZED: there is no clang here (Debian, Ubuntu: apt-get install clang)"; else \
	cmake -S . -B build-fuzz --log-level=WARNING -DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS_RELEASE="-O1 -g" \
	    -DMINRNN_FUZZ=ON -DMINRNN_SANITIZE=address,undefined -DMINRNN_CUDA=OFF -DMINRNN_CURL=OFF \
	    -DMINRNN_TESTS=OFF && \
	cmake --build build-fuzz --parallel $(JOBS) && scripts/fuzz.sh build-fuzz $(SECONDS); fi

lint:
	@scripts/bootstrap.sh lint
	@$(CONFIGURE) -B build-lint -DMINRNN_CUDA=OFF
	@scripts/lint.sh build-lint

coverage: bootstrap
	@$(CONFIGURE) -B build-coverage -DMINRNN_COVERAGE=ON -DMINRNN_CUDA=OFF
	@cmake --build build-coverage --parallel $(JOBS)
	@scripts/coverage.sh build-coverage

# Writes again what tests compare with: pictures, messages, tasks' data and the transcript. Look at the diff.
golden: all
	@cmake --build $(BUILD) --parallel $(JOBS) --target test_pictures test_api_messages test_task_data
	@for test in pictures api_messages task_data; do MINRNN_GOLDEN=write $(BUILD)/tests/test_$$test || exit 1; done
	@MINRNN_GOLDEN=write bash tests/cli_transcript.sh $(BUILD)/minrnn
	@git status --short tests

# 300 small changes to the program, each tried against the tests that reach it; MUTANTS: options of tests/mutate.py
mutants: bootstrap
	@tests/mutate.py --jobs $(JOBS) $(MUTANTS)

install: all
	@cmake --install $(BUILD) --strip

clean:
	rm -rf $(BUILD) build-asan build-tsan build-clang build-fuzz build-lint build-coverage build-mutants \
	    build-aarch64 build-static
