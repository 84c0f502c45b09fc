#!/bin/sh
# Builds the components of another minor release of Kubernetes, when they are missing: that of KUBERNETES_MINOR, for
# which there is a module file below this folder. Without the variable, or with the release that ../build.sh builds, it
# does and prints nothing.
#
#   build.sh           build what is missing, with a line of progress for each
#   build.sh --where   print the folder that holds them, and build nothing: "kubernetes FOLDER" (kube-apiserver, etcd,
#                      kubectl), "kubeadm FOLDER" and "kube-controller-manager FOLDER", which are one
#
# The folder's name has the release and a hash of what the components are built from, so the components of several
# releases stay beside each other.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac
default=1.34
minor=${KUBERNETES_MINOR:-$default}
[ "$minor" != "$default" ] || exit 0

if [ ! -f "$here/$minor/go.mod" ]; then
    echo "KUBERNETES_MINOR=$minor: expected one of $default" "$(cd "$here" && echo */ | tr -d /)" >&2
    exit 1
fi
cd "$here/$minor"
version=$(sed -n 's|^require k8s.io/kubernetes v\([0-9.]*\).*|\1|p' go.mod)
folder=$target/testenv/kubernetes-$version-$(cat go.mod go.sum ../build.sh | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "kubernetes $folder"
    echo "kubeadm $folder"
    echo "kube-controller-manager $folder"
    exit 0
fi

command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
mkdir -p "$folder"

# build NAME PACKAGE EXPECTATION: into a temporary name first, so that half a binary is never used.
build() {
    [ -x "$folder/$1" ] && return 0
    echo "building $1 of Kubernetes $version ($3)" >&2
    go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor#1.}" \
        -o "$folder/.$1.$$" "$2"
    mv "$folder/.$1.$$" "$folder/$1"
}

build etcd go.etcd.io/etcd/server/v3 "about a minute the first time"
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "about four minutes the first time"
build kubectl k8s.io/kubernetes/cmd/kubectl "seconds"
build kubeadm k8s.io/kubernetes/cmd/kubeadm "half a minute"
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager "a minute"
