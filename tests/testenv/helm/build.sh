#!/bin/sh
# Builds `chart`, which renders the Helm chart for the tests, when it is missing.
#
#   build.sh           build it
#   build.sh --where   print the folder that holds it, and build nothing: "charts FOLDER"
#
# Beside ../build.sh, by whose hash the large components are named: a change here must not build those anew.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac

cd "$here"
folder=$target/testenv/charts-$(cat go.mod go.sum build.sh main.go | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "charts $folder"
    exit 0
fi

[ -x "$folder/chart" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
echo "building chart (seconds after kubectl, else about a minute)" >&2
mkdir -p "$folder"
# Into a temporary name first, so that half a binary is never used.
go build -trimpath -ldflags "-s -w" -o "$folder/.chart.$$" .
mv "$folder/.chart.$$" "$folder/chart"
