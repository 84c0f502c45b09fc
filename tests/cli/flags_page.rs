//! `docs/flags.md`, generated from the definitions of the flags and from additional texts for the page.

use ccm::app::options::{self, FlagDefinition};
use clap::Arg;

const HEAD: &str = "# Flags

Written by `UPDATE_GOLDEN=1 cargo test --test cli` from the definitions of the flags; a test compares. `--help` prints the same list.

Flags have the Go program's names, groups and habits: words of a name may be joined by `_`, booleans stand alone or behind `=`
(`--leader-elect=false`), durations are Go's (`1h2m3s`, `1.5h`, `100ms`), `-v 2`, `-v=2`, `-v2` and `--v=2` are one thing. The last value of a
repeated flag counts. A list (type `NAMES`, `PATHS` and the like) is a line of comma separated values, in which double quotes keep commas together;
its first occurrence replaces the default, further ones add to it, and an empty one clears it. A flag that does not exist is refused with the nearest
one that does; all wrong values are reported together. Both end the process with exit code 1.

`-v=1` and more log every flag with its value at the start; `/flagz` and `/configz` on the secure port show them while the process runs.

`vsphere-cloud-controller-manager completion bash`, `completion zsh` and `completion fish` print a script that lets the shell complete flags.
";

const OURS: &str = "
Upstream exits on an unknown flag and ignores unknown variables. To be able to go back by changing only the image, use the
variables. The command line takes precedence over the variable; an empty variable is treated as unset. Upstream does not have all
flags of the groups above, either:

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
`CloudControllerManagerWatchBasedRoutesReconciliation=false` selects the period of [routes](routes.md). Any other name is accepted, including misspelled
ones, changes nothing, and is reported once, at the start.

| flag | why |
|---|---|
";

const DEPRECATED: &str = "
## Deprecated

They are not in `--help`. If one is given, the hint is printed on standard error.

| flag | the Go program's hint |
|---|---|
";

