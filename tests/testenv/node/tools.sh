#!/bin/sh
# What a real node needs of this system: Linux, root, and packages of Debian.
#
#   tools.sh           install the packages that are missing, with apt-get
#   tools.sh --check   say in one line what is missing, and exit with 1; or print nothing
set -eu

PATH=$PATH:/usr/sbin:/sbin
packages="containerd runc containernetworking-plugins iproute2 util-linux"

missing() {
    [ "$(uname -s)" = Linux ] || { echo "Linux"; return; }
    [ "$(id -u)" = 0 ] || { echo "root"; return; }
    for program in containerd ctr runc unshare mount ip; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
    [ -x /usr/lib/cni/loopback ] || echo "/usr/lib/cni/loopback"
}

if [ "${1:-}" != --check ] && [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Nothing is started by the packages: the tests start their own.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get update --quiet=2 || true
    # shellcheck disable=SC2086 # a list
    apt-get install --quiet=2 --yes --no-install-recommends $packages >/dev/null || true
fi
what=$(missing)
[ -z "$what" ] || { echo "a real node needs $what (Debian: $packages): make node-tools" >&2; exit 1; }
