#!/bin/sh
# Builds `helm`, and `chart`, which renders the Helm chart for the tests, when they are missing.
#
#   build.sh           build them
#   build.sh --where   print the folder that holds them, and build nothing: "charts FOLDER"
#
# Beside ../build.sh, by whose hash the large components are named: a change here must not rebuild those.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac
helm_version=3.19.5

cd "$here"
folder=$target/testenv/charts-$(cat go.mod go.sum build.sh main.go | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "charts $folder"
    exit 0
fi

# build NAME PACKAGE EXPECTATION [LINKER FLAGS]: into a temporary name first, so that half a binary is never used.
build() {
    [ -x "$folder/$1" ] && return 0
    command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
    echo "building $1 ($3)" >&2
    mkdir -p "$folder"
    go build -trimpath -ldflags "-s -w ${4:-}" -o "$folder/.$1.$$" "$2"
    mv "$folder/.$1.$$" "$folder/$1"
}

build chart . "seconds after kubectl, else about a minute"
# The Kubernetes version is the one that `helm template` assumes without a cluster.
build helm helm.sh/helm/v3/cmd/helm "about a minute" "-X helm.sh/helm/v3/internal/version.version=v$helm_version \
-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
