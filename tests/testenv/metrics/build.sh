#!/bin/sh
# Builds `metrics`, which reads what the daemon exposes with Prometheus's own parsers, when it is missing.
#
#   build.sh           build it
#   build.sh --where   print the folder that holds it, and build nothing: "metrics FOLDER"
#
# Beside ../build.sh, by whose hash the large components are named: a change here must not build those anew.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$here/../../../$target ;; esac

cd "$here"
folder=$target/testenv/metrics-$(cat go.mod go.sum build.sh ./*.go | sha256sum | cut -c1-12)

if [ "${1:-}" = "--where" ]; then
    echo "metrics $folder"
    exit 0
fi

[ -x "$folder/metrics" ] && exit 0
command -v go >/dev/null || { echo "Go is needed to build the test environment: https://go.dev/dl" >&2; exit 1; }
echo "building metrics (half a minute the first time)" >&2
mkdir -p "$folder"
# Into a temporary name first, so that half a binary is never used.
go build -trimpath -ldflags "-s -w" -o "$folder/.metrics.$$" .
mv "$folder/.metrics.$$" "$folder/metrics"
