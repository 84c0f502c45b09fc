//! The second act of the demo: the load balancer of a Service on NSX, with the NSX calls of each step.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::json;

use super::{CHANGE_PATIENCE, Stage, seconds};

/// Name of the Service, in the namespace `default`.
const NAME: &str = "web";
const FIRST_PORT: i32 = 80;
const OTHER_PORT: i32 = 8080;
/// Longest deletion of the Service. At most one listing of NSX starts every 10 s.
const DELETION_PATIENCE: Duration = Duration::from_secs(40);
/// Width at which lists of calls are wrapped.
const WIDTH: usize = 120;

/// Watches the Services.
pub fn watch(client: Client) -> BoxStream<'static, watcher::Result<Event<Service>>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    watcher::watcher(Api::<Service>::namespaced(client, "default"), config).boxed()
}

impl Stage {
    /// Runs the second act: a Service gets its address, its port changes, a node is removed, the Service is deleted.
    pub(super) async fn play_second_act(&mut self) -> Result<(), String> {
        self.screen.pause_table();
        self.create_a_service().await?;
        self.change_its_port().await?;
        self.delete_a_node().await?;
        self.delete_the_service().await?;
        self.note("");
        self.screen.resume_table();
        Ok(())
    }

    pub(super) fn observe_service(&mut self, event: Option<watcher::Result<Event<Service>>>) {
        match event {
            Some(Ok(Event::Apply(service) | Event::InitApply(service))) => self.service = Some(service),
            Some(Ok(Event::Delete(_) | Event::Init)) => self.service = None,
            // The watcher recovers by itself.
            Some(Ok(Event::InitDone) | Err(_)) | None => {}
        }
    }

    async fn create_a_service(&mut self) -> Result<(), String> {
        self.note("");
        self.note(&format!("Service {NAME} of type LoadBalancer is created, with port {FIRST_PORT}"));
        let (first, began) = (self.nsx.next_request(), Instant::now());
        let service = json!({
            "metadata": {"name": NAME},
            "spec": {"type": "LoadBalancer", "selector": {"app": NAME}, "ports": [{"port": FIRST_PORT}]},
        });
        let service: Service = serde_json::from_value(service).map_err(|error| error.to_string())?;
        let created = self.services().create(&PostParams::default(), &service).await;
        created.map_err(|error| format!("Service {NAME} cannot be created: {error}"))?;
        let members = self.machines.len();
        let is_there = |stage: &Self| stage.address().is_some() && stage.serves(FIRST_PORT, members);
        self.follow(CHANGE_PATIENCE, "the Service got no address", is_there).await?;
        let address = self.address().unwrap_or_default();
        let took = seconds(began.elapsed());
        self.note(&format!("It has the address {address} {took} later, and {members} nodes behind it."));
        self.note_calls_since(first);
        Ok(())
    }

    async fn change_its_port(&mut self) -> Result<(), String> {
        self.note("");
        self.note(&format!("Its port changes: {FIRST_PORT} -> {OTHER_PORT}"));
        let (first, began, before) = (self.nsx.next_request(), Instant::now(), self.address());
        // The patch keeps the node port. Without it the API server would choose another one.
        let patch = json!({"spec": {"ports": [{"port": OTHER_PORT, "nodePort": self.node_port()}]}});
        let patched = self.services().patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(|error| format!("Service {NAME} cannot be changed: {error}"))?;
        let members = self.machines.len();
        let trouble = "the changed port did not reach NSX";
        self.follow(CHANGE_PATIENCE, trouble, |stage| stage.serves(OTHER_PORT, members)).await?;
        let stays = if self.address() == before { "The address stays." } else { "The address is another one." };
        let took = seconds(began.elapsed());
        self.note(&format!("NSX has it {took} later. {stays}"));
        self.note_calls_since(first);
        Ok(())
    }

