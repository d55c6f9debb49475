# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
PYTHON := build/venv/bin/python
# Arguments for the program that demo, bench and python start.
ARGS ?=
# What `make test` runs, in this order.
STAGES ?= checks dev asan tsan python
# How many times as many rounds `make test-long` runs of every test that repeats itself.
REPEATS ?= 20
# What `make lint` checks; all of it without. (LINT itself is a built-in variable of make.)
STEPS ?=
# Seconds for each fuzz target of `make fuzz`.
FUZZ_SECONDS ?= 60

export JOBS

.PHONY: help demo test test-long plugin tool python bench lint format docs fuzz clean
.PHONY: deps-build deps-lint deps-fuzz deps-net deps-python

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: plugin ## move bytes between two real NIXL agents, verified (ARGS=...)
	@scripts/venv.sh nixl demo
	@$(PYTHON) bench/nixl/demo.py $(ARGS)

test: deps-build deps-fuzz deps-net deps-python ## prove everything, with sanitizers (STAGES=...)
	@scripts/test.sh $(STAGES)

test-long: export ORBITE_TEST_REPEATS := $(REPEATS)
test-long: test ## the same, REPEATS (20) times as many rounds, 1000 of a control (STAGES=...)

plugin: build/release/build.ninja ## release build of the plugin into build/nixl-plugins
	@cmake --build --preset release -j$(JOBS) --target nixl_plugins

tool: build/release/build.ninja ## build the orbite command: build/bin/orbite
	@cmake --build --preset release -j$(JOBS) --target orbite_tool
	@mkdir -p build/bin && ln -sf ../release/tools/orbite/orbite build/bin/orbite
	@echo build/bin/orbite

python: plugin ## run Python with the package, the plugin and NIXL (ARGS=script.py)
	@scripts/venv.sh nixl demo
	@NIXL_PLUGIN_DIR=$(CURDIR)/build/nixl-plugins PYTHONPATH=$(CURDIR)/python $(PYTHON) $(ARGS)

bench: plugin ## compare with NIXL's UCX backend; results in build/bench (ARGS=...)
	@scripts/venv.sh nixl bench
	@$(PYTHON) bench/nixl/bench.py --out build/bench $(ARGS)

lint: deps-lint deps-python build/dev/build.ninja ## check style, format, spelling, tidy (STEPS)
	@scripts/lint.sh $(STEPS)

format: deps-lint ## format the C and C++ sources in place
	@scripts/lint.sh format-in-place

docs: ## build the documentation site into build/docs
	@scripts/venv.sh docs
	@NO_MKDOCS_2_WARNING=1 build/venv/bin/mkdocs build --quiet --strict
	@echo "build/docs/index.html"

fuzz: build/fuzz/build.ninja ## run each fuzz target for FUZZ_SECONDS (60) seconds
	@cmake --build --preset fuzz -j$(JOBS)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

clean: ## remove build/
	rm -rf build

deps-build deps-lint deps-fuzz deps-net deps-python: deps-%:
	@scripts/install-deps.sh $*

build/fuzz/build.ninja: | deps-fuzz

# A changed preset is applied again; changed CMake files are ninja's business.
build/%/build.ninja: CMakePresets.json | deps-build
	@scripts/configure.sh $*
