//! `docs/flags.md`, generated from the definitions of the flags and from additional texts for the page.

use ccm::app::options::{self, FlagDefinition};
use clap::Arg;

const HEAD: &str = "# Flags

Written by `UPDATE_GOLDEN=1 cargo test --test cli` from the definitions of the flags; a test compares. `--help` prints the same list.

Flags have the Go program's names, groups and habits: words of a name may be joined by `_`, booleans stand alone or behind `=`
(`--leader-elect=false`), durations are Go's (`1h2m3s`, `1.5h`, `100ms`), `-v 2`, `-v=2`, `-v2` and `--v=2` are one thing. The last value of a
repeated flag counts. A list (type `NAMES`, `PATHS` and the like) is a line of comma separated values, in which double quotes keep commas together;
its first occurrence replaces the default, further ones add to it, and an empty one clears it. A flag that does not exist is refused with the nearest
one that does; all wrong values are told at once. Both end the process with exit code 1.

`-v=1` and more log every flag with its value at the start; `/flagz` and `/configz` on the secure port show them while the process runs.

`vsphere-cloud-controller-manager completion bash`, `completion zsh` and `completion fish` print a script that lets the shell complete flags.
";

const OURS: &str = "
It exits on a flag it does not know and ignores variables it does not know. Whoever wants to be able to go back by changing the image alone uses the
variables. The command line goes before the variable; an empty variable counts as none. Some flags of the groups above are missing in it, too:

| flag | upstream has it |
|---|---|
| `--logging-format`, `--log-json-split-stream`, `--log-text-split-stream`, `--log-json-info-buffer-size`, `--log-text-info-buffer-size` | in no release: the upstream program for vSphere builds its own command, with `--v`, `--vmodule` and `--log-flush-frequency` only |
| `--node-labels` | from 1.35 on |
| `--concurrent-node-status-updates`, `--requestheader-uid-headers`, `--tls-curve-preferences`, `--webhook-disable-http2-serving`, `--webhook-tls-*` other than certificate and key | from 1.36 on |
";

const WITHOUT_EFFECT: &str = "
## Accepted without effect

These change nothing; the values of most are checked. A value other than the default is reported once, at the start. Of the feature gates,
`LoggingAlphaOptions` (or `AllAlpha`) unlocks the `--log-*-split-stream` and `--log-*-info-buffer-size` flags, and
`CloudControllerManagerWatchBasedRoutesReconciliation=false` selects the period of [routes](routes.md). Any other name is accepted, misspelled ones
too, changes nothing, and is reported once, at the start.

| flag | why |
|---|---|
";

const DEPRECATED: &str = "
## Deprecated

Not in `--help`. Whoever gives one is told on standard error.

| flag | the Go program's hint |
|---|---|
";

/// Texts that are longer on the page than in `--help`.
const MORE: &[(&str, &str)] = &[
    ("cloud-config", "path of [vsphere.conf](configuration.md), INI or YAML; needed"),
    ("cloud-provider", "`vsphere` is the only one that is built; `vsphere-paravirtual` is known"),
    (
        "controllers",
        "`*` is all that are on by default, `name` turns one on, `-name` turns it off; the first mention of a name wins. Names: \
         `cloud-node-controller` (`cloud-node`), `cloud-node-lifecycle-controller` (`cloud-node-lifecycle`), \
         `node-route-controller` (`route`), `service-lb-controller` (`service`). The last two \
         idle while nothing is configured for them",
    ),
    (
        "controller-start-interval",
        "pause between the starts of two controllers, once this process leads: at least this long, less than twice as long",
    ),
    (
        "kube-api-qps",
        "writes per second; no limit without this flag and the next, 20 when only the burst is given; 0 or less is no limit",
    ),
    ("kube-api-burst", "writes that may follow each other at once; 30 when only the rate is given"),
    (
        "leader-elect-lease-duration",
        "how long others wait after the last renewal they saw; at least 1s and more than the renew deadline",
    ),
    ("leader-elect-renew-deadline", "how long a leader tries to renew; more than 1.2 retry periods"),
    ("concurrent-node-syncs", "nodes worked on at the same time; at least 1, at most 4096"),
    (
        "node-labels",
        "labels that a node gets when it is initialised, `key=value,…`; of a repeated flag all count, the last value of a key wins. \
         A label that the node has already stays as it is. Names below `kubernetes.io` and `k8s.io` are logged and left out",
    ),
    ("node-monitor-period", "pause between two looks at every node that is not ready, beside the events; at least 1s"),
    ("node-status-update-frequency", "pause between two looks at every node, beside the events; at least 1s"),
    (
        "version",
        "print the version and exit: alone, with `true` or with `raw`; `vX.Y.Z` is printed instead of it; `false` runs",
    ),
    (
        "adopt-untainted-nodes",
        "initialise also nodes that have neither provider ID nor the taint `node.cloudprovider.kubernetes.io/uninitialized`, if \
         exactly one VM has their `systemUUID`",
    ),
    (
        "allow-name-match",
        "take a VM found by its name alone even if its UUID contradicts the node's or it backs another node, as the Go program does",
    ),
    (
        "demote-virtual-ips",
        "an address that several running VMs of nodes report, or that is the API server's, becomes a node's only if the VM has no \
         other of that family; `false` is the Go program's order. The API server's addresses are those of its URL at the start",
    ),
    (
        "instance-type",
        "`init` leaves the instance type as it was at initialisation and tells once that the VM has another; `follow` writes it",
    ),
    (
        "node-deletion",
        "what becomes of a Node with Ready=Unknown whose VM is proved to be gone: `enforce` deletes it, `dry-run` tells what would be \
         deleted, `off` does neither. The variable `SKIP_NODE_DELETION`, with any value, is `off`",
    ),
    ("node-deletion-grace", "how long both have to hold, Ready=Unknown and gone, before the Node is deleted"),
    (
        "node-deletion-limit",
        "how many Nodes may be deleted: the larger of a number and a percentage of all nodes (rounded down), as an allowance that \
         fills again within the time, at least 1s",
    ),
    (
        "node-deletion-mass-hold",
        "how long nothing is deleted when more than the larger of 5 nodes and 20 % are gone at once",
    ),
    (
        "node-deletion-unseen",
        "a Node whose VM this program never saw, and that does not record one: `hold` keeps it, `enforce` treats it like the others",
    ),
    (
        "node-labels-on",
        "`join` sets the labels of `--node-labels` on a Node when it is initialised, as upstream; `all` also adds those whose key an initialised Node does not have, to at most 10 Nodes a second, and again when they are removed. No value is ever changed. The leader logs how many initialised Nodes lack labels",
    ),
    (
        "node-selector",
        "label selector of the nodes to look after, for clusters whose nodes are not all on vSphere; all without it",
    ),
    (
        "out-of-service-after",
        "a node gets the taint `node.kubernetes.io/out-of-service` once it has been Ready=Unknown and its VM powered off for this \
         long, at least 1s; empty or `0` is never",
    ),
    (
        "session-manager-hosts",
        "hosts of session managers that are allowed: names and IP addresses without port, separated by commas; they can receive \
         the service account's token; empty is any",
    ),
    (
        "session-manager-token-file",
        "file with the token for session managers that are given no other, such as a projected token with an audience of its own; \
         empty is that of the service account",
    ),
    (
        "standby",
        "while another process leads: `warm` keeps the vCenter sessions and the inventory, so that a take-over needs no login; \
         `cold` has no session until it leads, and logs out when it does not lead any more",
    ),
    ("tag-poll-interval", "pause between two looks at the tags of vCenter; at least 1s"),
    (
        "topology-label-prefix",
        "what the names of these labels begin with: a DNS name and a slash, not below `kubernetes.io` or `k8s.io`",
    ),
    (
        "topology-labels",
        "labels that say where a node's VM is and follow it: `vcenter`, `datacenter`, `cluster`, `esxi-host`, `resource-pool`, \
         `folder`, `datastore`, separated by commas",
    ),
    (
        "trust-guest-interfaces",
        "believe the node IP of a kubelet (`--node-ip`, as the annotation `alpha.kubernetes.io/provided-node-ip` has it) that VMware Tools reports on an interface without a virtual NIC, such as a bond or one whose MAC address is set in the guest; neither is believed alone",
    ),
    (
        "zone-labels",
        "`init` leaves zone and region as they were at initialisation, as upstream, and tells once that the VM is elsewhere: volumes \
         are bound to zones; `fill` also adds them to initialised nodes that have neither; `follow` writes them",
    ),
];

