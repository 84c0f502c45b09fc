//! Pure: the desired labels of a Node, and the labels that stay although the cloud has other values.

use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cloud::node::{self, INSTANCE_TYPE, LabelPair, REGION, ZONE};
use crate::cloud::{InstanceMetadata, Reason};
use crate::controllers::node::reason;
use crate::controllers::node::{LabelMode, NodeLabelsOn, Policy};

/// Labels to change: the new value, or `None` to remove the label.
pub type LabelChanges = BTreeMap<String, Option<String>>;

type Labels = BTreeMap<String, String>;

/// A label that stays although the cloud has another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The current label key, not the legacy key.
    pub label: &'static str,
    /// The reason for metrics and Events.
    pub reason: Reason,
    /// The Node's value.
    pub present: String,
    /// The cloud's value.
    pub cloud: String,
}

impl Difference {
    /// Describes the difference for users, and names the flag that makes the label follow the cloud.
    pub fn describe(&self) -> String {
        let Self { label, reason, present, cloud } = self;
        let flag = if *reason == reason::ZoneLabelsDiffer { "--zone-labels" } else { "--instance-type" };
        format!("label {label} stays {present:?} though the cloud says {cloud:?}; {flag}=follow would change it")
    }
}

/// Returns the labels to change on a Node that is being initialized, and messages about labels that are not set.
///
/// Instance type, zone, region and topology labels of the cloud overwrite existing labels. The provider's additional
/// labels and `--node-labels` apply only if the Node lacks the key.
pub fn at_initialization(node: &Node, metadata: &InstanceMetadata, policy: &Policy) -> (LabelChanges, Vec<String>) {
    let mut wanted = labels_of(node);
    for CloudLabel { pair, value, .. } in cloud_labels(metadata, policy) {
        if !value.is_empty() {
            set(&mut wanted, pair, value);
        }
    }
    set_topology(&mut wanted, metadata);
    let mut notes = Vec::new();
    for (key, value) in metadata.additional_labels.iter().chain(&policy.node_labels) {
        if node::is_reserved_label(key) {
            notes.push(format!("label {key} is not set, because its prefix is reserved for Kubernetes"));
        } else if metadata.topology_labels.contains_key(key) {
            notes.push(format!("label {key} does not become {value:?}, because it records the location of the VM"));
        } else if let Some(present) = wanted.get(key).filter(|present| *present != value) {
            notes.push(format!("label {key} stays {present:?} and does not become {value:?}"));
        } else {
            wanted.insert(key.clone(), value.clone());
        }
    }
    (changes(node, wanted), notes)
}

/// Returns the labels to change on an initialized Node, and the labels that stay although the cloud has other values.
pub fn on_refresh(node: &Node, metadata: &InstanceMetadata, policy: &Policy) -> (LabelChanges, Vec<Difference>) {
    let mut wanted = labels_of(node);
    let mut differences = Vec::new();
    for CloudLabel { pair, value, mode, reason } in cloud_labels(metadata, policy) {
        if value.is_empty() {
            continue;
        }
        // If the Node has both labels, the legacy label takes precedence.
        let present = node::label(node, pair.legacy).or_else(|| node::label(node, pair.current));
        match present {
            _ if mode == LabelMode::Follow => set(&mut wanted, pair, value),
            None if mode == LabelMode::Fill => set(&mut wanted, pair, value),
            None => {}
            Some(present) if present == value => {}
            Some(present) if reason == reason::InstanceTypeDiffers && is_of_older_table(present, value) => {}
            // The label stays. Volumes, for example, are pinned to zones.
            Some(present) => differences.push(Difference {
                label: pair.current,
                reason,
                present: present.to_owned(),
                cloud: value.to_owned(),
            }),
        }
    }
    set_topology(&mut wanted, metadata);
    (changes(node, wanted), differences)
}

