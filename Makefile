# The tasks of this project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export KUBERNETES VERSION BUNDLE REGISTRY PUSH CLUSTER

# Runs a step, prints its duration and that of the last time, and fails if it fails.
step = @tests/package/step.sh "$(1)" $(2)
# Builds at a time: while one waits for a linker or a download, the other compiles. One, if memory
# is scarce.
JOBS := $(shell cat /proc/meminfo 2>/dev/null | awk '/^MemAvailable/ {m = $$2} END {print (m == "" || m > 6000000) ? 2 : 1}')
ifeq ($(JOBS),1)
# Cargo starts a compiler for each processor.
export CARGO_BUILD_JOBS ?= 1
endif

# What real nodes need.
NODES := node knative-1.22 envoy
# The demo and `make test` run Serving only.
EVENTING := eventing-1.22
# Only root can run them.
PROGRAMS_OF_NODES := $(if $(filter 0,$(shell id -u)),programs-of-nodes)

.PHONY: help
help: ## Lists all tasks.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-17s %s\n", $$1, $$2}'

.PHONY: demo
demo: prerequisites ## Runs the main scenario. REAL=yes: on real nodes, with HTTP requests. MINOR=yes: also an upgrade by a minor. KEEP=yes: it stays.
	@$(MAKE) --no-print-directory -j$(JOBS) tools build-demo $(if $(filter yes,$(REAL)),$(PROGRAMS_OF_NODES) $(if $(filter yes,$(MINOR)),earlier-minor))
	$(call step,demo,env REAL_NODES=$(filter yes,$(REAL)) MINOR=$(filter yes,$(MINOR)) KNATIVE_IMAGES=target/images-test target/demo/isolate $(if $(KEEP),--machine-network) target/demo/demo)

.PHONY: build-demo
build-demo:
	$(call step,build images and the demo,env DEMO=yes tests/package/test-images.sh)

.PHONY: test
test: prerequisites ## Runs all checks and tests. Takes about 15 minutes. KUBERNETES=minor: another control plane.
	@mkdir -p target && rm -f target/skipped.txt
	@$(MAKE) --no-print-directory -j$(JOBS) tools-of-tests build-tests $(PROGRAMS_OF_NODES)
	@tests/package/run-tests.sh

.PHONY: test-long
test-long: tools-of-tests ## Runs the end-to-end tests that "make test" leaves out, in tests/package/long-tests.txt. Takes 15 minutes.
	@cargo build --workspace --quiet --bins --examples
	$(call step,build images,tests/package/test-images.sh)
	@KNATIVE_IMAGES=target/images-test cargo test --workspace --test e2e -- --exact $$(tests/package/long-tests.sh)

.PHONY: build-tests
build-tests: lint
	$(call step,build the tests,cargo test --workspace --quiet --lib --bins --tests --no-run)
	$(call step,build the binaries,cargo build --workspace --quiet --bins --examples)
	$(call step,build images,tests/package/test-images.sh)

.PHONY: lint
lint: lint-fast ## Checks formatting, structure, prose, clippy, licenses and bans.
	$(call step,clippy,cargo clippy --workspace --all-targets --quiet -- -D warnings)
	@if cargo deny --version >/dev/null 2>&1; then cargo deny -L error --all-features check bans licenses sources; else mkdir -p target && echo "skipped: licenses and bans: cargo-deny is not installed (it takes minutes to build: make advisories builds it, and checks them)" | tee -a target/skipped.txt; fi

.PHONY: lint-fast
lint-fast: prerequisites ## Checks what needs no build: formatting, structure and prose.
	$(call step,formatting,cargo fmt --all --check)
	$(call step,structure and prose,tests/lint.sh)

.PHONY: advisories
advisories: prerequisites ## Compares Cargo.lock with RustSec's advisories; checks licenses and bans. Without a connection, it says skipped.
	@tests/package/advisories.sh

.PHONY: bench
bench: ## Prints time, requests, CPU and memory of releases and installations. Takes minutes.
	@cargo build --release --quiet --workspace --bins # with --workspace, or Cargo builds again with other features
	@cargo bench --quiet --workspace --bench release --bench start --bench apply --bench patches --bench fleet --bench rollout --bench admission --bench admission_fleets

