//! Number of Nodes, and number of Nodes with the uninitialized taint. Counted at each scrape, also in standby
//! processes.

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::kubernetes::stores::Nodes;

pub(super) struct NodeCounts {
    nodes: Nodes,
    all: IntGauge,
    uninitialized: IntGauge,
}

impl NodeCounts {
    pub(super) fn new(nodes: Nodes) -> Self {
        let gauge = |name, help| IntGauge::new(name, help).expect("the name is a valid constant");
        Self {
            nodes,
            all: gauge("vsphere_ccm_nodes", "Nodes this process looks after."),
            uninitialized: gauge(
                "vsphere_ccm_nodes_uninitialized",
                "Nodes with the taint node.cloudprovider.kubernetes.io/uninitialized.",
            ),
        }
    }
}

impl Collector for NodeCounts {
    fn desc(&self) -> Vec<&Desc> {
        [&self.all, &self.uninitialized].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (all, uninitialized) = self.nodes.count_marked();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.all.set(count(all));
        self.uninitialized.set(count(uninitialized));
        [&self.all, &self.uninitialized].into_iter().flat_map(Collector::collect).collect()
    }
}
