#!/bin/sh
# Counts the product lines of src at each revision: blank lines and comments are counted, `tests.rs`, folders `tests/`,
# and items below `#[cfg(test)]` (also the files of modules that are declared so) are not. Relies on rustfmt's layout.
# Usage: tests/architecture/product-lines.sh REVISION… (without one, the files as they are); prints revision, lines, files
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ $# -gt 0 ] || set -- tree
for revision in "$@"; do
    rm -rf "$work/src"
    if [ "$revision" = tree ]; then cp -R src "$work"; else git archive "$revision" src | tar -x -C "$work"; fi
    files=$(cd "$work" && find src -name '*.rs' ! -name tests.rs ! -path '*/tests/*' | sort)
    # shellcheck disable=SC2086 # names of files here have no spaces
    (cd "$work" && awk -v revision="$revision" '
        FNR == 1 { skips = 0; folder = FILENAME; sub(/\.rs$/, "", folder) }
        { indent = match($0, /[^ ]/) }
        skips && indent == start && /^ *#\[/ { next }
        skips && begins {
            begins = 0
            if ($0 ~ /^ *(pub(\([a-z: ]*\))? )?mod [a-z_0-9]+;/) {
                name = $0; sub(/;.*/, "", name); sub(/.* /, "", name); only_tests[folder "/" name ".rs"] = 1
            }
            if ($0 ~ /[;,}]$/) skips = 0
            next
        }
        skips { if (indent == start && /^ *[]})]+[;,]?$/) skips = 0; next }
        /^ *#\[cfg\(test\)\]$/ { skips = begins = 1; start = indent; next }
        { lines[FILENAME]++ }
        END {
            for (file in lines) if (!(file in only_tests)) { sum += lines[file]; count++ }
            printf "%s %d lines in %d files\n", revision, sum, count
        }' $files)
done