.PHONY: generate
generate: tools ## Generates the chart's CRDs, versions, README and schema, the pages with references, and the table of merge keys.
	@cargo run --quiet -p knative-operator-tests --bin patch-schema >target/schema.json
	@mv target/schema.json shared/patch/src/schema.json
	@cargo build --quiet -p knative-operator
	@target/debug/knative-operator crds --kind KnativeServing >charts/knative-operator/files/crds/knativeservings.yaml
	@target/debug/knative-operator crds --kind KnativeEventing >charts/knative-operator/files/crds/knativeeventings.yaml
	@target/debug/knative-operator crds --kind KnativeFleet >charts/knative-operator/files/crds/knativefleets.yaml
	@target/debug/knative-operator crds --kind KnativeFleetApproval >charts/knative-operator/files/crds/knativefleetapprovals.yaml
	@operator/bundle/versions.sh >charts/knative-operator/files/versions.json
	@target/debug/knative-operator rules >docs/user/rules.md
	@target/debug/knative-operator permissions >docs/operate/permissions.md
	@target/debug/knative-operator commands >docs/user/commands.md
	@cargo run --quiet -p knative-operator-tests --bin references

.PHONY: cluster
cluster: tools $(if $(filter yes,$(REAL)),$(PROGRAMS_OF_NODES)) ## Starts a hub and a spoke and prints their kubeconfigs. PRODUCT=yes also installs the operator. REAL=yes: real nodes.
	$(call step,build the operator,cargo build --quiet --workspace)
	@if [ "$(REAL)" = yes ]; then $(if $(PROGRAMS_OF_NODES),tests/tools/install.sh $(EVENTING) >/dev/null;) tests/package/test-images.sh; fi
	@KNATIVE_IMAGES=$(if $(filter yes,$(REAL)),target/images-test) target/debug/cluster up $(if $(PRODUCT),--product) $(if $(filter yes,$(REAL)),--real)

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

.PHONY: test-real
test-real: tools-of-tests $(PROGRAMS_OF_NODES) ## Runs the operator, Knative and Knative Services on real nodes, with HTTP requests. Needs root.
	$(call step,Eventing and Knative 1.21 and the engine of network policies,bash -c 'tests/package/node.sh policies && tests/tools/install.sh $(EVENTING) knative-1.21 eventing-1.21 kube-router')
	@cargo build --workspace --quiet --bins
	$(call step,build images,tests/package/test-images.sh)
	@REAL_NODES=yes KNATIVE_IMAGES=target/images-test RUST_TEST_THREADS=1 cargo test --quiet -p knative-operator-tests --test real -- --nocapture

.PHONY: programs-of-nodes
programs-of-nodes: # Of the distribution, and those of Kubernetes and Knative, which are built once.
	@tests/package/node.sh
	$(call step,programs of real nodes,tests/tools/install.sh $(NODES))

.PHONY: earlier-minor
earlier-minor: # The programs of the minor version before that of the demo, which are built once.
	$(call step,Knative 1.21,tests/tools/install.sh knative-1.21)

.PHONY: test-differential
test-differential: tools-of-tests ## Compares random specs with the Go operator's renderer: make test-differential SPECS=20000 [SEED=1].
	@cargo build --workspace --quiet --bins
	@SPECS=$(or $(SPECS),20000) SEED=$(or $(SEED),1) cargo test --quiet -p knative-operator-tests --test conformance differential -- --nocapture

