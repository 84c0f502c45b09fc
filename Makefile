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
test: testenv ## Everything but make node-test: also against kube-apiserver, etcd and the vCenter simulator, and the binary as it is shipped
	@CARGO="$(CARGO)" tests/run.sh

.PHONY: suites
suites: testenv ## The tests of make test that make check does not run
	@CARGO="$(CARGO)" CHECKED=1 tests/run.sh

.PHONY: node-tools
node-tools: ## Install the packages that make node-test needs (Debian, as root): containerd, runc, CNI plugins
	@tests/testenv/node/tools.sh

.PHONY: node-components
node-components: testenv
	@tests/testenv/node/build.sh

# Each test starts a whole cluster, most of whose time is waiting.
.PHONY: node-test
node-test: ## The manifests and the image on a real kubelet and containerd, with a real control plane (needs Linux, root, make node-tools)
	@tests/testenv/node/tools.sh --check
	@$(MAKE) --no-print-directory node-components release
	RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),5) $(CARGO) test --workspace --locked --test node -- --skip nightly::

.PHONY: chaos
chaos: testenv ## Ten minutes of faults (CHAOS_SECONDS=3600); CHAOS_SEED=7 repeats a run, CHAOS_SEED=random is a new one
	CHAOS_SECONDS=$(or $(CHAOS_SECONDS),600) CHAOS_SEED=$(CHAOS_SEED) \
		$(CARGO) test --locked --test daemon chaos::through_all_faults -- --nocapture

.PHONY: soak
soak: testenv ## Twenty hits on leaders (SOAK_HITS=50), then ten minutes of races and ten of leaks (SOAK_SECONDS=3600, SOAK_SEED=7), then make chaos
	SOAK_HITS=$(or $(SOAK_HITS),20) $(CARGO) test --locked --test daemon handover::however -- --nocapture
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) SOAK_SEED=$(or $(SOAK_SEED),random) \
		$(CARGO) test --locked --test daemon race::whatever_happens -- --nocapture
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) SOAK_SEED=$(or $(SOAK_SEED),random) \
		$(CARGO) test --locked --test daemon leaks::whatever_happens -- --nocapture
	$(MAKE) chaos CHAOS_SEED=$(or $(CHAOS_SEED),random)

# The parts of make nightly, in this order. The last one needs what make node-test needs.
NIGHTLY ?= slow properties minors soak mutants bench node

.PHONY: nightly
nightly: ## What make test leaves out: slow tests, properties and campaigns with new seeds, mutants, benchmark; NIGHTLY="soak bench" is less
	@set -e; for part in $(NIGHTLY); do $(MAKE) --no-print-directory nightly-$$part; done

# The tests that tests/run.sh skips. A filter that matches no test succeeds, so the target first checks that there is one.
NIGHTLY_TESTS = $(CARGO) test --locked --test daemon --test vcenter --test apiserver --test nsx nightly::

.PHONY: nightly-slow
nightly-slow: testenv
	@$(NIGHTLY_TESTS) -- --list | grep ': test$$' >/dev/null || { echo "no test is in a module nightly" >&2; exit 1; }
	RUST_TEST_THREADS=6 $(NIGHTLY_TESTS)

.PHONY: nightly-properties
nightly-properties: SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
nightly-properties:
	PROPTEST_RNG_SEED=$(SEED) $(CARGO) test --workspace --locked --lib

# The suites of make test, against another minor release of Kubernetes than theirs.
MINORS ?= 1.37
.PHONY: nightly-minors
nightly-minors:
	@set -e; for minor in $(MINORS); do $(MAKE) --no-print-directory suites KUBERNETES_MINOR=$$minor; done

.PHONY: nightly-node
nightly-node:
	@tests/testenv/node/tools.sh --check
	@$(MAKE) --no-print-directory node-components release
	RUST_TEST_THREADS=2 $(CARGO) test --workspace --locked --test node nightly::

.PHONY: nightly-soak nightly-mutants nightly-bench
nightly-soak nightly-mutants nightly-bench: nightly-%: %

# Cargo's folder, and what the binary as it is shipped is built for: this machine, or another one with a linker for it.
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
RELEASE_TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE_BINARY = $(TARGET)/$(RELEASE_TARGET)/release/vsphere-cloud-controller-manager

# What `/version` and the user agents name; the build of the image has no repository, and is told.
CCM_COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)

