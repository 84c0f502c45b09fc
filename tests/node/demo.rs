//! The demo with a real node: `make demo NODE=1 ONCE=1`.

use support::demo::{self, Plan};
use support::sandbox;

use crate::cluster::TEST_LIMIT;

#[test]
fn the_demo_with_a_real_node_plays_to_its_end() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let daemon = env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager").into();
        let plan = Plan { daemon, nodes: 4, once: true, routes: true, node: true };
        demo::run(plan, Some(sandbox)).await.unwrap();
    });
}
