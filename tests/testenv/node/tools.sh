#!/bin/sh
# What a real node needs of this system: Linux, root, packages of Debian, and controllers of control groups.
#
#   tools.sh           install the packages of programs that are missing, with apt-get, and pass the controllers on
#   tools.sh --check   say in one line what is missing, and exit with 1; or print nothing
set -eu

PATH=$PATH:/usr/sbin:/sbin
groups=/sys/fs/cgroup

# Each program that is missing, with the package of Debian that has it. They are run, since a shell has a `kill` of its own.
missing_programs() {
    while read -r program package; do
        code=0
        env "$program" --version >/dev/null 2>&1 </dev/null || code=$?
        [ "$code" != 127 ] || echo "$program $package"
    done <<END
containerd containerd
ctr containerd
runc runc
/usr/lib/cni/loopback containernetworking-plugins
curl curl
ip iproute2
kill procps
mount mount
nsenter util-linux
setpriv util-linux
unshare util-linux
END
}

# The controllers that the pods of these tests use and that new groups do not have. In version 2 a group has those that its
# parent passes on; in version 1 each has a hierarchy.
missing_controllers() {
    for controller in cpu memory pids; do
        if [ -f $groups/cgroup.controllers ]; then
            grep -qw $controller $groups/cgroup.subtree_control || echo $controller
        else
            [ -f $groups/$controller/cgroup.procs ] || echo $controller
        fi
    done
}

# Only the root of the machine passes controllers on while it has processes. The root that a container sees is a group like
# others, which has a type, and its processes go into a group below it, as in Docker's script `dind`.
pass_controllers_on() {
    [ -f $groups/cgroup.controllers ] && [ -n "$(missing_controllers)" ] || return 0
    if [ -f $groups/cgroup.type ]; then
        mkdir -p $groups/init 2>/dev/null || return 0
        for process in $(cat $groups/cgroup.procs); do
            { echo "$process" >$groups/init/cgroup.procs; } 2>/dev/null || true # it may have ended
        done
    fi
    for controller in $(missing_controllers); do
        { echo "+$controller" >$groups/cgroup.subtree_control; } 2>/dev/null || true
    done
}

missing() {
    [ "$(uname -s)" = Linux ] || { printf Linux; return; }
    [ "$(id -u)" = 0 ] || { printf root; return; }
    missing_programs | cut -d ' ' -f 1
    # Root in a container often lacks these.
    unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child --mount-proc -- \
        sh -c 'mount --bind /etc /etc && ip link set lo up' 2>/dev/null || echo "the right to make namespaces"
    (: </dev/kmsg) 2>/dev/null || echo /dev/kmsg
    group=$groups/pids
    [ ! -f $groups/cgroup.controllers ] || group=$groups
    { mkdir "$group/ccm-test-$$" && rmdir "$group/ccm-test-$$"; } 2>/dev/null || echo "the right to make control groups"
    missing_controllers | sed 's/^/the controller /; s/$/ in new control groups/'
}

if [ "${1:-}" != --check ] && [ "$(id -u)" = 0 ]; then
    packages=$(missing_programs | cut -d ' ' -f 2 | sort -u)
    if [ -n "$packages" ] && command -v apt-get >/dev/null; then
        # Where systemd runs, it starts containerd, which the tests do not use. Docker's own package of containerd conflicts
        # with that of Debian, and stays.
        export DEBIAN_FRONTEND=noninteractive
        apt-get update --quiet=2 || true
        # shellcheck disable=SC2086 # a list
        apt-get install --quiet=2 --yes --no-remove --no-install-recommends $packages >/dev/null || true
    fi
    pass_controllers_on
fi
what=$(missing | paste -s -d , - | sed 's/,/, /g')
[ -z "$what" ] || { echo "a real node needs, and this machine lacks: $what; on Debian, as root, \`make node-tools\` installs packages and passes controllers on" >&2; exit 1; }
