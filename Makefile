# The commands of this project. People and CI use the same ones.

.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## Format, lints, unit and architecture tests, documentation; starts no component
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked --lib --test architecture --test cli
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --document-private-items

.PHONY: test
test: testenv ## Everything: also against kube-apiserver, etcd and the vCenter simulator
	$(CARGO) test --workspace --locked

.PHONY: soak
soak: testenv ## The race suite for ten minutes, or SOAK_SECONDS=3600; SOAK_SEED=7 repeats the actions of a run
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) SOAK_SEED=$(SOAK_SEED) \
		$(CARGO) test --locked --test daemon race::whatever_happens -- --nocapture

.PHONY: release
release: ## The binary as it is shipped: target/release/vsphere-cloud-controller-manager
	$(CARGO) build --locked --release --bin vsphere-cloud-controller-manager

# cargo-deny takes minutes to build, so nothing here installs it. Its settings are in .cargo/deny.toml.
.PHONY: cargo-deny
cargo-deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || \
		{ echo "nothing was checked: cargo-deny is not installed (cargo install --locked cargo-deny)" >&2; exit 1; }

.PHONY: deny
deny: cargo-deny ## Licences, banned packages and sources of all dependencies (needs cargo-deny)
	$(CARGO) deny check licenses bans sources

.PHONY: advisories
advisories: cargo-deny ## Known vulnerabilities of all dependencies (needs cargo-deny and a network)
	$(CARGO) deny check advisories

.PHONY: testenv
testenv: ## Build kube-apiserver, etcd, kubectl and the vCenter simulator, if they are missing (needs Go)
	@tests/testenv/build.sh

# Cargo's folder; the demo and the measurement are told where the daemon is.
TARGET ?= $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo
demo: testenv ## A cluster on this machine whose nodes get initialised; ONCE=1 ends by itself, NODES=200 is a larger one
	@echo "building the daemon (release; some minutes the first time) and the demo"
	@$(CARGO) build --locked --quiet --release --bin vsphere-cloud-controller-manager
	@$(CARGO) build --locked --quiet --package ccm-test-support --bin demo
	@ONCE=$(ONCE) NODES=$(NODES) $(TARGET)/debug/demo $(TARGET)/release/vsphere-cloud-controller-manager

.PHONY: measure
measure: testenv ## Time, calls and memory with 5000 nodes of real size, some minutes; NODES=500 is a smaller cluster
	@echo "building the daemon (release; some minutes the first time) and the measurement"
	@$(CARGO) build --locked --quiet --release --bin vsphere-cloud-controller-manager
	@$(CARGO) build --locked --quiet --package ccm-test-support --bin measure
	@NODES=$(NODES) $(TARGET)/debug/measure $(TARGET)/release/vsphere-cloud-controller-manager