/// Returns the labels of `--node-labels` that the Node lacks, except reserved keys and keys of `--topology-labels`.
pub fn lacking<'p>(node: &Node, policy: &'p Policy) -> impl Iterator<Item = (&'p String, &'p String)> {
    let is_set = |key: &String| !node::is_reserved_label(key) && !policy.topology_labels.contains(key);
    policy.node_labels.iter().filter(move |(key, _)| is_set(key) && node::label(node, key).is_none())
}

/// Returns the log line with the number of these Nodes that lack labels of `--node-labels`; `None` if none lacks any.
pub fn describe_missing(nodes: impl Iterator<Item = Arc<Node>>, policy: &Policy) -> Option<String> {
    let (mut all, mut some) = (0, 0);
    for node in nodes {
        all += 1;
        some += usize::from(lacking(&node, policy).next().is_some());
    }
    let what = match policy.node_labels_on {
        NodeLabelsOn::Join => "they stay so, because labels are set when a Node joins; --node-labels-on=all adds them",
        NodeLabelsOn::All => "they are added, at most 10 Nodes a second",
    };
    (some > 0).then(|| format!("{some} of {all} initialized Nodes lack labels of --node-labels: {what}"))
}

/// Returns the label changes that need no data from the cloud: a current label gets the value of its legacy label.
pub fn without_cloud(node: &Node) -> LabelChanges {
    changes(node, labels_of(node))
}

/// The cloud's value for one pair of labels.
struct CloudLabel<'a> {
    pair: LabelPair,
    value: &'a str,
    mode: LabelMode,
    reason: Reason,
}

/// Whether the cloud has a value for this label.
pub fn has_cloud_value(label: &str, metadata: &InstanceMetadata, policy: &Policy) -> bool {
    cloud_labels(metadata, policy).iter().any(|said| said.pair.current == label && !said.value.is_empty())
}

fn cloud_labels<'a>(metadata: &'a InstanceMetadata, policy: &Policy) -> [CloudLabel<'a>; 3] {
    let topology = |pair, value| CloudLabel { pair, value, mode: policy.zone_labels, reason: reason::ZoneLabelsDiffer };
    [
        CloudLabel {
            pair: INSTANCE_TYPE,
            value: &metadata.instance_type,
            mode: policy.instance_type,
            reason: reason::InstanceTypeDiffers,
        },
        topology(ZONE, &metadata.zone),
        topology(REGION, &metadata.region),
    ]
}

/// Whether the label value `present` comes from a program version that has no name for the VM's guest operating system.
/// Such a value ends in `unknown` instead of the guest's name. No released Go program supports RHEL 8 and later.
fn is_of_older_table(present: &str, cloud: &str) -> bool {
    present.strip_suffix("unknown").is_some_and(|front| !front.is_empty() && cloud.starts_with(front))
}

fn labels_of(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}

/// Sets the current and the legacy form of a label. Both forms are always written together.
fn set(wanted: &mut Labels, pair: LabelPair, value: &str) {
    wanted.insert(pair.current.to_owned(), value.to_owned());
    wanted.insert(pair.legacy.to_owned(), value.to_owned());
}

fn set_topology(wanted: &mut Labels, metadata: &InstanceMetadata) {
    for (key, value) in &metadata.topology_labels {
        match value {
            Some(value) => wanted.insert(key.clone(), value.clone()),
            None => wanted.remove(key),
        };
    }
}

/// Returns the changes from the labels of `node` to `wanted`. A current label gets the value of its legacy label.
fn changes(node: &Node, mut wanted: Labels) -> LabelChanges {
    for LabelPair { current, legacy } in [ZONE, REGION, INSTANCE_TYPE] {
        if let Some(value) = wanted.get(legacy).cloned() {
            wanted.insert(current.to_owned(), value);
        }
    }
    let gone = node.metadata.labels.iter().flatten().filter(|(key, _)| !wanted.contains_key(*key));
    let gone: Vec<_> = gone.map(|(key, _)| (key.clone(), None)).collect();
    let new = wanted.into_iter().filter(|(key, value)| node::label(node, key) != Some(value.as_str()));
    new.map(|(key, value)| (key, Some(value))).chain(gone).collect()
}
