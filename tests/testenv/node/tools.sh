#!/bin/sh
# What a real node needs of this system: Linux, root, and packages of Debian.
#
#   tools.sh           install the packages that are missing, with apt-get
#   tools.sh --check   say in one line what is missing, and exit with 1; or print nothing
set -eu

PATH=$PATH:/usr/sbin:/sbin
packages="containerd runc containernetworking-plugins iproute2 util-linux"

missing() {
    [ "$(uname -s)" = Linux ] || { printf Linux; return; }
    [ "$(id -u)" = 0 ] || { printf root; return; }
    for program in containerd ctr runc unshare setpriv mount ip; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
    [ -x /usr/lib/cni/loopback ] || printf '%s ' /usr/lib/cni/loopback
    # Root in a container often lacks these.
    unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child --mount-proc -- \
        sh -c 'mount --bind /etc /etc && ip link set lo up' 2>/dev/null || printf '%s ' "the right to make namespaces"
    group=/sys/fs/cgroup/pids
    [ ! -f /sys/fs/cgroup/cgroup.controllers ] || group=/sys/fs/cgroup
    { mkdir "$group/ccm-test-$$" && rmdir "$group/ccm-test-$$"; } 2>/dev/null || printf '%s ' "control groups"
}

if [ "${1:-}" != --check ] && [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Nothing is started by the packages: the tests start their own.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get update --quiet=2 || true
    # shellcheck disable=SC2086 # a list
    apt-get install --quiet=2 --yes --no-install-recommends $packages >/dev/null || true
fi
what=$(missing)
[ -z "$what" ] || { echo "a real node needs, and this machine lacks: ${what% }; on Debian, as root, \`make node-tools\` installs packages" >&2; exit 1; }