# Linked statically, so that it needs no file of the system it runs on. The variables reach this target's code only:
# neither build scripts and macros, which --target keeps apart, nor any other build. Frame pointers save 4 % of the
# file: the tables that unwind the stack need not tell how each function moves it. The C code needs no such tables,
# because no panic passes through it. The folder of downloaded sources is cut from the paths in panics.
CARGO_HOME ?= $(HOME)/.cargo
REGISTRY_SOURCES = $(wildcard $(CARGO_HOME)/registry/src/*)
RELEASE_RUSTFLAGS = -C target-feature=+crt-static -C force-frame-pointers=yes \
	$(foreach folder,$(REGISTRY_SOURCES),--remap-path-prefix=$(folder)/=)
RELEASE_VARIABLES = \
	CARGO_TARGET_$(shell echo $(RELEASE_TARGET) | tr a-z- A-Z_)_RUSTFLAGS="$(strip $(RELEASE_RUSTFLAGS))" \
	CFLAGS_$(subst -,_,$(RELEASE_TARGET))="-fno-asynchronous-unwind-tables $(CFLAGS)"

# Its addresses are chosen at each start all the same; the list of those to mend is packed, which saves 4 % of the file.
# Functions that came out alike are kept once, and code that a daemon seldom runs is kept apart, which saves resident
# memory: the linker of Rust for this machine can do that, and others cannot.
RELEASE_LINK_ARGS = -C link-arg=-Wl,-z,pack-relative-relocs
ifeq ($(RELEASE_TARGET),x86_64-unknown-linux-gnu)
RELEASE_LINK_ARGS += -C link-arg=-Wl,--icf=all,-z,keep-text-section-prefix,-T,$(CURDIR)/.cargo/sections.ld
endif

# The paths of the sources are known only when they are there.
.PHONY: release-sources
release-sources:
	@$(CARGO) fetch --locked --quiet --target $(RELEASE_TARGET)

.PHONY: release
release: release-sources ## The binary as it is shipped, static: target/<this machine>/release/vsphere-cloud-controller-manager
	CCM_COMMIT=$(CCM_COMMIT) $(RELEASE_VARIABLES) \
		$(CARGO) rustc --locked --release --target $(RELEASE_TARGET) --bin vsphere-cloud-controller-manager \
		-- $(RELEASE_LINK_ARGS)

.PHONY: field-test
field-test: ## What is believed of vCenter and NSX, against the servers of CLOUD_CONFIG=vsphere.conf; ARGS=--yes does not ask
	@$(CARGO) run --locked --quiet --package ccm-field-test --bin field-test -- $(CLOUD_CONFIG) $(ARGS)

.PHONY: field-test-binary
field-test-binary: release-sources ## The same as a static binary: target/<this machine>/release/field-test
	$(RELEASE_VARIABLES) \
		$(CARGO) rustc --locked --release --target $(RELEASE_TARGET) --package ccm-field-test --bin field-test \
		-- $(RELEASE_LINK_ARGS)

# The C library that is linked in is this machine's.
.PHONY: sbom
sbom: ## What the binary is made of, as CycloneDX JSON: target/vsphere-cloud-controller-manager.cdx.json
	@$(CARGO) build --locked --quiet --package ccm-test-support --bin sbom
	@$(TARGET)/debug/sbom $(RELEASE_TARGET) "$$(getconf GNU_LIBC_VERSION)" >$(TARGET)/vsphere-cloud-controller-manager.cdx.json
	@echo "written to $(TARGET)/vsphere-cloud-controller-manager.cdx.json"

# The values of the last commit are replaced. The longest goes first, because it may begin with another one.
.PHONY: addresses
addresses: ## Copy changed addresses from manifests/addresses.env to alerts, chart, manifests, pages and Dockerfile
	@git rev-parse --verify --quiet HEAD >/dev/null || { echo "nothing was copied: the previous values are in the last commit, and there is none" >&2; exit 1; }
	@git show HEAD:manifests/addresses.env | sed -n 's/^\([A-Z]*\)=\(.*\)/\1 \2/p' | awk '{ print length($$2), $$0 }' | sort -rn | \
	while read -r _ name old; do \
		new=$$(sed -n "s/^$$name=//p" manifests/addresses.env); \
		[ "$$new" = "$$old" ] || git grep -lF -e "$$old" -- ':!manifests/addresses.env' ':!tests' | \
			xargs -r sed -i "s|$$(echo "$$old" | sed 's/[.]/[.]/g')|$$new|g"; \
	done

CONTAINER ?= docker
IMAGE ?= vsphere-cloud-controller-manager

.PHONY: image
image: ## The container image, with CONTAINER=docker or podman; IMAGE is its name, PLATFORM=linux/arm64 another machine
	$(CONTAINER) build $(if $(PLATFORM),--platform $(PLATFORM)) --tag $(IMAGE) --build-arg REVISION=$$(git rev-parse HEAD) .

.PHONY: image-archive
image-archive: release ## The same image as a file, without a container engine: the binary's path and .oci.tar; IMAGE=NAME:TAG is its name
	@$(CARGO) run --locked --quiet --package ccm-image-archive -- '$(IMAGE)' '$(RELEASE_TARGET)' '$(CCM_COMMIT)' '$(RELEASE_BINARY)'

# The files of a release, in one folder. Each part is a target: the workflow `release` builds the binaries on two hosts, and
# a test builds the parts that need no release binary.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
RELEASE_FILES ?= $(TARGET)/release-files
RELEASE_IMAGE ?= $(shell sed -n 's/^IMAGE=//p' manifests/addresses.env):v$(VERSION)
RELEASE_CHARTS = $(shell sed -n 's/^CHARTS=//p' manifests/addresses.env)
RELEASE_NAME = vsphere-cloud-controller-manager-linux-$(if $(filter aarch64-%,$(RELEASE_TARGET)),arm64,amd64)
KUBECTL ?= kubectl
HELM ?= helm

.PHONY: release-files
release-files: release sbom ## Binary, SBOM, chart, install-*.yaml and checksums of a release: target/release-files (needs kubectl and helm)
	@$(MAKE) --no-print-directory release-binary
	@$(MAKE) --no-print-directory release-manifests
	@$(MAKE) --no-print-directory release-chart
	@$(MAKE) --no-print-directory release-checksums
	@echo "written to $(RELEASE_FILES)"

# Copies what `make release` and `make sbom` have built.
.PHONY: release-binary
release-binary:
	@mkdir -p $(RELEASE_FILES)
	@cp $(RELEASE_BINARY) $(RELEASE_FILES)/$(RELEASE_NAME)
	@cp $(TARGET)/vsphere-cloud-controller-manager.cdx.json $(RELEASE_FILES)/$(RELEASE_NAME).cdx.json

# The archive of `make image-archive` under a name for its architecture.
.PHONY: release-archive
release-archive:
	@mkdir -p $(RELEASE_FILES)
	@cp $(RELEASE_BINARY).oci.tar $(RELEASE_FILES)/$(RELEASE_NAME).oci.tar

# Each overlay with the image of the release.
.PHONY: release-manifests
release-manifests:
	@mkdir -p $(RELEASE_FILES)
	@set -e; for overlay in manifests/overlays/*; do \
		distribution=$${overlay##*/}; file=$(RELEASE_FILES)/install-$$distribution.yaml; \
		$(KUBECTL) kustomize $$overlay >$$file.part || { rm $$file.part; exit 1; }; \
		{ echo "# Version $(VERSION), for $$distribution. Create the ConfigMap vsphere-cloud-config and the Secret first:"; \
			echo "# $$(sed -n 's/^DOCUMENTATION=//p' manifests/addresses.env)"; \
			sed 's|image: image-not-set/.*|image: $(RELEASE_IMAGE)|' $$file.part; } >$$file; \
		rm $$file.part; \
	done

