# The image: one static binary and the certificates of public authorities. No shell, no package, no user but a number.
# `make image` builds it. `make image-archive` writes what the last stage says without a container engine, and
# tests/daemon/image.rs runs the binary with exactly what that archive holds.

FROM --platform=$BUILDPLATFORM rust:1.95.0-bookworm AS build
# What the image is for, as the builder says it: amd64 or arm64, whatever machine builds.
ARG TARGETARCH
# The toolchain that is there, without the components for development that rust-toolchain.toml names.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /build
# For another machine than the building one: its C compiler (of the cryptography), linker and C library.
RUN set -eu; \
    case "$TARGETARCH" in \
        amd64) machine=x86_64 ;; \
        arm64) machine=aarch64 ;; \
        *) echo "no image for $TARGETARCH" >&2; exit 1 ;; \
    esac; \
    echo "$machine-unknown-linux-gnu" >/target; \
    if [ "$machine" != "$(uname -m)" ]; then \
        apt-get update; \
        apt-get install --yes --no-install-recommends \
            "gcc-$(echo "$machine" | tr _ -)-linux-gnu" "libc6-dev-$TARGETARCH-cross"; \
        rustup target add "$(cat /target)"; \
    fi
COPY . .
# The commit that is built: there is no repository here.
ARG REVISION
RUN set -eu; \
    target=$(cat /target); \
    if [ "${target%%-*}" != "$(uname -m)" ]; then \
        export "CC_$(echo "$target" | tr - _)=${target%%-*}-linux-gnu-gcc"; \
        export "CARGO_TARGET_$(echo "$target" | tr a-z- A-Z_)_LINKER=${target%%-*}-linux-gnu-gcc"; \
    fi; \
    make release CCM_COMMIT="$REVISION" RELEASE_TARGET="$target"; \
    cp "target/$target/release/vsphere-cloud-controller-manager" /

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="vsphere-cloud-controller-manager" \
      org.opencontainers.image.description="The process that connects a Kubernetes cluster to vSphere" \
      org.opencontainers.image.url="https://git.example.com/vsphere-cloud-controller-manager" \
      org.opencontainers.image.source="https://git.example.com/vsphere-cloud-controller-manager" \
      org.opencontainers.image.documentation="https://git.example.com/vsphere-cloud-controller-manager/blob/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /vsphere-cloud-controller-manager /bin/vsphere-cloud-controller-manager
# The number that the Go program's manifests run it as.
USER 1001:1001
ENTRYPOINT ["/bin/vsphere-cloud-controller-manager"]
