#!/bin/sh
# Builds what a real node and its cluster run, when it is missing: kubelet, kube-scheduler, and `pause`, the process of the
# pods' sandboxes.
#
#   build.sh           build what is missing, with a line of progress for each
#   build.sh --where   print the folder that holds them, and build nothing: "node FOLDER"
#
# Only `make node-test` uses them.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac
version=1.34.4

cd "$here"
folder=$target/testenv/node-$(cat go.mod go.sum build.sh pause/*.go | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "node $folder"
    exit 0
fi

command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
mkdir -p "$folder"

# build NAME PACKAGE EXPECTATION: into a temporary name first, so that half a binary is never used.
build() {
    [ -x "$folder/$1" ] && return 0
    echo "building $1 ($3)" >&2
    go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" -o "$folder/.$1.$$" "$2"
    mv "$folder/.$1.$$" "$folder/$1"
}

build kubelet k8s.io/kubernetes/cmd/kubelet "a minute after kube-apiserver, else about four"
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler "half a minute"
# In a container there is no C library.
CGO_ENABLED=0 build pause ./pause "seconds"
