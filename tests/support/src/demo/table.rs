//! The observed state of each node, and its table row.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::cluster::Machine;
use super::seconds;
use crate::nodes::NodeView;

const HEADER: [&str; 8] = ["NODE", "VM", "PROVIDER ID", "ADDRESSES", "REGION/ZONE", "INSTANCE TYPE", "TAINT", "TOOK"];

/// The rows of all nodes, in the order of the machines.
pub struct Table {
    started: Instant,
    rows: Vec<Row>,
    vm_of: BTreeMap<String, String>,
}

struct Row {
    node: String,
    view: Option<NodeView>,
    took: Option<Duration>,
}

impl Table {
    /// Makes an empty table. Times count from `started`.
    pub fn new(machines: &[Machine], started: Instant) -> Self {
        let rows = machines.iter().map(|machine| Row { node: machine.node.clone(), view: None, took: None }).collect();
        let vm_of = machines.iter().map(|machine| (machine.uuid.clone(), machine.vm.clone())).collect();
        Self { started, rows, vm_of }
    }

    /// Updates the row of a node. Returns true if this ended its initialization.
    pub fn update(&mut self, node: &str, view: NodeView) -> bool {
        let took = self.started.elapsed();
        let Some(row) = self.rows.iter_mut().find(|row| row.node == node) else { return false };
        let is_ready = !view.uninitialized && view.provider_id.is_some() && !view.addresses.is_empty();
        row.view = Some(view);
        let is_new = is_ready && row.took.is_none();
        if is_new {
            row.took = Some(took);
        }
        is_new
    }

    /// Removes the row of a node that was deleted.
    pub fn remove(&mut self, node: &str) {
        self.rows.retain(|row| row.node != node);
    }

    /// Returns the time since the daemon's start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns true if all nodes are initialized.
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.took.is_some())
    }

    /// Returns the names of the nodes that are not initialized.
    pub fn unfinished(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.took.is_none()).map(|row| row.node.as_str()).collect()
    }

    /// Returns the time when the last node was initialized.
    pub fn last_ready(&self) -> Option<Duration> {
        self.rows.iter().filter_map(|row| row.took).max()
    }

    /// Returns true if this node has this address.
    pub fn has_address(&self, node: &str, address: &str) -> bool {
        let suffix = format!("={address}");
        self.rows
            .iter()
            .filter(|row| row.node == node)
            .filter_map(|row| row.view.as_ref())
            .any(|view| view.addresses.iter().any(|known| known.ends_with(&suffix)))
    }

    /// Returns the table as lines of at most `width` characters, with at most `height` rows. If there are more nodes,
    /// it has those that are not ready yet and those that became ready last.
    pub fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let widths = self.widths(width);
        let mut shown: Vec<&Row> = self.rows.iter().collect();
        let hidden = shown.len().saturating_sub(height);
        if hidden > 0 {
            shown.sort_by_key(|row| std::cmp::Reverse(row.took.unwrap_or(Duration::MAX)));
            shown.truncate(height);
        }
        let cut = |line: String| line.chars().take(width).collect::<String>();
        let mut lines = vec![cut(fit(&HEADER.map(str::to_owned), &widths))];
        lines.extend(shown.iter().map(|row| cut(fit(&self.cells(row), &widths))));
        if hidden > 0 {
            let ready = self.rows.iter().filter(|row| row.took.is_some()).count();
            lines.push(format!("and {hidden} more; {ready} of {} are initialized", self.rows.len()));
        }
        lines
    }

    /// Returns the line of one node, for output that cannot be redrawn.
    pub fn line(&self, node: &str) -> String {
        let widths = self.widths(usize::MAX);
        self.rows.iter().find(|row| row.node == node).map(|row| fit(&self.cells(row), &widths)).unwrap_or_default()
    }

    /// Returns the header for such lines.
    pub fn header(&self) -> String {
        fit(&HEADER.map(str::to_owned), &self.widths(usize::MAX))
    }

    fn cells(&self, row: &Row) -> [String; 8] {
        let empty = NodeView::default();
        let view = row.view.as_ref().unwrap_or(&empty);
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let provider_id = view.provider_id.clone().unwrap_or_default();
        let uuid = provider_id.trim_start_matches("vsphere://").to_lowercase();
        let place = [view.label("topology.kubernetes.io/region"), view.label("topology.kubernetes.io/zone")].join("/");
        [
            row.node.clone(),
            dash(self.vm_of.get(&uuid).cloned().unwrap_or_default()),
            dash(provider_id),
            dash(addresses(view)),
            dash(if place == "/" { String::new() } else { place }),
            dash(view.label("node.kubernetes.io/instance-type").to_owned()),
            if view.uninitialized { "uninitialized" } else { "-" }.to_owned(),
            row.took.map_or_else(|| "...".to_owned(), seconds),
        ]
    }

    /// Returns column widths that fit the values of the demo's cluster, so that the table does not move while it fills.
    /// If that is too wide, the provider ID is shortened first, then the instance type.
    fn widths(&self, width: usize) -> [usize; 8] {
        let node = self.rows.iter().map(|row| row.node.len()).max().unwrap_or(0).max(4);
        let mut widths = [node, node + 5, 46, 20, 15, 35, 13, 7];
        for (column, least) in [(2, 14), (5, 14)] {
            let needed: usize = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
            widths[column] = widths[column].saturating_sub(needed.saturating_sub(width)).max(least);
        }
        widths
    }
}

/// Returns `10.20.0.11 int+ext`: each address once, with its types. Host names are left out.
fn addresses(view: &NodeView) -> String {
    let mut known: Vec<(&str, Vec<&str>)> = Vec::new();
    for (kind, address) in view.addresses.iter().filter_map(|text| text.split_once('=')) {
        let kind = match kind {
            "InternalIP" => "int",
            "ExternalIP" => "ext",
            _ => continue,
        };
        match known.iter_mut().find(|(other, _)| *other == address) {
            Some((_, kinds)) => kinds.push(kind),
            None => known.push((address, vec![kind])),
        }
    }
    known.iter().map(|(address, kinds)| format!("{address} {}", kinds.join("+"))).collect::<Vec<_>>().join(", ")
}

/// Pads and cuts cells to their widths. A cut is an ellipsis in the middle, because both ends are informative.
fn fit(cells: &[String; 8], widths: &[usize; 8]) -> String {
    let mut line = String::new();
    for (cell, &width) in cells.iter().zip(widths) {
        let length = cell.chars().count();
        let text = if length > width {
            let half = (width - 1) / 2;
            let head: String = cell.chars().take(half).collect();
            let tail: String = cell.chars().skip(length - (width - 1 - half)).collect();
            format!("{head}…{tail}")
        } else {
            cell.clone()
        };
        line.push_str(&format!("{text:<width$}  "));
    }
    line.trim_end().to_owned()
}
