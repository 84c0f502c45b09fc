//! The flags about nodes: what they are to look like, and what becomes of those whose machine is gone or off.

use super::{Check, node_labels};
use crate::base::go_duration::{self, parse_duration};
use crate::base::names::{is_dns_name, is_label_key, is_label_value};
use crate::cloud::node::is_reserved_label;
use crate::controllers::node::{self, LabelMode};
use crate::controllers::node_lifecycle::{self, Deletion, Limit};
use crate::providers::vsphere::topology::{Place, TopologyLabels};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the provider goes by, besides `vsphere.conf`, when it says something about a node. It does not change while the
/// process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRules {
    /// `--topology-labels` and `--topology-label-prefix`.
    pub topology: TopologyLabels,
    /// `--demote-virtual-ips`: whether an address of several machines, or of the API server, is taken only when there
    /// is no other.
    pub demotes_virtual_ips: bool,
    /// `--node-deletion-unseen=enforce`: whether a machine that was never seen may be called absent.
    pub trusts_unseen: bool,
}

impl Check<'_> {
    pub(super) fn nodes(&mut self) -> Option<node::Settings> {
        let workers = self.workers("concurrent-node-syncs");
        let period = self.pause("node-status-update-frequency");
        let node_labels = self.node_labels();
        let [init, follow] = [("init", LabelMode::Init), ("follow", LabelMode::Follow)];
        let zone_labels =
            self.choice("zone-labels", &[init, ("fill", LabelMode::Fill), follow], "init, fill or follow");
        let instance_type = self.choice("instance-type", &[init, follow], "init or follow");
        let adopts = self.boolean("adopt-untainted-nodes");
        let policy = node::Policy {
            node_labels,
            zone_labels: zone_labels?,
            instance_type: instance_type?,
            adopts_untainted_nodes: adopts?,
            ..node::Policy::default()
        };
        Some(node::Settings { workers: workers?, period: period?, policy })
    }

    /// What does not read as labels is told and left out.
    fn node_labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for value in self.options.list("node-labels") {
            let pairs = match node_labels::pairs(value) {
                Ok(pairs) => pairs,
                Err(wrong) => {
                    self.wrong::<()>("node-labels", value, wrong.to_string());
                    continue;
                }
            };
            for (key, label) in pairs {
                if !is_label_key(&key) {
                    let why = "is no name of a label; expected letters, digits, -, _ and ., such as example.com/pool";
                    self.wrong::<()>("node-labels", value, format!("{key:?} {why}"));
                } else if !is_label_value(&label) {
                    let why = "is no value of a label; expected at most 63 letters, digits, -, _ and .";
                    self.wrong::<()>("node-labels", value, format!("{label:?} {why}"));
                } else {
                    labels.insert(key, label);
                }
            }
        }
        labels
    }

    pub(super) fn node_lifecycle(&mut self) -> Option<node_lifecycle::Settings> {
        let period = self.pause("node-monitor-period");
        let deletion = self.deletion();
        let grace = self.duration("node-deletion-grace");
        let limit = self.limit();
        let mass_hold = self.duration("node-deletion-mass-hold");
        let out_of_service_after = self.out_of_service_after();
        Some(node_lifecycle::Settings {
            period: period?,
            deletion: deletion?,
            grace: grace?,
            limit: limit?,
            mass_hold: mass_hold?,
            out_of_service_after: out_of_service_after?,
        })
    }

    /// The variable of the Go program says no, whatever the flag says.
    fn deletion(&mut self) -> Option<Deletion> {
        let off = Deletion::Off { because: "--node-deletion=off" };
        let choices = [("enforce", Deletion::Enforce), ("dry-run", Deletion::DryRun), ("off", off)];
        let deletion = self.choice("node-deletion", &choices, "enforce, dry-run or off")?;
        Some(match self.environment.skips_node_deletion() {
            true => Deletion::Off { because: "SKIP_NODE_DELETION is set" },
            false => deletion,
        })
    }

    fn limit(&mut self) -> Option<Limit> {
        const FLAG: &str = "node-deletion-limit";
        let value = self.options.text(FLAG);
        let Some(limit) = limit(value) else {
            let expected = "expected a number of nodes, a percentage of all and a time, such as 5,10%,10m";
            return self.wrong(FLAG, value, expected);
        };
        if limit.window < Duration::from_secs(1) {
            return self.wrong(FLAG, value, format!("{}: expected at least 1s", go_duration::spelled(limit.window)));
        }
        if (limit.nodes, limit.percent) == (0, 0) {
            return self.wrong(FLAG, value, "it allows none; expected a node or 1% at least, or --node-deletion=off");
        }
        Some(limit)
    }

    fn out_of_service_after(&mut self) -> Option<Option<Duration>> {
        const FLAG: &str = "out-of-service-after";
        let Some(value) = self.optional(FLAG) else { return Some(None) };
        match self.duration(FLAG)? {
            Duration::ZERO => Some(None),
            after if after < Duration::from_secs(1) => self.wrong(FLAG, value, "expected at least 1s, or 0 for never"),
            after => Some(Some(after)),
        }
    }

    pub(super) fn node_rules(&mut self) -> Option<NodeRules> {
        let topology = self.topology();
        let demotes = self.boolean("demote-virtual-ips");
        let choices = [("hold", false), ("enforce", true)];
        let trusts_unseen = self.choice("node-deletion-unseen", &choices, "hold or enforce");
        Some(NodeRules { topology: topology?, demotes_virtual_ips: demotes?, trusts_unseen: trusts_unseen? })
    }

    fn topology(&mut self) -> Option<TopologyLabels> {
        let prefix = self.options.text("topology-label-prefix");
        let is_prefix = prefix.strip_suffix('/').is_some_and(is_dns_name) && !is_reserved_label(prefix);
        if !is_prefix {
            let expected =
                "expected a DNS name and a slash such as topology.example.com/, not below kubernetes.io or k8s.io";
            self.wrong::<()>("topology-label-prefix", prefix, expected);
        }
        let words = self.options.list("topology-labels").iter().map(|word| word.trim()).filter(|word| !word.is_empty());
        let read = |word: &str| word.parse::<Place>().map_err(|unknown| (word.to_owned(), unknown.to_string()));
        let (places, wrong): (Vec<_>, Vec<_>) = words.map(read).partition(Result::is_ok);
        for (word, expected) in wrong.into_iter().filter_map(Result::err) {
            self.wrong::<()>("topology-labels", &word, expected);
        }
        Some(TopologyLabels { places: places.into_iter().flatten().collect(), prefix: prefix.to_owned() })
    }
}

/// `NODES,PERCENT%,WINDOW`; nothing when it does not read so.
fn limit(text: &str) -> Option<Limit> {
    let mut parts = text.split(',').map(str::trim);
    let (nodes, percent, window) = (parts.next()?, parts.next()?, parts.next()?);
    let percent = percent.strip_suffix('%')?.parse().ok().filter(|percent| *percent <= 100)?;
    let limit = Limit { nodes: nodes.parse().ok()?, percent, window: parse_duration(window).ok()? };
    parts.next().is_none().then_some(limit)
}

#[cfg(test)]
mod tests;