/// Returns the page.
pub fn page() -> String {
    let command = options::command();
    let mut flags: Vec<_> = command.get_arguments().filter(|flag| !flag.is_hide_set()).collect();
    let mut groups = Vec::new();
    for flag in &flags {
        let group = flag.get_help_heading().unwrap();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    flags.sort_by_key(|flag| flag.get_id().as_str());
    for (name, _) in MORE {
        assert!(flags.iter().any(|flag| flag.get_long() == Some(name)), "{name} is no flag");
    }
    let mut page = HEAD.to_owned();
    for group in groups {
        let flags: Vec<_> = flags.iter().copied().filter(|flag| flag.get_help_heading() == Some(group)).collect();
        page += &section(group, &flags);
    }
    let told_of = |note: fn(&FlagDefinition) -> Option<&str>| -> String {
        let flags = options::definitions();
        flags.iter().filter_map(|flag| Some(format!("| `--{}` | {} |\n", flag.name, note(flag)?))).collect()
    };
    page += WITHOUT_EFFECT;
    page += &told_of(|flag| flag.without_effect);
    page += DEPRECATED;
    page += &told_of(|flag| flag.deprecated);
    page
}

fn section(group: &str, flags: &[&Arg]) -> String {
    let is_ours = flags.iter().any(|flag| flag.get_env().is_some());
    let title = group.split(" (").next().unwrap();
    let text = if is_ours { OURS } else { "" };
    let (names, rule) = match is_ours {
        true => ("| flag | variable | type | default | meaning |", "|---|---|---|---|---|"),
        false => ("| flag | type | default | meaning |", "|---|---|---|---|"),
    };
    let rows: String = flags.iter().map(|flag| row(flag)).collect();
    format!("\n## {title}\n{text}\n{names}\n{rule}\n{rows}")
}

fn row(flag: &Arg) -> String {
    let name = flag.get_long().unwrap();
    let short = flag.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();
    let variable = flag.get_env().map(|variable| format!(" `{}` |", variable.to_str().unwrap())).unwrap_or_default();
    let kind = flag.get_value_names().filter(|_| flag.get_action().takes_values());
    let kind = kind.map(|names| format!(" `{}`", names[0])).unwrap_or_default();
    let defaults: Vec<_> = flag.get_default_values().iter().map(|value| value.to_str().unwrap()).collect();
    let default = defaults.join(",");
    let default = if default.is_empty() { String::new() } else { format!(" `{default}`") };
    let more = MORE.iter().find(|(flag, _)| *flag == name).map(|(_, text)| (*text).to_owned());
    let help = || flag.get_help().map(ToString::to_string).unwrap_or_default();
    let meaning = more.unwrap_or_else(help).replace('|', "\\|");
    format!("| `--{name}`{short} |{variable}{kind} |{default} | {meaning} |\n")
}