/// Texts that are longer on the page than in `--help`.
const MORE: &[(&str, &str)] = &[
    ("cloud-config", "path of [vsphere.conf](configuration.md), INI or YAML; needed"),
    ("cloud-provider", "`vsphere` is the only one that is built; `vsphere-paravirtual` is known"),
    (
        "controllers",
        "`*` is all that are on by default, `name` turns one on, `-name` turns it off; the first entry for a name \
         takes precedence. Names: `cloud-node-controller` (`cloud-node`), `cloud-node-lifecycle-controller` \
         (`cloud-node-lifecycle`), `node-route-controller` (`route`), `service-lb-controller` (`service`). The last \
         two are idle while they are not configured",
    ),
    (
        "controller-start-interval",
        "delay between the starts of two controllers, once this process leads: at least this long, less than twice \
         as long",
    ),
    (
        "kube-api-qps",
        "writes per second; without this flag and `--kube-api-burst` there is no limit; 20 if only the burst is \
         given; 0 or less: no limit",
    ),
    ("kube-api-burst", "burst of writes above `--kube-api-qps`; 30 if only the rate is given"),
    (
        "leader-elect-lease-duration",
        "how long other processes wait after the last renewal before one of them takes over; at least 1s and more \
         than the renew deadline",
    ),
    (
        "leader-elect-renew-deadline",
        "how long the leader tries to renew the Lease before it stops leading; more than 1.2 retry periods",
    ),
    ("concurrent-node-syncs", "Nodes that are synced at the same time; at least 1, at most 4096"),
    (
        "node-labels",
        "labels that a Node gets when it is initialized, `key=value,…`; all values of a repeated flag are used, and \
         the last value of a key takes precedence. Existing labels stay unchanged. Names below `kubernetes.io` and \
         `k8s.io` are logged and left out",
    ),
    ("node-monitor-period", "how often Nodes that are not Ready are checked, in addition to watch events; at least 1s"),
    ("node-status-update-frequency", "how often every Node is synced, in addition to watch events; at least 1s"),
    (
        "version",
        "print the version and exit: alone, with `true` or with `raw`; `vX.Y.Z` is printed instead of it; `false` runs",
    ),
    (
        "adopt-untainted-nodes",
        "also initialize Nodes that have neither provider ID nor the taint \
         `node.cloudprovider.kubernetes.io/uninitialized`, if exactly one VM has their `systemUUID`",
    ),
    (
        "allow-name-match",
        "accept a VM that was found only by its name even if its UUID differs from the Node's or it backs another \
         Node, as the Go program does",
    ),
    (
        "demote-virtual-ips",
        "an address that several running VMs of Nodes report, or that is the API server's, is used only if the VM \
         has no other address of that family; `false` is the Go program's order. The API server's addresses are \
         those of its URL at the start",
    ),
    (
        "instance-type",
        "`init` keeps the instance type from initialization and logs once that the VM has another; `follow` updates it",
    ),
    (
        "node-deletion",
        "action for a Node that is Ready=Unknown and whose VM is confirmed deleted: `enforce` deletes it, `dry-run` \
         reports what would be deleted, `off` does neither. The variable `SKIP_NODE_DELETION`, with any value, is \
         `off`",
    ),
    (
        "node-deletion-grace",
        "how long a Node must be Ready=Unknown, and its VM confirmed deleted, before the Node is deleted",
    ),
    (
        "node-deletion-limit",
        "how many Nodes may be deleted: the larger of a number and a percentage of all nodes (rounded down), as an \
         allowance that fills again within the time, at least 1s",
    ),
    (
        "node-deletion-mass-hold",
        "how long no Node is deleted after the VMs of more than the larger of 5 Nodes and 20 % disappear at the same \
         time",
    ),
    (
        "node-deletion-unseen",
        "a Node whose VM this program never saw, and that has no record of a VM: `hold` keeps it, `enforce` treats \
         it like the others",
    ),
    (
        "node-labels-on",
        "`join` sets the labels of `--node-labels` on a Node when it is initialized, as upstream; `all` also adds \
         those whose key an initialized Node does not have, to at most 10 Nodes a second, and again when they are \
         removed. No value is ever changed. The leader logs how many initialized Nodes lack labels",
    ),
    (
        "node-selector",
        "label selector of the Nodes to manage, for clusters whose Nodes are not all on vSphere; empty: all",
    ),
    (
        "out-of-service-after",
        "a Node gets the taint `node.kubernetes.io/out-of-service` once it has been Ready=Unknown and its VM powered \
         off for this long, at least 1s; empty or `0`: never",
    ),
    (
        "session-manager-hosts",
        "allowed hosts of session managers: names and IP addresses without port, separated by commas; they can receive \
         the token of the service account; empty: any",
    ),
    (
        "session-manager-token-file",
        "file with the token for session managers without a token of their own, such as a projected token with its \
         own audience; empty: the token of the service account",
    ),
    (
        "standby",
        "while another process leads: `warm` keeps the vCenter sessions and the inventory, so that a take-over needs \
         no login; `cold` has no session until it leads, and logs out when it stops leading",
    ),
    ("tag-poll-interval", "how often the tags of vCenter are read; at least 1s"),
    (
        "topology-label-prefix",
        "prefix of the names of these labels: a DNS name and a slash, not below `kubernetes.io` or `k8s.io`",
    ),
    (
        "topology-labels",
        "labels with the location of a Node's VM, which follow its changes: `vcenter`, `datacenter`, `cluster`, \
         `esxi-host`, `resource-pool`, `folder`, `datastore`, separated by commas",
    ),
    (
        "trust-guest-interfaces",
        "accept the node IP of a kubelet (`--node-ip`, as the annotation `alpha.kubernetes.io/provided-node-ip` has \
         it) that VMware Tools reports on an interface without a virtual NIC, such as a bond or one whose MAC \
         address is set in the guest; neither report is sufficient alone",
    ),
    (
        "zone-labels",
        "`init` keeps zone and region from initialization, as upstream, and logs once that the VM is elsewhere: \
         volumes are bound to zones; `fill` also adds them to initialized Nodes that have neither; `follow` updates \
         them",
    ),
];

/// Returns the page.
pub fn page() -> String {
    let command = options::command();
    let mut flags: Vec<_> = command.get_arguments().filter(|flag| !flag.is_hide_set()).collect();
    let definitions = options::definitions_by_group();
    let mut groups = Vec::new();
    for FlagDefinition { group, .. } in definitions.iter().filter(|flag| flag.deprecated.is_none()) {
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
    flags.sort_by_key(|flag| flag.get_id().as_str());
    for (name, _) in MORE {
        assert!(flags.iter().any(|flag| flag.get_long() == Some(name)), "{name} is no flag");
    }
    let mut page = HEAD.to_owned();
    for group in groups {
        let is_inside = |flag: &&&Arg| {
            definitions.iter().any(|definition| definition.group == group && Some(definition.name) == flag.get_long())
        };
        let flags: Vec<_> = flags.iter().filter(is_inside).copied().collect();
        page += &section(group, &flags);
    }
    let noted = |note: fn(&FlagDefinition) -> Option<&str>| -> String {
        let flags = options::definitions();
        flags.iter().filter_map(|flag| Some(format!("| `--{}` | {} |\n", flag.name, note(flag)?))).collect()
    };
    page += WITHOUT_EFFECT;
    page += &noted(|flag| flag.without_effect);
    page += DEPRECATED;
    page += &noted(|flag| flag.deprecated);
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