# A chart of an earlier version would be pushed, too.
.PHONY: release-chart
release-chart:
	@mkdir -p $(RELEASE_FILES)
	@rm -f $(RELEASE_FILES)/vsphere-cpi-*.tgz
	@$(HELM) package manifests/helm/vsphere-cpi --destination $(RELEASE_FILES) >/dev/null

# `sha256sum --check SHA256SUMS` verifies downloaded files. The archives of the image are pushed to the registry, and have a
# digest there.
.PHONY: release-checksums
release-checksums:
	@set -e; cd $(RELEASE_FILES); \
	files=$$(find . -maxdepth 1 -type f ! -name '*.oci.tar' ! -name 'SHA256SUMS*' -printf '%f\n' | LC_ALL=C sort); \
	sha256sum $$files >SHA256SUMS

# The targets below run in the workflow `release` only. They need credentials of the registry, podman, helm, cosign and gh.
# The shell reads TAG, and make does not put it into a command: a tag can contain characters of the shell.
.PHONY: release-ready
release-ready:
	@[ "$${TAG:-v$(VERSION)}" = "v$(VERSION)" ] || { echo "the tag $$TAG is not the version of Cargo.toml: expected v$(VERSION)" >&2; exit 1; }
	@! grep -q '^[A-Z].*example[.]com' manifests/addresses.env || \
		{ echo "manifests/addresses.env has addresses of example.com: nothing can be published there" >&2; exit 1; }

