# The habits of this project. Each is one readable line or one script.
CARGO ?= cargo
RELEASE = $(CARGO) build --release -p gateway --bin varnish-gateway -p ghost --lib

.PHONY: help setup build demo test test-rust test-trixie bless bench bench-router fmt lint deny clean

help: ## Show the habits
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## Install Debian's packages that everything else needs
	scripts/setup

build: setup ## Build target/release/varnish-gateway, with its VMOD beside it
	$(RELEASE)

demo: setup ## Build, and serve examples/quickstart until Ctrl-C
	scripts/demo

test: setup ## Run every test: Rust, .vtc in varnishd, end to end, and the VMOD on Varnish 7.7
	$(MAKE) test-rust test-trixie

# The first line for the VMOD: `cargo test` does not build a cdylib.
test-rust:
	$(CARGO) build --workspace
	$(CARGO) test --workspace

test-trixie: ## The VMOD against Varnish 7.7, in a root of Debian trixie
	scripts/trixie

bless: ## Regenerate golden files and schemas
	INSTA_UPDATE=always $(CARGO) test -p translate -p source
	BLESS=1 $(CARGO) test -p api

bench: setup ## Measure, and write docs/results
	scripts/bench

bench-router: ## The router alone (Criterion)
	$(CARGO) bench -p router

fmt: ## Format
	$(CARGO) fmt --all

lint: ## Formatting and clippy, without a warning
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

deny: ## Licences, bans and sources of dependencies
	scripts/deny

clean:
	$(CARGO) clean
