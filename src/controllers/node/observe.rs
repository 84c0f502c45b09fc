//! Reads: the Node from the cache, and the provider's answer about its VM.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::Duration;

use crate::base::quoting::quoted;
use crate::cloud::{InstanceMetadata, Presence, Unknown, node};
use crate::controllers::instances::BoundedInstances;
use crate::controllers::node::reason;

/// All inputs of a decision about one Node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeObservation {
    /// The Node does not exist.
    Missing,
    /// The Node's provider ID belongs to another provider.
    Foreign,
    /// The Node is ours; or it belongs to another provider and has the taint, so the condition must say why it waits.
    Ours(OwnNode),
}

/// A Node that is ours. If it belongs to another provider, its instance is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnNode {
    /// The node.
    pub node: Arc<Node>,
    /// The provider's answer about its VM.
    pub instance: Box<Presence<InstanceMetadata>>,
    /// Wall clock time of the observation.
    pub observed_at: Timestamp,
    /// How long this process has seen the Node waiting for initialisation; zero if it does not wait.
    pub waiting_time: Duration,
    /// Which deferrable writes are allowed now.
    pub turn: AllowedWrites,
}

/// The deferrable writes that are allowed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllowedWrites {
    /// The VM record of a Ready Node may be updated to the VM's new place.
    pub of_record: bool,
    /// Missing labels may be added to an initialised Node.
    pub of_labels: bool,
}

/// Gathers the inputs for `node`, which has waited for `waited`. Takes no longer than the provider's time limit.
pub async fn observe(
    node: Option<Arc<Node>>,
    waited: Duration,
    turn: AllowedWrites,
    instances: &BoundedInstances,
) -> NodeObservation {
    let Some(node) = node else { return NodeObservation::Missing };
    let instance = match instances.owns(&node) {
        true => instances.metadata(&node).await,
        // The provider is not called: it might find a VM with this Node's name, but not the VM of this Node.
        false if node::is_uninitialized(&node) => Presence::Unknown(foreign(&node, instances.provider.provider_name())),
        false => return NodeObservation::Foreign,
    };
    let instance = Box::new(instance);
    NodeObservation::Ours(OwnNode { node, instance, observed_at: Timestamp::now(), waiting_time: waited, turn })
}

/// Why a Node of another provider waits with the taint, and what to do about it.
fn foreign(node: &Node, provider: &str) -> Unknown {
    let message = format!(
        "provider ID {} is not of cloud provider {provider}, so another cloud controller manager has to initialize this Node; \
         if its VM is on {provider}, turn that one off (K3s and RKE2: --disable-cloud-controller), delete the Node and restart \
         its kubelet; otherwise --node-selector excludes the Node here",
        quoted(node::provider_id(node))
    );
    Unknown::new(reason::ForeignProviderID, message)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::Taint;

    use super::*;
    use crate::cloud::node::TAINT_UNINITIALIZED;
    use crate::cloud::{CloudProvider, InstancesV2, Power, PowerState};
    use crate::controllers::driver::Next;
    use crate::controllers::node::Policy;
    use crate::controllers::node::plan::{CONDITION, NextStep, NodeAction, plan};

    /// A cloud that knows every VM, and fails the test if it is called about a foreign Node.
    struct Cloud;

    impl CloudProvider for Cloud {
        fn provider_name(&self) -> &'static str {
            "cloud"
        }

        fn owns_provider_id(&self, provider_id: &str) -> bool {
            provider_id.starts_with("cloud://")
        }

        fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
            Some(Arc::new(Cloud))
        }
    }

    #[async_trait]
    impl InstancesV2 for Cloud {
        async fn instance_exists(&self, _: &Node) -> Presence {
            unreachable!("the node controller leaves that to the node-lifecycle controller")
        }

        async fn instance_power(&self, _: &Node) -> Presence<Power> {
            unreachable!("the node controller leaves that to the node-lifecycle controller")
        }

        async fn read_instance_power(&self, _: &Node) -> Presence<PowerState> {
            unreachable!("the node controller leaves that to the node-lifecycle controller")
        }

        async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
            assert!(node::provider_id(node).starts_with("cloud://"), "{node:?}");
            Presence::Exists(InstanceMetadata::default())
        }
    }

    fn node(provider_id: &str, is_tainted: bool) -> Arc<Node> {
        let mut node = Node::default();
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some(provider_id.to_owned());
        let taint = Taint { key: TAINT_UNINITIALIZED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        spec.taints = is_tainted.then(|| vec![taint]);
        Arc::new(node)
    }

    #[tokio::test]
    async fn a_node_of_another_provider_says_why_it_waits_while_it_has_the_taint_and_is_left_alone_otherwise() {
        let instances = BoundedInstances::of(Arc::new(Cloud)).ok().unwrap();
        let policy = Policy { adopts_untainted_nodes: true, ..Policy::default() };
        let minute = Duration::from_secs(60);
        let without = observe(Some(node("k3s://n", false)), minute, AllowedWrites::default(), &instances).await;
        assert_eq!(without, NodeObservation::Foreign);
        let long = foreign(&node(&format!("k3s://{}", "\u{1}".repeat(1 << 20)), true), "vsphere");
        assert!(long.message.chars().count() < 600 && long.message.ends_with("excludes the Node here"));
        for waited in [Duration::ZERO, minute] {
            let observed = observe(Some(node("k3s://n", true)), waited, AllowedWrites::default(), &instances).await;
            let plan = plan(&observed, &policy);
            let NextStep::Blocked(blocked) = &plan.outcome else { panic!("{plan:?}") };
            assert_eq!(
                (blocked.reason, blocked.next, blocked.is_quiet),
                (reason::ForeignProviderID, Next::Period, false)
            );
            assert!(
                blocked.message.contains("\"k3s://n\"") && blocked.message.contains("--node-selector"),
                "{}",
                blocked.message
            );
            // Only the condition is ever written, and only once it is due.
            let written: Vec<_> = plan.actions.iter().map(NodeAction::describe).collect();
            let condition = format!("condition {CONDITION}=False (ForeignProviderID)");
            assert_eq!(written, if waited.is_zero() { Vec::new() } else { vec![condition] });
            assert_eq!(plan.event.is_some(), !waited.is_zero(), "an Event once it is time");
        }
        let own = observe(Some(node("cloud://n", true)), minute, AllowedWrites::default(), &instances).await;
        assert!(
            matches!(own, NodeObservation::Ours(OwnNode { instance, .. }) if matches!(*instance, Presence::Exists(_)))
        );
    }
}