# REGISTRY_USER and REGISTRY_PASSWORD are secrets of the repository.
.PHONY: release-login
release-login: release-ready
	@echo "$$REGISTRY_PASSWORD" | podman login --username "$$REGISTRY_USER" --password-stdin $(firstword $(subst /, ,$(RELEASE_IMAGE)))
	@echo "$$REGISTRY_PASSWORD" | $(HELM) registry login --username "$$REGISTRY_USER" --password-stdin $(firstword $(subst /, ,$(RELEASE_IMAGE)))
	@echo "$$REGISTRY_PASSWORD" | cosign login --username "$$REGISTRY_USER" --password-stdin $(firstword $(subst /, ,$(RELEASE_IMAGE)))

# One image for all architectures, of the archives of `make image-archive`.
.PHONY: push-image
push-image: release-ready
	podman manifest create $(RELEASE_IMAGE)
	@set -e; for archive in $(RELEASE_FILES)/*.oci.tar; do \
		podman manifest add $(RELEASE_IMAGE) oci-archive:$$archive; \
	done
	podman manifest push --all --digestfile $(TARGET)/image-digest $(RELEASE_IMAGE) docker://$(RELEASE_IMAGE)

.PHONY: push-chart
push-chart: release-ready
	$(HELM) push $(RELEASE_FILES)/vsphere-cpi-*.tgz $(RELEASE_CHARTS)

# Without a key: the identity of the workflow signs.
.PHONY: sign
sign: release-ready
	cosign sign --yes $(firstword $(subst :v$(VERSION), ,$(RELEASE_IMAGE)))@$$(cat $(TARGET)/image-digest)
	cosign sign-blob --yes --bundle $(RELEASE_FILES)/SHA256SUMS.sigstore.json $(RELEASE_FILES)/SHA256SUMS

# Name and digest of the pushed image, for the step that attests its provenance.
.PHONY: image-subject
image-subject:
	@echo "name=$(firstword $(subst :v$(VERSION), ,$(RELEASE_IMAGE)))" >>"$$GITHUB_OUTPUT"
	@echo "digest=$$(cat $(TARGET)/image-digest)" >>"$$GITHUB_OUTPUT"

.PHONY: publish
publish: release-ready
	gh release create v$(VERSION) --verify-tag --title v$(VERSION) --notes "Changes: $$(sed -n 's/^DOCUMENTATION=//p' manifests/addresses.env)/CHANGELOG.md" \
		$$(find $(RELEASE_FILES) -maxdepth 1 -type f ! -name '*.oci.tar')

# cargo-deny takes minutes to build, so nothing here installs it. Its settings are in .cargo/deny.toml.
.PHONY: cargo-deny
cargo-deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || \
		{ echo "nothing was checked: cargo-deny is not installed (cargo install --locked cargo-deny)" >&2; exit 1; }

.PHONY: deny
deny: cargo-deny ## Licences, banned packages and sources of all dependencies (needs cargo-deny)
	$(CARGO) deny check licenses bans sources

.PHONY: advisories
advisories: cargo-deny ## Advisories about all dependencies: vulnerable, withdrawn, unmaintained (needs cargo-deny and a network)
	$(CARGO) deny check advisories

.PHONY: testenv
testenv: ## Build the components that the tests start, such as kube-apiserver and the vCenter simulator (needs Go)
	@tests/testenv/build.sh
	@tests/testenv/minors/build.sh
	@tests/testenv/kube-controller-manager/build.sh
	@tests/testenv/helm/build.sh
	@tests/testenv/govc/build.sh
	@tests/testenv/metrics/build.sh

# What the demo starts, and nothing else: the first run is shorter.
.PHONY: demo-components
demo-components:
	@tests/testenv/build.sh --demo

.PHONY: demo-node
demo-node: demo-components
	@tests/testenv/node/build.sh

# Nothing is optimised, neither here nor in what both programs depend on.
.PHONY: demo-programs
demo-programs:
	@$(CARGO) build --locked --profile quick --package vsphere-cloud-controller-manager --package ccm-test-support \
		--bin vsphere-cloud-controller-manager --bin demo

# Go and cargo side by side. Where something is missing, the first line says why the next minutes show so little.
.PHONY: demo
demo: ## A cluster on this machine whose nodes get initialized, and a Service on NSX; ONCE=1 ends by itself, NODES=200 is larger, ROUTES=1 has routes, NODE=1 has a real kubelet
	@$(if $(NODE),tests/testenv/node/tools.sh --check)
	@set -- $$(tests/testenv/build.sh --where); [ -x "$$2/kube-apiserver" ] && [ -x "$$6/supervise" ] && [ -x $(TARGET)/quick/demo ] || \
		echo "the components and programs of the demo are built once; on two cores that takes about eleven minutes"
	@$(MAKE) --no-print-directory --jobs 2 demo-components demo-programs $(if $(NODE),demo-node)
	@ONCE=$(ONCE) NODES=$(NODES) ROUTES=$(ROUTES) NODE=$(NODE) $(TARGET)/quick/demo $(TARGET)/quick/vsphere-cloud-controller-manager

# Timed code has to be built like shipped code: the same settings, flags and dependencies.
.PHONY: micro
micro: release-sources
	$(RELEASE_VARIABLES) \
		$(CARGO) build --locked --release --target $(RELEASE_TARGET) --package ccm-micro-benchmarks

# The benchmark itself is optimised, too: its plain client is what the daemon's writes are compared with.
.PHONY: bench
bench: testenv release $(if $(CHAPTERS),$(filter micro,$(CHAPTERS)),micro) ## What is promised in numbers, measured; CHAPTERS="idle size" RUNS=1 measures less; writes target/bench/report.json
	@BENCH_JSON=$(abspath $(TARGET))/bench/report.json MICRO=$(abspath $(TARGET))/$(RELEASE_TARGET)/release/micro \
		$(CARGO) bench --locked --quiet --bench bench -- $(abspath $(RELEASE_BINARY)) $(CHAPTERS)

.PHONY: book
book: ## The pages as a website: target/book (needs mdBook)
	@mdbook --version >/dev/null 2>&1 || { echo "nothing was built: mdBook is not installed (cargo install --locked mdbook)" >&2; exit 1; }
	mdbook build docs

.PHONY: performance-page
performance-page: ## The pages with numbers and their plots from target/bench/report.json; chapters not measured stay as they are
	@$(CARGO) run --locked --quiet --package ccm-test-support --bin performance-page -- $(wildcard $(TARGET)/bench/report.json)

.PHONY: mutants
mutants: testenv ## Break what decides over deletions and leadership, line by line: does a test notice? Hours; MUTANTS="absence gate" PART=1/4
	@$(CARGO) run --locked --quiet --package ccm-test-support --bin mutants

# The first folder takes what is found. The program has no unsafe code, so no sanitizer is needed to see what goes wrong.
SECONDS ?= 60
FUZZ_FOLDER = $(abspath $(TARGET))/fuzz

.PHONY: fuzz
fuzz: ## Fuzz the readers of bytes from outside; FUZZ=vim_updates is one of them, SECONDS=600 longer (needs nightly and cargo-fuzz)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || \
		{ echo "nothing was fuzzed: it needs a nightly toolchain and cargo-fuzz (cargo install --locked cargo-fuzz)" >&2; exit 1; }
	@set -e; for target in $(or $(FUZZ),$$($(CARGO) +nightly fuzz list --fuzz-dir tests/fuzz/cargo-fuzz)); do \
		mkdir -p $(FUZZ_FOLDER)/corpus/$$target $(FUZZ_FOLDER)/artifacts/$$target; \
		CARGO_TARGET_DIR=$(FUZZ_FOLDER)/build $(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz/cargo-fuzz --sanitizer none $$target \
			$(FUZZ_FOLDER)/corpus/$$target tests/fuzz/corpus/$$target -- -max_total_time=$(SECONDS) -max_len=8192 \
			-timeout=10 -rss_limit_mb=1024 -artifact_prefix=$(FUZZ_FOLDER)/artifacts/$$target/; \
	done
