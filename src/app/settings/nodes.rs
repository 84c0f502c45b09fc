//! Flags of Nodes: their labels, and the handling of Nodes whose VM is gone or powered off.

use super::{SettingsCheck, flags};
use crate::base::go_duration::{self, parse_duration};
use crate::base::go_flags::fields;
use crate::base::names::{is_dns_name, is_label_key, is_label_value};
use crate::cloud::node::is_reserved_label;
use crate::controllers::node::{self, LabelMode, NodeLabelsOn};
use crate::controllers::node_lifecycle::{self, DeletionMode, Limit};
use crate::providers::vsphere::nodes::metadata::topology::{TopologyLabels, TopologyPlace};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl SettingsCheck<'_> {
    /// Returns the settings of the node controller. `topology_labels` are the labels that the provider sets.
    pub(super) fn nodes(&mut self, topology_labels: BTreeSet<String>) -> node::NodeSettings {
        let workers = self.workers(flags::CONCURRENT_NODE_SYNCS);
        let period = self.pause(flags::NODE_STATUS_UPDATE_FREQUENCY);
        let node_labels = self.node_labels();
        let [init, follow] = [("init", LabelMode::Init), ("follow", LabelMode::Follow)];
        let zone_labels =
            self.choice(flags::ZONE_LABELS, &[init, ("fill", LabelMode::Fill), follow], "init, fill or follow");
        let instance_type = self.choice(flags::INSTANCE_TYPE, &[init, follow], "init or follow");
        let choices = [("join", NodeLabelsOn::Join), ("all", NodeLabelsOn::All)];
        let node_labels_on = self.choice(flags::NODE_LABELS_ON, &choices, "join or all").unwrap_or_default();
        let policy = node::Policy {
            node_labels,
            topology_labels,
            node_labels_on,
            zone_labels: zone_labels.unwrap_or_default(),
            instance_type: instance_type.unwrap_or_default(),
            adopts_untainted_nodes: self.boolean(flags::ADOPT_UNTAINTED_NODES),
            ..node::Policy::default()
        };
        node::NodeSettings { workers, period, policy }
    }

    /// Returns the labels of `--node-labels`. Reports and omits invalid labels.
    fn node_labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for value in self.options.list(flags::NODE_LABELS) {
            let pairs = match pairs(value) {
                Ok(pairs) => pairs,
                Err(part) => {
                    let reason = "is not key=value; expected key=value, several of them separated by commas";
                    self.invalid(flags::NODE_LABELS, value, format!("{part:?} {reason}"));
                    continue;
                }
            };
            for (key, label) in pairs {
                if !is_label_key(&key) {
                    let why = "is no name of a label; expected letters, digits, -, _ and ., such as example.com/pool";
                    self.invalid(flags::NODE_LABELS, value, format!("{key:?} {why}"));
                } else if !is_label_value(&label) {
                    let why = "is no value of a label; expected at most 63 letters, digits, -, _ and .";
                    self.invalid(flags::NODE_LABELS, value, format!("{label:?} {why}"));
                } else {
                    labels.insert(key, label);
                }
            }
        }
        labels
    }

    pub(super) fn node_lifecycle(&mut self) -> node_lifecycle::LifecycleSettings {
        node_lifecycle::LifecycleSettings {
            period: self.pause(flags::NODE_MONITOR_PERIOD),
            deletion: self.deletion(),
            grace: self.duration(flags::NODE_DELETION_GRACE).unwrap_or_default(),
            limit: self.limit(),
            mass_hold: self.duration(flags::NODE_DELETION_MASS_HOLD).unwrap_or_default(),
            out_of_service_after: self.out_of_service_after(),
        }
    }

    /// Returns the mode of Node deletion. The Go program's environment variable `SKIP_NODE_DELETION` overrides
    /// `--node-deletion`.
    fn deletion(&mut self) -> DeletionMode {
        let off = DeletionMode::Off { reason: "--node-deletion=off" };
        let choices = [("enforce", DeletionMode::Enforce), ("dry-run", DeletionMode::DryRun), ("off", off)];
        let deletion = self.choice(flags::NODE_DELETION, &choices, "enforce, dry-run or off");
        match self.environment.skips_node_deletion() {
            true => DeletionMode::Off { reason: "SKIP_NODE_DELETION is set" },
            false => deletion.unwrap_or(DeletionMode::DryRun),
        }
    }

    fn limit(&mut self) -> Limit {
        let flag = flags::NODE_DELETION_LIMIT;
        let value = self.options.text(flag);
        let limit = limit(value);
        match limit {
            None => {
                let expected = "expected a number of nodes, a percentage of all and a time, such as 5,10%,10m";
                self.invalid(flag, value, expected);
            }
            Some(Limit { window, .. }) if window < Duration::from_secs(1) => {
                self.invalid(flag, value, format!("{}: expected at least 1s", go_duration::spelled(window)));
            }
            Some(Limit { nodes: 0, percent: 0, .. }) => {
                self.invalid(flag, value, "it allows none; expected a node or 1% at least, or --node-deletion=off");
            }
            Some(_) => {}
        }
        limit.unwrap_or(Limit { nodes: 0, percent: 0, window: Duration::MAX })
    }

    fn out_of_service_after(&mut self) -> Option<Duration> {
        let flag = flags::OUT_OF_SERVICE_AFTER;
        let value = self.optional(flag)?;
        let after = self.duration(flag).filter(|after| !after.is_zero())?;
        if after < Duration::from_secs(1) {
            self.invalid(flag, value, "expected at least 1s, or 0 for never");
        }
        Some(after)
    }

    pub(super) fn topology(&mut self) -> TopologyLabels {
        let prefix = self.options.text(flags::TOPOLOGY_LABEL_PREFIX);
        let is_prefix = prefix.strip_suffix('/').is_some_and(is_dns_name) && !is_reserved_label(prefix);
        if !is_prefix {
            let expected =
                "expected a DNS name and a slash such as topology.example.com/, not below kubernetes.io or k8s.io";
            self.invalid(flags::TOPOLOGY_LABEL_PREFIX, prefix, expected);
        }
        let words = self.items(flags::TOPOLOGY_LABELS);
        let place = |word: &str| {
            let place = TopologyPlace::ALL.into_iter().find(|place| place.word() == word);
            if place.is_none() {
                let expected = "expected vcenter, datacenter, cluster, esxi-host, resource-pool, folder or datastore";
                self.invalid(flags::TOPOLOGY_LABELS, word, expected);
            }
            place
        };
        TopologyLabels { objects: words.filter_map(place).collect(), prefix: prefix.to_owned() }
    }
}

/// Parses `a=b,c=d`. A text with one `=` is a single pair, whose value can contain commas. Any other text is a CSV
/// line: double quotes protect commas, and `""` is a quote.
///
/// # Errors
/// The first part that is not a pair.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    // A block scalar of YAML ends with a line break.
    let text = text.trim_end_matches(['\r', '\n']);
    let parts = match text.matches('=').count() {
        1 => vec![text.trim_matches('"').to_owned()],
        _ => fields(text),
    };
    let pair = |part: String| match part.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(part),
    };
    parts.into_iter().map(pair).collect()
}

/// Parses `NODES,PERCENT%,WINDOW`. Returns `None` for an invalid text.
fn limit(text: &str) -> Option<Limit> {
    let mut parts = text.split(',').map(str::trim);
    let nodes = parts.next()?;
    let percent = parts.next()?;
    let window = parts.next()?;
    let percent = percent.strip_suffix('%')?.parse().ok().filter(|percent| *percent <= 100)?;
    let limit = Limit { nodes: nodes.parse().ok()?, percent, window: parse_duration(window).ok()? };
    parts.next().is_none().then_some(limit)
}

#[cfg(test)]
mod tests;
