# The commands of this project. People and CI use the same ones.

.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## Format, lints, unit and architecture tests, documentation; no network, no components
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked --lib --test architecture
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --document-private-items
