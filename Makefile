# The targets of this project. Each is one readable line or one script.
CARGO ?= cargo
RELEASE = $(CARGO) build --release -p gateway --bin varnish-gateway -p ghost --lib
# With everything that tests are made of: without it, dependencies have other features, and `cargo test` builds most of them again.
BUILD = $(CARGO) build --workspace --all-targets

.PHONY: help setup build demo docs test-docs test test-rust test-browser test-h2spec test-trixie test-forky test-engines bless bench bench-engines bench-router bench-cluster fmt lint deny clean deploy-render docker docker-push bump release test-chart \
  test-ingress bench-ingress images cluster-build cluster-up cluster-down test-cluster test-faults test-engine-upgrade test-invalidation bench-invalidation test-conformance test-conformance-experimental test-conformance-single test-conformance-report

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 31

setup: ## Install Debian's packages that everything else needs
	scripts/setup

build: setup ## Build target/release/varnish-gateway, with its VMOD beside it
	$(RELEASE)
	scripts/tool strip-debug $${CARGO_TARGET_DIR:-target}/release/varnish-gateway $${CARGO_TARGET_DIR:-target}/release/libvmod_ghost.so

demo: setup ## Build, and serve examples/quickstart until Ctrl-C
	scripts/demo

test: setup ## Run every test: Rust, .vtc in varnishd, end to end, and the VMOD on Varnish 7.7 and Vinyl Cache 9
	$(MAKE) test-rust
	$(MAKE) -j2 -Oline test-trixie test-forky

# The first line for the VMOD: `cargo test` does not build a cdylib.
test-rust:
	$(BUILD)
	$(CARGO) test --workspace
	VARNISH_GATEWAY_DEFAULT_DATA_PATH=Varnish $(CARGO) test --workspace --test end-to-end

test-h2spec: ## h2spec against `serve` with dataPath Auto, on a plain and an HTTPS port
	$(BUILD)
	scripts/test h2spec

test-browser: setup ## Headless Chromium against `serve`
	$(BUILD)
	tests/browser/run

test-trixie: ## The VMOD against Varnish Cache 7.7, in a root of Debian trixie
	scripts/test engine trixie

test-forky: ## The VMOD against Vinyl Cache 9.0, in a root of Debian forky
	scripts/test engine forky

test-engines: setup ## All .vtc and end-to-end tests, with both data paths, on Varnish Cache 7.1 (this machine), 7.7 (trixie) and Vinyl Cache 9.0 (forky)
	$(BUILD)
	$(CARGO) test --workspace --test vtc --test engines --test end-to-end
	VARNISH_GATEWAY_DEFAULT_DATA_PATH=Varnish $(CARGO) test --workspace --test end-to-end
	scripts/test engine trixie
	scripts/test engine trixie --end-to-end
	VARNISH_GATEWAY_DEFAULT_DATA_PATH=Varnish scripts/test engine trixie --end-to-end
	scripts/test engine forky
	scripts/test engine forky --end-to-end
	VARNISH_GATEWAY_DEFAULT_DATA_PATH=Varnish scripts/test engine forky --end-to-end

images: ## Build the container images, without docker and registry (FAST=1: quicker to build, slower to run; ENGINE=vinyl-9: that one, too)
	scripts/images $(if $(FAST),--fast) $(if $(ENGINE),--engine $(ENGINE))

# A registry of yours: make docker-push REGISTRY=registry.example.com/team
REGISTRY ?= ghcr.io/varnish
TAG ?= $(shell scripts/bump --print)
PROFILE ?= release
PLATFORMS ?= linux/amd64,linux/arm64
IMAGES = operator chaperone chaperone-vinyl-9
# Base images by digest: RUST=rust@sha256:… DEBIAN=debian@sha256:… FORKY=debian@sha256:…
BASES = $(if $(RUST),--build-arg RUST=$(RUST)) $(if $(DEBIAN),--build-arg DEBIAN=$(DEBIAN)) $(if $(FORKY),--build-arg FORKY=$(FORKY))

docker: ## Build the images with docker, for this machine's architecture (REGISTRY=, TAG=, PROFILE=fast)
	for i in $(IMAGES); do docker build --build-arg PROFILE=$(PROFILE) $(BASES) -f images/Dockerfile.$$i -t $(REGISTRY)/gateway-$$i:$(TAG) . || exit; done

