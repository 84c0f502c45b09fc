#!/usr/bin/env bash
# Runs every test: `make test`. With CHECKED=1 those that `make check` does not run: `make suites`.
#
# The suites of the lanes wait most of their time. They run side by side, after all others, each lane with ports of its
# own; each line of theirs begins with the name of the suite. The release binary is built beside them, and the one test
# that needs it comes last. Tests in a module `nightly` are left to `make nightly`.
#
# Cargo knows which test programs there are. It hands each to this script (`--program`), which puts those of the lanes aside.
set -euo pipefail

# A line is a lane: its suites run one after the other. The lanes take about the same time.
lanes="
daemon
vcenter harness signals
apiserver contract servers writes recording logins
"
# The programs of `cargo test --workspace --lib --test architecture --test cli`.
checked="ccm support image_archive doubles fuzz_targets architecture cli"
needs_release=image::the_shipped_binary_needs_nothing_but_what_its_image_holds

if [ "${1:-}" = --program ]; then
    shift
    name=$(basename "$1")
    name=${name%-*}
    case " ${lanes//$'\n'/ } " in *" $name "*)
        echo "$1" >"$PUT_ASIDE/$name"
        exit ;;
    esac
    if [ "$name" = node ]; then
        echo "the tests of $name need root and a container runtime, and are left to make node-test"
        exit
    fi
    if [ -n "${CHECKED:-}" ]; then
        case " $checked " in *" $name "*) exit ;; esac
    fi
    exec "$@" --skip nightly::
fi

# Of the tests that run at once, most wait.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-6}
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
export PUT_ASIDE
PUT_ASIDE=$(mktemp -d)
# Everything runs in the background: job control gives each job a process group, so that all of it ends when this script
# does. The tests' servers end with the tests.
set -m
finish() {
    for job in $(jobs -rp); do kill -TERM -- "-$job" || true; done
    rm -rf "$PUT_ASIDE"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# When there is nothing to do, this takes a second. Beside tests, it takes what they leave of the processors.
nice -n 19 make release >"$PUT_ASIDE/release.log" 2>&1 </dev/null &
release=$!

"$cargo" test --workspace --locked --config "target.'cfg(all())'.runner=['$PWD/tests/run.sh', '--program']" </dev/null &
wait "$!"

# suite NAME ARGUMENTS...: its lines with its name before them, and its exit code.
suite() {
    local name=$1 status=0 began=$SECONDS
    shift
    "$(cat "$PUT_ASIDE/$name")" "$@" 2>&1 </dev/null | sed -u "s/^/$name | /" || status=$?
    echo "$name | exit code $status after $((SECONDS - began)) s"
    return "$status"
}

# lane SHARE SUITES...: the suites one after the other, each also when one before it failed.
lane() {
    local share=$1 status=0
    shift
    for name in "$@"; do
        TEST_PORTS=$share suite "$name" --skip nightly:: --skip "$needs_release" || status=1
    done
    return "$status"
}

failed=()
echo "running side by side:$lanes"
pids=()
names=()
while read -ra suites; do
    lane "${#pids[@]}/3" "${suites[@]}" &
    pids+=("$!")
    names+=("${suites[*]}")
done < <(grep . <<<"$lanes")
for lane in "${!pids[@]}"; do wait "${pids[lane]}" || failed+=("of ${names[lane]}: see the exit codes"); done

if ! "$(cat "$PUT_ASIDE/daemon")" --list --exact "$needs_release" | grep ': test$' >/dev/null; then
    failed+=("no test is called $needs_release")
elif wait "$release"; then
    suite daemon --exact "$needs_release" &
    wait "$!" || failed+=("daemon ($needs_release)")
else
    cat "$PUT_ASIDE/release.log"
    failed+=("make release")
fi
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