    async fn delete_a_node(&mut self) -> Result<(), String> {
        let Some(machine) = self.machines.pop() else { return Ok(()) };
        self.note("");
        self.note(&format!("VM {} is deleted in vCenter, and Node {} with it", machine.vm, machine.node));
        let (first, began) = (self.nsx.next_request(), Instant::now());
        self.vcenter.destroy_vm(&machine.uuid).await;
        let nodes = Api::<Node>::all(self.client.clone());
        let deleted = nodes.delete(&machine.node, &DeleteParams::default()).await;
        deleted.map_err(|error| format!("Node {} cannot be deleted: {error}", machine.node))?;
        let members = self.machines.len();
        let trouble = "the node is still behind the Service";
        self.follow(CHANGE_PATIENCE, trouble, |stage| stage.serves(OTHER_PORT, members)).await?;
        let took = seconds(began.elapsed());
        self.note(&format!("It is no longer behind the Service {took} later."));
        self.note_calls_since(first);
        if self.has_routes {
            self.follow_routes(CHANGE_PATIENCE).await?;
            self.note(&format!("Route {} is gone {} later.", machine.pod_network(), seconds(began.elapsed())));
        }
        Ok(())
    }

    async fn delete_the_service(&mut self) -> Result<(), String> {
        self.note("");
        self.note(&format!("Service {NAME} is deleted"));
        let (first, began) = (self.nsx.next_request(), Instant::now());
        let deleted = self.services().delete(NAME, &DeleteParams::default()).await;
        deleted.map_err(|error| format!("Service {NAME} cannot be deleted: {error}"))?;
        let is_empty = |stage: &Self| stage.nsx.is_idle() && stage.nsx.load_balancer_objects().is_empty();
        self.follow(CHANGE_PATIENCE, "NSX still has objects of the Service", is_empty).await?;
        let (took, next) = (seconds(began.elapsed()), self.nsx.next_request());
        self.note(&format!("NSX has no object of load balancers {took} later."));
        self.note_calls_since(first);
        self.note("The Service goes when a listing that begins after these calls shows nothing of it. One begins at most every 10 s.");
        self.follow(DELETION_PATIENCE, "the Service is still there", |stage| stage.service.is_none()).await?;
        let took = seconds(began.elapsed());
        self.note(&format!("Service {NAME} is gone {took} after its deletion."));
        self.note_calls_since(next);
        Ok(())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Returns the address in the status of the Service.
    fn address(&self) -> Option<String> {
        let status = self.service.as_ref()?.status.as_ref()?.load_balancer.as_ref()?;
        status.ingress.as_ref()?.first()?.ip.clone()
    }

    fn serves(&self, port: i32, members: usize) -> bool {
        self.nsx.is_idle() && self.nsx.serves(port, members)
    }

    fn node_port(&self) -> Option<i32> {
        self.service.as_ref()?.spec.as_ref()?.ports.as_ref()?.first()?.node_port
    }

    /// Shows the calls with this number or a later one.
    fn note_calls_since(&mut self, number: u64) {
        let calls = self.nsx.calls_from(number);
        self.note(&format!("{} calls to NSX:", calls.len()));
        wrapped(&calls).iter().for_each(|line| self.note(&format!("  {}", line.trim_end())));
    }
}

/// Returns the calls in their order as wrapped lines, with a number for repeated calls.
fn wrapped(calls: &[String]) -> Vec<String> {
    let words = calls.chunk_by(|left, right| left == right).filter_map(|same| {
        let name = same.first()?;
        Some(if same.len() > 1 { format!("{name} ×{}", same.len()) } else { name.clone() })
    });
    let mut lines = vec![String::new()];
    let words: Vec<String> = words.collect();
    for (index, word) in words.iter().enumerate() {
        let word = if index + 1 < words.len() { format!("{word}, ") } else { word.clone() };
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= WIDTH => line.push_str(&word),
            _ => lines.push(word),
        }
    }
    lines
}
