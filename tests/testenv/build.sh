#!/bin/sh
# Builds the real components that the tests and the demo start, when they are missing.
#
#   build.sh           build what is missing, with a line of progress for each
#   build.sh --demo    the same without kubectl and kubeadm, which only tests use
#   build.sh --where   print the folders that hold them, and build nothing: "kubernetes FOLDER" (kube-apiserver, etcd,
#                      kubectl), "kubeadm FOLDER" and "tools FOLDER" (vcsim, supervise)
#
# The folders' names are hashes of what the components are built from, so a
# change of a version or of a source file is a new folder and nothing is stale.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../$target ;; esac
kubernetes_version=1.34.4

hash() { cat "$@" | sha256sum | cut -c1-12; }

cd "$here"
modules=$(hash go.mod go.sum build.sh)
sources=$(hash go.mod go.sum build.sh vcsim/*.go supervise/*.go)
kubernetes=$target/testenv/kubernetes-$modules
tools=$target/testenv/tools-$sources
# Fetched binaries: etcd, kube-apiserver and kubectl only. The rest is always built here.
assets=${KUBEBUILDER_ASSETS:-}

if [ "${1:-}" = "--where" ]; then
    echo "kubernetes ${assets:-$kubernetes}"
    echo "kubeadm $kubernetes"
    echo "tools $tools"
    exit 0
fi

command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }

# build FOLDER NAME PACKAGE EXPECTATION [LINKER FLAGS]: into a temporary name first, so that half a binary is never used.
build() {
    [ -x "$1/$2" ] && return 0
    echo "building $2 ($4)" >&2
    mkdir -p "$1"
    go build -trimpath -ldflags "-s -w ${5:-}" -o "$1/.$2.$$" "$3"
    mv "$1/.$2.$$" "$1/$2"
}

version="-X k8s.io/component-base/version.gitVersion=v$kubernetes_version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
if [ -z "$assets" ]; then
    build "$kubernetes" etcd go.etcd.io/etcd/server/v3 "about a minute the first time"
    build "$kubernetes" kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "about four minutes the first time" "$version"
fi
if [ "${1:-}" != "--demo" ]; then
    [ -n "$assets" ] || build "$kubernetes" kubectl k8s.io/kubernetes/cmd/kubectl "seconds" "$version"
    build "$kubernetes" kubeadm k8s.io/kubernetes/cmd/kubeadm "half a minute" "$version"
fi
build "$tools" vcsim ./vcsim "about a minute the first time"
build "$tools" supervise ./supervise "seconds"
