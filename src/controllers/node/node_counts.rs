//! Number of Nodes, and number of Nodes with the uninitialized taint. Counted at each scrape, also in standby
//! processes.

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::cloud::node::is_uninitialized;
use crate::kubernetes::stores::Nodes;
use crate::runtime::metrics::{int_gauge, metrics};

metrics! {
    struct CountGauges {
        all: IntGauge = int_gauge("vsphere_ccm_nodes", "Nodes this process looks after."),
        uninitialized: IntGauge = int_gauge("vsphere_ccm_nodes_uninitialized",
            "Nodes with the taint node.cloudprovider.kubernetes.io/uninitialized."),
    }
}

pub(super) struct NodeCounts {
    nodes: Nodes,
    gauges: CountGauges,
}

impl NodeCounts {
    pub(super) fn new(nodes: Nodes) -> Self {
        Self { nodes, gauges: CountGauges::default() }
    }
}

impl Collector for NodeCounts {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let nodes = self.nodes.list();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.gauges.all.set(count(nodes.len()));
        self.gauges.uninitialized.set(count(nodes.filter(|node| is_uninitialized(node)).count()));
        self.gauges.collect()
    }
}
