//! Reads the cached Node, and the provider's answer about its VM.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::Duration;

use crate::base::quoting::quoted;
use crate::cloud::{InstanceMetadata, Presence, Unknown, node};
use crate::controllers::instances::BoundedInstances;
use crate::controllers::node::reason;

/// All inputs of a decision about a Node of this provider, or about a Node of another provider that waits with the
/// uninitialized taint. If the Node belongs to another provider, `instance` is `Presence::Unknown`.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnNode {
    /// The Node.
    pub node: Arc<Node>,
    /// The provider's answer about the VM.
    pub instance: Box<Presence<InstanceMetadata>>,
    /// Wall clock time of the observation.
    pub observed_at: Timestamp,
    /// Time for which this process has seen the Node wait for initialization; zero if the Node does not wait.
    pub waiting_time: Duration,
    /// The deferrable writes that are allowed now.
    pub turn: AllowedWrites,
}

/// The deferrable writes that are allowed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllowedWrites {
    /// Whether the VM record of a `Ready` Node may be updated to the new location of the VM.
    pub of_record: bool,
    /// Whether missing labels may be added to an initialized Node.
    pub of_labels: bool,
}

/// Gathers the inputs for `node`. Returns `None` if the Node does not exist, or if the Node belongs to another provider
/// and does not have the uninitialized taint. Takes at most the time limit of one provider call.
pub async fn observe(
    node: Option<Arc<Node>>,
    waited: Duration,
    turn: AllowedWrites,
    instances: &BoundedInstances,
) -> Option<OwnNode> {
    let node = node?;
    let answer = match instances.provider.owns(&node) {
        true => Some(instances.metadata(&node).await),
        // The provider is not called, because it might find a different VM with the name of this Node.
        false => None,
    };
    let instance = usable_answer(&node, answer, instances.provider.provider_name())?;
    Some(OwnNode { node, instance: Box::new(instance), observed_at: Timestamp::now(), waiting_time: waited, turn })
}

/// Returns the answer for the plan of `node`. `answer` is the provider's answer; `None` if the Node belongs to another
/// provider. Returns `None` for a Node that this controller leaves alone.
pub(super) fn usable_answer(
    node: &Node,
    answer: Option<Presence<InstanceMetadata>>,
    provider: &str,
) -> Option<Presence<InstanceMetadata>> {
    let is_waiting = node::is_uninitialized(node);
    answer.or_else(|| is_waiting.then(|| Presence::Unknown(foreign(node, provider))))
}

/// Returns the reason why a Node of another provider waits with the taint, and the remedy.
fn foreign(node: &Node, provider: &str) -> Unknown {
    let message = format!(
        "provider ID {} is not of {provider}: another cloud controller manager has to initialize this Node. If its VM is on \
         {provider}, turn that one off (K3s and RKE2: --disable-cloud-controller), delete the Node and restart its kubelet; \
         otherwise --node-selector excludes the Node here",
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
    use crate::controllers::driver::Requeue;
    use crate::controllers::node::Policy;
    use crate::controllers::node::plan::{CONDITION, NextStep, NodeAction, plan};

    /// A cloud that has a VM for each Node. It panics if it is called for a Node of another provider.
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
        assert_eq!(without, None);
        let long = foreign(&node(&format!("k3s://{}", "\u{1}".repeat(1 << 20)), true), "vsphere");
        assert!(long.message.chars().count() < 600 && long.message.ends_with("excludes the Node here"));
        for waited in [Duration::ZERO, minute] {
            let observed = observe(Some(node("k3s://n", true)), waited, AllowedWrites::default(), &instances).await;
            let plan = plan(observed.as_ref(), &policy);
            let NextStep::Blocked(blocked) = &plan.outcome else { panic!("{plan:?}") };
            assert_eq!(
                (blocked.reason, blocked.next, blocked.is_quiet),
                (reason::ForeignProviderID, Requeue::PERIOD, false)
            );
            assert!(
                blocked.message.contains("\"k3s://n\"") && blocked.message.contains("--node-selector"),
                "{}",
                blocked.message
            );
            // The controller writes only the condition, and not before it is due.
            let written: Vec<_> = plan.actions.iter().map(NodeAction::describe).collect();
            let condition = format!("condition {CONDITION}=False (ForeignProviderID)");
            assert_eq!(written, if waited.is_zero() { Vec::new() } else { vec![condition] });
            assert_eq!(plan.event.is_some(), !waited.is_zero(), "an Event once it is time");
        }
        let own = observe(Some(node("cloud://n", true)), minute, AllowedWrites::default(), &instances).await;
        assert!(own.is_some_and(|own| matches!(*own.instance, Presence::Exists(_))));
    }
}
