#!/bin/sh
# Builds `govc`, the command line of vSphere administrators, when it is missing.
#
#   build.sh           build it
#   build.sh --where   print the folder that holds it, and build nothing: "govc FOLDER"
#
# Beside ../build.sh, by whose hash the large components are named: a change here must not rebuild those.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac

cd "$here"
folder=$target/testenv/govc-$(cat go.mod go.sum build.sh main.go | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "govc $folder"
    exit 0
fi

[ -x "$folder/govc" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
echo "building govc (seconds after vcsim, else about a minute)" >&2
mkdir -p "$folder"
# Into a temporary name first, so that half a binary is never used.
go build -trimpath -ldflags "-s -w" -o "$folder/.govc.$$" .
mv "$folder/.govc.$$" "$folder/govc"
