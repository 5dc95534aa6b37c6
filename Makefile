# The tasks of this project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export KUBERNETES VERSION BUNDLE REGISTRY PUSH CLUSTER

# Runs a step, prints its duration, and fails if it fails.
step = @started=$$(date +%s); echo "==> $(1)"; if $(2); then echo "    $(1): $$(( $$(date +%s) - started )) s"; else echo "    $(1): FAILED after $$(( $$(date +%s) - started )) s"; exit 1; fi

.PHONY: help
help: ## Lists all tasks.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: tools ## Runs the main scenario: hub, spokes, chart, KnativeServing, refusal, repair, fleet, deletion.
	$(call step,build the demo,cargo build --release --workspace --quiet --bin demo --bin tether)
	$(call step,build images,tests/package/test-images.sh target/images-demo release)
	@KNATIVE_RELEASES=$$(tests/package/demo-releases.sh) KNATIVE_IMAGES=target/images-demo target/release/demo

.PHONY: test
test: lint tools ## Runs all checks and tests. Takes about 15 minutes. KUBERNETES=minor: another control plane.
	$(call step,build,cargo build --workspace --quiet)
	$(call step,build images,tests/package/test-images.sh target/images-test image-test)
	$(call step,unit tests,cargo test --workspace --quiet --lib --bins)
	$(call step,conformance,cargo test --workspace --quiet --test crd_compatibility --test chart --test tooling --test conformance)
	$(call step,images,KNATIVE_IMAGES=target/images-test cargo test --workspace --quiet --test images)
	$(call step,chaos (20 seeds),CHAOS_SEEDS=20 CHAOS_WORLDS=2 CHAOS_MILLISECONDS=500 cargo test --quiet -p knative-operator-tests --test chaos)
	@echo "==> end to end"
	@cargo test --workspace --quiet --test e2e --test texts --test permissions --no-run
	@# The tests mostly wait.
	@KNATIVE_IMAGES=target/images-test RUST_TEST_THREADS=$$(( $$(nproc) + 1 )) cargo test --workspace --no-fail-fast --test e2e --test texts --test permissions

.PHONY: lint
lint: prerequisites ## Checks formatting, clippy, structure, prose, licences and bans.
	$(call step,formatting,cargo fmt --all --check)
	$(call step,clippy,cargo clippy --workspace --all-targets --quiet -- -D warnings)
	$(call step,structure and prose,tests/lint.sh)
	@if cargo deny --version >/dev/null 2>&1; then cargo deny -L error --all-features check bans licenses sources; else echo "skipped: cargo-deny is not installed (cargo install cargo-deny)"; fi

.PHONY: bench
bench: ## Prints time, requests, CPU and memory of releases and installations. Takes minutes.
	@cargo build --release --quiet --workspace --bins
	@cargo bench --quiet -p knative-operator-tests --bench release --bench start --bench apply --bench patches --bench fleet --bench rollout --bench admission

.PHONY: generate
generate: tools ## Generates the chart's CRDs, docs/user/rules.md, and the table of merge keys.
	@cargo run --quiet -p knative-operator-tests --bin patch-schema >target/schema.json
	@mv target/schema.json shared/src/patch/schema.json
	@cargo build --quiet -p knative-operator
	@target/debug/knative-operator crds --kind KnativeServing >charts/knative-operator/files/crds/knativeservings.yaml
	@target/debug/knative-operator crds --kind KnativeEventing >charts/knative-operator/files/crds/knativeeventings.yaml
	@target/debug/knative-operator crds --kind KnativeFleet >charts/knative-operator/files/crds/knativefleets.yaml
	@target/debug/knative-operator crds --kind KnativeFleetApproval >charts/knative-operator/files/crds/knativefleetapprovals.yaml
	@target/debug/knative-operator rules >docs/user/rules.md

.PHONY: cluster
cluster: tools ## Starts a hub and a spoke and prints their kubeconfigs. PRODUCT=yes also installs the operator.
	@cargo build --quiet --workspace
	@target/debug/cluster up $(if $(PRODUCT),--product)

.PHONY: cluster-down
cluster-down: ## Stops the clusters of "make cluster".
	@target/debug/cluster down

.PHONY: bundle
bundle: ## Builds a release bundle from Knative's public releases: make bundle OUT=folder [VERSIONS="1.22.1 1.22.2"].
	@operator/bundle/build.sh "$(or $(OUT),target/bundle)" $(VERSIONS)

.PHONY: images
images: prerequisites ## Builds the images as OCI layouts: make images [BUNDLE=folder] [REGISTRY=host/path PUSH=yes].
	@tests/package/images.sh

.PHONY: kind-load
kind-load: ## Loads the images of "make images" into a cluster of kind, k3d or minikube: make kind-load [CLUSTER=name].
	@tests/package/load.sh target/images

.PHONY: release
release: tools ## Builds and checks everything of a release: make release VERSION=x.y.z [BUNDLE=folder].
	@tests/package/release.sh

.PHONY: release-check
release-check: tools ## Checks a release again: make release-check VERSION=x.y.z.
	@RELEASE=target/release-$(VERSION) tests/package/check.sh

.PHONY: chaos
chaos: tools ## Changes resources under faults of all API servers: make chaos SEED=1 [MINUTES=10 | SEEDS=20].
	@cargo build --workspace --quiet
	@CHAOS_SEED=$(or $(SEED),1) CHAOS_MINUTES=$(or $(MINUTES),0) CHAOS_SEEDS=$(or $(SEEDS),1) CHAOS_WORLDS=2 cargo test --quiet -p knative-operator-tests --test chaos -- --nocapture

.PHONY: test-knative
test-knative: tools ## Runs Knative's own controllers beside the operator. Takes 15 minutes, and more to build them once.
	$(call step,Knative's controllers and Envoy,tests/tools/install.sh knative-1.21 knative-1.22 envoy >/dev/null)
	@cargo build --workspace --quiet
	@KNATIVE_CONTROLLERS=yes cargo test --quiet -p knative-operator-tests --test knative -- --nocapture

.PHONY: test-ui
test-ui: tools ## Checks the types of the web page, and tests it in Chromium. Writes pictures to target/ui.
	$(call step,axe-core and TypeScript,tests/tools/install.sh axe.min.js tsc >/dev/null)
	$(call step,types of the web page,tests/package/ui-types.sh)
	@cargo build --workspace --quiet
	@BROWSER_TESTS=yes RUST_TEST_THREADS=1 cargo test --quiet -p knative-operator-tests --test ui -- --nocapture

.PHONY: test-monitoring
test-monitoring: tools ## Tests metrics, alerts and dashboard with Prometheus, which is built once.
	$(call step,Prometheus,tests/tools/install.sh prometheus promtool >/dev/null)
	@cargo build --workspace --quiet
	@MONITORING=yes RUST_TEST_THREADS=1 cargo test --quiet -p knative-operator-tests --test monitoring -- --nocapture

.PHONY: docs
docs: ## Builds the documentation site in target/site with mdBook, and checks all links and anchors.
	$(call step,documentation site,tests/package/docs.sh)

.PHONY: tools
tools: prerequisites ## Provides the control-plane binaries: cached, downloaded, or built once with Go.
	$(call step,control plane binaries,tests/tools/install.sh >/dev/null)

.PHONY: prerequisites
prerequisites:
	@command -v cargo >/dev/null || { echo "install Rust 1.90 or later: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo "install a C compiler (Debian: apt-get install gcc libc6-dev)"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

.PHONY: clean
clean: ## Removes build results. Cached control-plane binaries stay.
	@cargo clean
