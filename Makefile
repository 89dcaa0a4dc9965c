# The commands of this project. `make test` is the one that must pass; .ci/run calls it.

SHELL := /bin/bash
CARGO ?= cargo
COMPAT := python3 compat-tests/run.py
SUITE := kafka-python
BINARY = $(or $(CARGO_TARGET_DIR),target)/release/floodmark

.PHONY: help test tools lint unit sim build clients frame clients-kafka suites bench compat docker-test format clean-cache

help:
	@echo 'make test      format check, lints, Rust tests, release build, client checks'
	@echo 'make lint      format check and clippy'
	@echo 'make unit      the Rust tests alone'
	@echo 'make sim       clusters simulated from more seeds: SEEDS=1000 [START=0]; one seed in full: START=7 SEEDS=1 TRACE=1'
	@echo 'make clients   the client checks alone: see compat-tests/README.md'
	@echo 'make compat    the test suites of other projects, and their clients: see compat-tests/README.md'
	@echo 'make clients-kafka  the client checks against Apache Kafka itself, to test the checks'
	@echo 'make docker-test  builds the Docker image and works with it'
	@echo 'make bench     start time, memory, throughput and latency of the release binary'
	@echo 'make format    format the sources'

# One after the other, so that the lines of two steps never mix and a small machine is not asked for more than it has.
test: tools
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory clients

# Says at once what is missing, rather than after a quarter of an hour.
tools:
	@missing=0; \
	need() { command -v "$$1" >/dev/null || { echo "make: $$1 is missing: $$2"; missing=1; }; }; \
	need $(CARGO) 'Rust 1.95 or newer, by rustup'; \
	need cc 'a C compiler, for zstd and lz4'; \
	need python3 'Python 3.9 or newer, for the client checks'; \
	need java 'a JDK, version 17 or newer, for the Java client and the tools of Kafka'; \
	need javac 'a JDK, version 17 or newer, for the Java client and the tools of Kafka'; \
	need mvn 'Maven, which fetches the jars of Kafka'; \
	need go 'Go 1.26 or newer, for franz-go'; \
	$(CARGO) fmt --version >/dev/null 2>&1 || { echo 'make: rustfmt is missing: rustup component add rustfmt'; missing=1; }; \
	$(CARGO) clippy --version >/dev/null 2>&1 || { echo 'make: clippy is missing: rustup component add clippy'; missing=1; }; \
	exit $$missing

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

unit:
	$(CARGO) test --locked

# The same as a part of `unit`, from as many seeds as one has time for.
SEEDS ?= 1000
START ?= 0
sim:
	SEEDS=$(SEEDS) START=$(START) $(if $(TRACE),TRACE=$(TRACE)) $(CARGO) test --locked --lib -- sim::the_laws --nocapture

build:
	$(CARGO) build --locked --release

# The checks, the tests of the frame in which other people's suites run, and one of these: the others are run by `compat`.
clients: build frame
	$(COMPAT) --setup
	compat-tests/run --binary $(BINARY) --unrecorded $(SUITE)
	$(COMPAT) --binary $(BINARY)

frame:
	python3 -m unittest discover -q -s compat-tests/lib -t compat-tests

compat suites: build frame
	compat-tests/run --binary $(BINARY)

clients-kafka:
	$(COMPAT) --against kafka

docker-test:
	docker/test/run.py

bench: build
	$(COMPAT) bench --binary $(BINARY)

format:
	$(CARGO) fmt

# Everything that the client checks have downloaded or built outside the tree.
clean-cache:
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/floodmark"
