#!/bin/sh
# Builds `kube-controller-manager`, which alone sets Ready=Unknown, when it is missing.
#
#   build.sh           build it
#   build.sh --where   print the folder that holds it, and build nothing: "kube-controller-manager FOLDER"
#
# Beside ../build.sh, by whose hash the other components are named: a change here must not rebuild those.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac
version=1.34.4

cd "$here"
folder=$target/testenv/kube-controller-manager-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "kube-controller-manager $folder"
    exit 0
fi

[ -x "$folder/kube-controller-manager" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
echo "building kube-controller-manager (a minute after kube-apiserver, else about four)" >&2
mkdir -p "$folder"
# Into a temporary name first, so that half a binary is never used.
go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" \
    -o "$folder/.kube-controller-manager.$$" k8s.io/kubernetes/cmd/kube-controller-manager
mv "$folder/.kube-controller-manager.$$" "$folder/kube-controller-manager"
