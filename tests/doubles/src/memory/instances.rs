//! Both instance contracts, and zones.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Instance, Memory, State};
use ccm::cloud::node::ANNOTATION_VM;
use ccm::cloud::reason;
use ccm::cloud::{
    AbsenceProof, Error, FoundBy, InstanceMetadata, Instances, InstancesV2, Power, PowerState, Presence, Unknown, Zone,
    Zones, node,
};

impl Memory {
    async fn ask<T>(&self, answer: impl FnOnce(&State) -> T + Send) -> T {
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        let latency = self.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        answer(&self.lock())
    }

    async fn ask_by_provider_id<T>(
        &self,
        provider_id: &str,
        answer: impl FnOnce(&Instance) -> T + Send,
    ) -> Result<T, Error> {
        self.ask(|state| older(state.find_by_provider_id(provider_id)).map(|instance| answer(&instance))).await
    }

    async fn ask_by_name<T>(&self, node_name: &str, answer: impl FnOnce(&Instance) -> T + Send) -> Result<T, Error> {
        self.ask(|state| older(state.find_by_name(node_name)).map(|instance| answer(&instance))).await
    }
}

impl State {
    /// Finds the instance by provider ID if the node has one; otherwise by system UUID, then by name.
    fn find(&self, node: &Node) -> Presence<Instance> {
        let (provider_id, uuid) = (node::provider_id(node), node::system_uuid(node));
        if !provider_id.is_empty() {
            return self.find_by_provider_id(provider_id);
        }
        let by_uuid: Vec<_> = self
            .instances
            .values()
            .filter(|instance| !uuid.is_empty() && instance.system_uuid.eq_ignore_ascii_case(uuid))
            .collect();
        match by_uuid.as_slice() {
            [] => self.find_by_name(node::name(node)),
            [instance] => self.find_by_provider_id(&instance.metadata.provider_id),
            several => {
                let ids: Vec<_> = several.iter().map(|instance| instance.metadata.provider_id.as_str()).collect();
                let message = format!("system UUID {uuid} is that of {}", ids.join(", "));
                Presence::Unknown(Unknown::new(reason::SeveralVMsMatch, message))
            }
        }
    }

    /// Returns the property by which [`State::find`] finds the machine.
    fn found_by(&self, node: &Node) -> FoundBy {
        let uuid = node::system_uuid(node);
        if !node::provider_id(node).is_empty() {
            FoundBy::ProviderId
        } else if self
            .instances
            .values()
            .any(|instance| !uuid.is_empty() && instance.system_uuid.eq_ignore_ascii_case(uuid))
        {
            FoundBy::SystemUuid
        } else {
            FoundBy::Name
        }
    }

    fn find_by_provider_id(&self, provider_id: &str) -> Presence<Instance> {
        if let Some(unknown) = self.outage.as_ref().or_else(|| self.unknown.get(provider_id)) {
            return Presence::Unknown(unknown.clone());
        }
        if let Some(instance) = self.instances.get(provider_id) {
            return Presence::Exists(instance.clone());
        }
        if self.removed.contains(provider_id) {
            return Presence::Absent(AbsenceProof::new(format!("instance {provider_id} was removed"), []));
        }
        Presence::Unknown(Unknown::new(
            reason::InstanceNotFound,
            format!("no instance with provider ID {provider_id} was seen"),
        ))
    }

    fn find_by_name(&self, node_name: &str) -> Presence<Instance> {
        match self.instances.values().find(|instance| instance.node_name == node_name) {
            Some(instance) => self.find_by_provider_id(&instance.metadata.provider_id),
            None => match &self.outage {
                Some(unknown) => Presence::Unknown(unknown.clone()),
                None => Presence::Unknown(Unknown::new(
                    reason::InstanceNotFound,
                    format!("no instance backs node {node_name}"),
                )),
            },
        }
    }
}

fn proven_power(found: Presence<Instance>, state: &State) -> Presence<Power> {
    let instance = match found {
        Presence::Exists(instance) => instance,
        Presence::Absent(proof) => return Presence::Absent(proof),
        Presence::Unknown(unknown) => return Presence::Unknown(unknown),
    };
    let id = &instance.metadata.provider_id;
    if instance.is_power_unproven {
        let message = format!("nobody hears from the host of {id}");
        return Presence::Unknown(Unknown::new(reason::PowerStateUnknown, message));
    }
    let lasting = state.powered_since.get(id).map(Instant::elapsed).unwrap_or_default();
    Presence::Exists(Power { state: instance.power, lasting })
}

/// Returns the result in the terms of the older contract.
fn older(presence: Presence<Instance>) -> Result<Instance, Error> {
    match presence {
        Presence::Exists(instance) => Ok(instance),
        Presence::Absent(_) => Err(Error::InstanceNotFound),
        Presence::Unknown(unknown) if unknown.reason == reason::InstanceNotFound => Err(Error::InstanceNotFound),
        Presence::Unknown(Unknown { message, retry_after: Some(after), .. }) => {
            Err(Error::RetryAfter { message, after })
        }
        Presence::Unknown(unknown) => Err(Error::Unavailable { message: unknown.to_string(), source: None }),
    }
}

#[async_trait]
impl InstancesV2 for Memory {
    async fn instance_exists(&self, node: &Node) -> Presence {
        self.ask(|state| state.find(node).map(|_| ())).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.ask(|state| proven_power(state.find(node), state)).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.ask(|state| proven_power(state.find(node), state).map(|power| power.state)).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.ask(|state| {
            let found_by = state.found_by(node);
            state.find(node).map(|instance| {
                let record = &instance.metadata.record;
                let known = node::annotation(node, ANNOTATION_VM).and_then(|text| text.split_whitespace().next());
                let is_recorded = known.is_some() && known == record.split_whitespace().next();
                InstanceMetadata { found_by, is_recorded, ..instance.metadata }
            })
        })
        .await
    }
}

#[async_trait]
impl Instances for Memory {
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, Error> {
        self.ask_by_name(node_name, |instance| instance.metadata.node_addresses.clone()).await
    }

    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, Error> {
        self.ask_by_provider_id(provider_id, |instance| instance.metadata.node_addresses.clone()).await
    }

    async fn instance_id(&self, node_name: &str) -> Result<String, Error> {
        let prefix = format!("{}://", self.name);
        self.ask_by_name(node_name, |instance| {
            let id = &instance.metadata.provider_id;
            id.strip_prefix(&prefix).unwrap_or(id).to_owned()
        })
        .await
    }

    async fn instance_type(&self, node_name: &str) -> Result<String, Error> {
        self.ask_by_name(node_name, |instance| instance.metadata.instance_type.clone()).await
    }

    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, Error> {
        self.ask_by_provider_id(provider_id, |instance| instance.metadata.instance_type.clone()).await
    }

    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, Error> {
        self.ask(|state| match state.find_by_provider_id(provider_id) {
            Presence::Absent(_) => Ok(false),
            other => older(other).map(|_| true),
        })
        .await
    }

    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, Error> {
        self.ask_by_provider_id(provider_id, |instance| instance.power != PowerState::On).await
    }
}

#[async_trait]
impl Zones for Memory {
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone, Error> {
        self.ask_by_provider_id(provider_id, zone).await
    }

    async fn zone_by_node_name(&self, node_name: &str) -> Result<Zone, Error> {
        self.ask_by_name(node_name, zone).await
    }
}

fn zone(instance: &Instance) -> Zone {
    Zone { failure_domain: instance.metadata.zone.clone(), region: instance.metadata.region.clone() }
}