docker-push: ## Build the images with docker buildx for PLATFORMS, and push them to REGISTRY
	for i in $(IMAGES); do docker buildx build --platform $(PLATFORMS) --provenance=mode=max --sbom=true --build-arg PROFILE=$(PROFILE) $(BASES) -f images/Dockerfile.$$i -t $(REGISTRY)/gateway-$$i:$(TAG) --push . || exit; done

bump: ## Write a new version everywhere: VERSION=0.2.0, or PART=patch, minor or major
	scripts/bump $(if $(PART),-$(PART),$(VERSION))

release: ## Build everything of a release into dist/: VERSION=0.1.0 (FAST=1 to try it; needs root)
	scripts/release $(VERSION)

cluster-build: ## Build the Kubernetes of tests/cluster, once (requires Go 1.26)
	tests/cluster/build

cluster-up: cluster-build ## A cluster with our images and deploy/ in it; tests/cluster/kubectl and exec reach it
	tests/cluster/up
	scripts/images $(if $(FAST),--fast)
	tests/cluster/install

cluster-down: ## Take the cluster down
	tests/cluster/down

test-cluster: setup ## The operator against a real API server
	scripts/test cluster

test-ingress: setup ## Ingresses in a whole cluster: classes, hosts, TLS, balancing, paths
	scripts/test ingress

bench-ingress: setup ## Measure 5,000 Ingresses in a cluster, and write docs/results
	scripts/bench ingress

test-faults: setup ## Faults on a whole cluster, under load: rolling pods, no API server, a dead container
	scripts/test faults $(if $(NO_BUILD),--no-build)

test-engine-upgrade: setup ## Pods with Varnish Cache 7 become pods with Vinyl Cache 9 and back, in a cluster, under load (FAST=1, NO_BUILD=1)
	scripts/test faults --engines $(if $(NO_BUILD),--no-build)

test-chart: setup ## The Helm chart by real helm: two releases, upgrade under load, uninstall (FAST=1, NO_BUILD=1, KEEP=1)
	scripts/test chart

test-invalidation: setup ## VarnishCacheInvalidations on a whole cluster: three pods, and pods that come and go
	scripts/test invalidation $(if $(NO_BUILD),--no-build)

bench-invalidation: setup ## How fast objects go: on three pods, by tag out of a million, and hits under 10,000 bans
	scripts/bench invalidation

test-conformance: setup ## The Gateway API's conformance suite on a real cluster (KEEP=1, FAST=1)
	scripts/test conformance

test-conformance-experimental: setup ## The same with the CRDs of the experimental channel, and its official report to docs/results
	CHANNEL=experimental scripts/test conformance --report

test-conformance-single: setup ## One test of the suite: TEST=HTTPRouteMethodMatching
	scripts/test conformance --test $(TEST)

test-conformance-report: setup ## The whole suite, standard channel, and its official report to docs/results
	scripts/test conformance --report

bless: ## Regenerate golden files, schemas, CRDs and deploy/00-prereqs.yaml
	INSTA_UPDATE=always $(CARGO) test -p translate -p workload -p source
	BLESS=1 $(CARGO) test -p api
	scripts/generate prereqs
	scripts/generate docs

bench: setup ## Measure, and write docs/results
	scripts/bench

bench-engines: setup ## Varnish Cache 7.1, 7.7 and Vinyl Cache 9.0 side by side: hits, pass, vcl.load, memory; into docs/results (needs root)
	scripts/bench engines

bench-tls: build ## TLS against hitch and nginx, into docs/results
	scripts/bench tls

bench-cluster: ## Measure 3,000 and 20,000 routes in a cluster, and write docs/results
	scripts/bench cluster

bench-router: ## The router alone (Criterion)
	$(CARGO) bench -p router

docs: ## Build the book into target/book (mdBook is installed into the user's cache)
	scripts/generate book

test-docs: setup ## Every command, YAML and VCL of the docs, on one machine and in a cluster (KEEP=1, FAST=1, NO_BUILD=1)
	$(BUILD)
	scripts/test docs

fmt: ## Format
	$(CARGO) fmt --all

deploy-render: ## Render deploy/ from the chart, and write the chart's README
	scripts/generate prereqs
	scripts/generate deploy
	scripts/generate chart-readme

lint: ## Formatting, clippy, the chart and what is generated, without a warning
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/generate prereqs --check
	scripts/generate docs --check
	scripts/tool helm lint --strict --quiet charts/varnish-gateway
	scripts/generate deploy --check
	scripts/generate chart-readme --check
	scripts/bump --check
	scripts/test bump
	scripts/check workflows

deny: ## Licences, bans and sources of dependencies
	scripts/check licences

clean:
	$(CARGO) clean
