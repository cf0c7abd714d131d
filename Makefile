# make run | test | bench | peers | fidelity | gate | build | asan | tsan | tidy | format | clean | help
# Every target starts with tools/setup, which installs what is missing and is silent otherwise.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.PHONY: build run test bench peers fidelity gate asan tsan tidy format clean help setup configure fuzz-build train-libs
# Each recipe builds in one folder; the parallelism is ninja's.
.NOTPARALLEL:

CPUS := $(shell nproc 2>/dev/null || echo 2)
JOBS ?= $(CPUS)
# Tests start threads of their own: half as many at a time as there are CPUs.
TEST_JOBS ?= $(shell n=$$(( $(CPUS) / 2 )); echo $$(( n > 0 ? n : 1 )))
CTEST_ARGS ?=
# ctest labels left out under the sanitizers, where they take long; SANITIZER_SKIP=none runs everything.
SANITIZER_SKIP ?= ^(real|long)$$
ENV := tools/with_env

# The main job: a question about a text whose full cache is more than ten times the budget (tools/run_example).
RUN_BUDGET ?= 7MiB
RUN_POLICY ?= echo
RUN_DEPTH ?= 40
RUN_ARGS ?=
PEERS_OUT ?= build/peers
FIDELITY_OUT ?= build/fidelity
# The shipped gate (tools/run_gate): tokens of its windows, steps through the model, further options of kedge train-gate.
GATE_OUT ?= build/gate
GATE_TOKENS ?=
GATE_STEPS ?=
GATE_ARGS ?=

build: setup ## build/kedge and the tests
	@$(ENV) cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build -j $(JOBS)

run: setup ## ask a question about a long text under a small KV budget
	@$(ENV) cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build -j $(JOBS) --target kedge
	@RUN_BUDGET='$(RUN_BUDGET)' RUN_POLICY='$(RUN_POLICY)' RUN_DEPTH='$(RUN_DEPTH)' $(ENV) tools/run_example $(RUN_ARGS)

# libtorch is for kedge-train-lm and its tests, the browser for those of kedge report's page; without one they are left
# out and counted as skipped.
test: train-libs build fuzz-build ## every test, the house rules and a fuzz smoke run
	@tools/setup --with browser
	@fuzz=(); [ ! -e build-fuzz/.ready ] || fuzz=(--fuzz build-fuzz); \
	  $(ENV) tools/run_tests build "$${fuzz[@]}" -j $(TEST_JOBS) $(CTEST_ARGS)

train-libs:
	@tools/setup --with train

# Needs clang with libFuzzer; without it the smoke run is left out, and that is said. Programs that do not build are a
# failure of the smoke run, after the tests.
fuzz-build: setup
	@rm -rf build-fuzz/.ready build-fuzz/fuzz_*; tools/setup --with fuzz; \
	if ! tools/have_libfuzzer; then \
	  echo 'fuzz smoke run left out: no clang++ with libFuzzer'; exit 0; \
	fi; \
	{ $(ENV) cmake --preset fuzz --log-level=WARNING > /dev/null && cmake --build build-fuzz -j $(JOBS) --target fuzz; } || true; \
	mkdir -p build-fuzz; touch build-fuzz/.ready

bench: build ## speed beside libllama, one interleaved run
	@$(ENV) tools/run_bench build

peers: setup ## kvpress on the same windows (its own Python, 0.6 GB once; docs/peers.md): make peers PEER_WINDOWS=3
	@$(ENV) tools/setup_peers
	@$(ENV) cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build -j $(JOBS) --target kedge
	@cd bench/peers && "$$(../../$(ENV) ../../tools/setup_peers --print-python)" -B -m unittest -q
	@$(ENV) tools/run_peers $(PEERS_OUT)

fidelity: setup ## the default policy against the best of kvpress's, over an hour (docs/peers.md)
	@$(ENV) tools/setup_peers
	@$(ENV) cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build -j $(JOBS) --target kedge
	@$(ENV) tools/run_fidelity $(FIDELITY_OUT)

gate: train-libs setup ## train the shipped gate from Debian's documents (docs/gate.md): make gate GATE_TOKENS=20000
	@$(ENV) cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build -j $(JOBS) --target trainers
	@GATE_TOKENS='$(GATE_TOKENS)' GATE_STEPS='$(GATE_STEPS)' GATE_ARGS='$(GATE_ARGS)' $(ENV) tools/run_gate '$(GATE_OUT)'

asan: setup ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(ENV) cmake --preset asan --log-level=WARNING > /dev/null
	@cmake --build build-asan -j $(JOBS)
	@ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(ENV) tools/run_tests build-asan -j $(TEST_JOBS) -LE '$(SANITIZER_SKIP)' $(CTEST_ARGS)

tsan: setup ## the tests under ThreadSanitizer
	@$(ENV) cmake --preset tsan --log-level=WARNING > /dev/null
	@cmake --build build-tsan -j $(JOBS)
	@fixed=(); ! setarch -R true 2>/dev/null || fixed=(setarch -R); \
	  TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp:second_deadlock_stack=1 \
	  $(ENV) "$${fixed[@]}" tools/run_tests build-tsan -j 1 -LE '$(SANITIZER_SKIP)' $(CTEST_ARGS)

tidy: setup ## house rules and folder dependencies
	@tools/check_layers
	@tools/tidy

format: setup ## clang-format over all of it, in place
	@tools/setup --with format
	@find include src apps bench tests \( -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 clang-format -i

clean: ## remove what was built (not what tools/setup fetched)
	rm -rf build build-dev build-asan build-tsan build-fuzz

setup:
	@tools/setup

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16