.PHONY: test-go-suite
test-go-suite: tools-of-tests ## Runs the end-to-end suite of the Go operator against this operator, and reproduces its defects.
	$(call step,the Go operator's suite,go -C tests/tools/go-operator test -c -gcflags=all=-dwarf=false -tags "e2e multicluster" -o /dev/null knative.dev/operator/test/e2e)
	@cargo build --workspace --quiet --bins
	@GO_SUITE=yes cargo test --quiet -p knative-operator-tests --test go_suite -- --nocapture
	@GO_SUITE=yes cargo test -p knative-operator-tests --test e2e -- --nocapture defects go_takeover

.PHONY: test-kubernetes-upgrade
test-kubernetes-upgrade: ## Upgrades the control planes of a hub and a spoke twice, while Knative is installed and runs.
	@KUBERNETES=1.33 $(MAKE) --no-print-directory tools
	$(call step,newer control planes,bash -c 'for v in 1.36 1.37; do KUBERNETES=$$v tests/tools/install.sh; done')
	@cargo build --workspace --quiet --bins
	@KUBERNETES_UPGRADES=$$(KUBERNETES=1.36 tests/tools/install.sh):$$(KUBERNETES=1.37 tests/tools/install.sh) KUBERNETES=1.33 \
	  cargo test --quiet -p knative-operator-tests --test e2e lifecycle::kubernetes -- --nocapture

.PHONY: test-upgrade
test-upgrade: tools ## Upgrades from the last release and rolls back, with its own binaries, which are built once.
	$(call step,binaries of the last release,tests/package/last-release.sh)
	@cargo build --workspace --quiet --bins
	@LAST_RELEASE=$$(tests/package/last-release.sh) cargo test --quiet -p knative-operator-tests --test e2e lifecycle::last_release -- --nocapture

.PHONY: test-ui
test-ui: tools ## Checks the types of the web page, and tests it and the documentation site in Chromium. Writes pictures to target/ui.
	$(call step,axe-core and TypeScript,tests/tools/install.sh axe.min.js tsc)
	$(call step,mdBook,tests/tools/install.sh mdbook)
	$(call step,types of the web page,tests/package/ui-types.sh)
	@cargo build --workspace --quiet
	@BROWSER_TESTS=yes RUST_TEST_THREADS=1 cargo test --quiet -p knative-operator-tests --test ui -- --nocapture

.PHONY: test-monitoring
test-monitoring: tools ## Tests metrics, alerts and dashboard with Prometheus, which is built once.
	$(call step,Prometheus,tests/tools/install.sh prometheus promtool amtool)
	@cargo build --workspace --quiet
	@MONITORING=yes RUST_TEST_THREADS=1 cargo test --quiet -p knative-operator-tests --test monitoring -- --nocapture

.PHONY: test-managers
test-managers: tools $(PROGRAMS_OF_NODES) ## Installs Knative through Open Cluster Management, whose programs are built once, on real nodes. Needs root.
	$(call step,Eventing and Open Cluster Management,tests/tools/install.sh $(EVENTING) ocm cluster-proxy managed-serviceaccount)
	@cargo build --workspace --quiet --bins
	$(call step,build images,tests/package/test-images.sh)
	@MANAGERS=yes KNATIVE_IMAGES=target/images-test cargo test --quiet -p knative-operator-tests --test managers -- --nocapture

.PHONY: docs
docs: ## Builds the documentation site in target/site with mdBook, and checks all links and anchors.
	$(call step,documentation site,tests/package/docs.sh)
	@cargo run --quiet -p knative-operator-tests --bin check-links -- target/site

.PHONY: lines
lines: ## Prints the lines of code, comments and tests of each package: make lines [COMMIT=commit].
	@tests/package/lines.sh $(COMMIT)

.PHONY: tools
tools: prerequisites ## Provides the control-plane binaries and Knative's releases: cached, downloaded, or built once.
	$(call step,control plane,tests/tools/install.sh)
	$(call step,Knative's releases,tests/package/releases.sh)

.PHONY: tools-of-tests
tools-of-tests: tools
	$(call step,the Go operator and what GitOps tools see,tests/tools/install.sh go-operator go-operator-module kubernetes-module gitops)

.PHONY: prerequisites
prerequisites:
	@case "$(CURDIR)" in *[[:space:]]*) echo "the allocator (jemalloc) can't be built in a path with spaces: move the clone"; exit 1 ;; esac
	@folder=$$(mktemp -d 2>/dev/null) && rmdir "$$folder" || { echo "$${TMPDIR:-/tmp} is not writable: set TMPDIR to a folder that is writable"; exit 1; }
	@command -v cargo >/dev/null || { echo "install Rust 1.90 or later: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo "install a C compiler (Debian: apt-get install gcc libc6-dev)"; exit 1; }
	@free=$$(df -Pm "$$([ -d target ] && echo target || echo .)" | awk 'END {print $$4}'); [ "$$free" -ge 2048 ] || { echo "$$free MiB are free for build results in target: delete files (a new target takes 20 GB)"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

.PHONY: clean
clean: ## Removes build results. Cached control-plane binaries stay.
	@cargo clean
