//! The controllers of a race between a cloud and an API server in memory, and what the commands announce about a Node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::super::{NodePlanFacts, node_plan, unknown_answer};
use super::cloud::{Cloud, Question};
use super::server::{Delays, Server};
use crate::app::inquiries::explain;
use crate::app::reports::plan::{ObjectPlan, PlannedChange};
use crate::cloud::node::{self, Readiness};
use crate::controllers::Context;
use crate::controllers::decisions::DecisionHistory;
use crate::controllers::driver::CurrentTerm;
use crate::controllers::node::plan::NextStep;
use crate::controllers::node::{
    self as node_controller, LabelMode, NodeLabelsOn, NodeReconciler, NodeSettings, Policy,
};
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use crate::controllers::node_lifecycle::{self, DeletionMode, LifecycleSettings, Limit, NodeLifecycleReconciler};
use crate::kubernetes::deletion_lease::DeletionLease;
use crate::kubernetes::events::recorder;
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::{Nodes, watch_nodes};

/// Both controllers look at each Node again after this time.
const PERIOD: Duration = Duration::from_secs(5);
/// Time after which a Node whose VM is powered off gets the out-of-service taint.
pub const OUT_OF_SERVICE_AFTER: Duration = Duration::from_secs(20);

/// Leading controllers with their cloud and their API server. Their tasks end when this is dropped.
pub struct World {
    pub server: Server,
    pub cloud: Cloud,
    pub deletion: DeletionMode,
    pub out_of_service_after: Option<Duration>,
    nodes: Nodes,
    node: CurrentTerm<NodeReconciler>,
    lifecycle: CurrentTerm<NodeLifecycleReconciler>,
    _tasks: JoinSet<()>,
}

/// What the commands announce about one Node, with the inputs of the announcement.
#[derive(Debug)]
pub struct Announcement {
    pub at: Instant,
    pub node: Arc<Node>,
    /// Version of the machine, of which the command knows the present state.
    pub machine: u64,
    /// Version of the machine in the last answer about its presence.
    pub presence: Option<u64>,
    /// The plan for the Node, as the command `plan` prints it.
    pub plan: ObjectPlan,
    /// The plan for the next reconcile, as the command `explain node` uses it.
    pub next: ObjectPlan,
    /// The sentence of the command `explain deletion`.
    pub deletion: Option<String>,
    /// Whether the answer about the machine is not known, or may be outdated.
    pub is_unknown: bool,
    /// Time for which the Node has waited for its initialization, and the time after which its condition tells why.
    pub waiting: (Duration, Duration),
    /// Time for which the machine is powered off and the Node is `Ready=Unknown`; `None` if it is not.
    pub off_for: Option<Duration>,
    /// The reason why the deletion policy holds the deletion.
    pub hold: Option<HoldReason>,
    /// Whether the cached Node is older than a write of this process, so that the plan waits for the cache.
    pub is_behind: bool,
    /// Whether the plan has writes whose pace may delay them.
    pub has_deferred: bool,
}

impl Announcement {
    pub fn name(&self) -> &str {
        node::name(&self.node)
    }

    pub fn is_ready(&self) -> bool {
        node::readiness(&self.node) == Readiness::True
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, machine, presence, deletion, waiting, off_for, hold, .. } = self;
        writeln!(formatter, "announced with machine {machine}, presence {presence:?}, waiting {waiting:?},")?;
        writeln!(formatter, "off for {off_for:?}, hold {hold:?}, explained {deletion:?}:")?;
        for PlannedChange { kind, field, present, planned, reason, message } in &self.plan.changes {
            writeln!(formatter, "  {kind:?} {field}: {present:?} -> {planned:?} {reason:?} {message:?}")?;
        }
        write!(formatter, "{}", serde_json::to_value(&**node).unwrap())
    }
}

fn policy(random: &mut Rng) -> Policy {
    let mode = |random: &mut Rng| match random.u8(..3) {
        0 => LabelMode::Init,
        1 => LabelMode::Fill,
        _ => LabelMode::Follow,
    };
    Policy {
        node_labels: [("example.com/pool".to_owned(), "blue".to_owned())].into(),
        node_labels_on: if random.bool() { NodeLabelsOn::All } else { NodeLabelsOn::Join },
        topology_labels: ["topology.vsphere-ccm.dev/host".to_owned()].into(),
        zone_labels: mode(random),
        instance_type: mode(random),
        adopts_untainted_nodes: random.bool(),
        ..Policy::default()
    }
}

fn lifecycle_settings(random: &mut Rng) -> LifecycleSettings {
    let is_limited = random.bool();
    LifecycleSettings {
        period: PERIOD,
        deletion: match random.u8(..8) {
            0 => DeletionMode::DryRun,
            1 => DeletionMode::Off { reason: "the test" },
            _ => DeletionMode::Enforce,
        },
        grace: Duration::from_secs(random.u64(1..10)),
        limit: Limit { nodes: if is_limited { 2 } else { 1000 }, percent: 0, window: Duration::from_secs(30) },
        mass_hold: Duration::from_secs(if is_limited { 15 } else { 0 }),
        out_of_service_after: random.bool().then_some(OUT_OF_SERVICE_AFTER),
    }
}

impl World {
    /// Starts the controllers with random settings.
    pub async fn start(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (server, cloud) = (Server::start(), Cloud::new(random.u64(..)));
        server.with(|state| state.delays = Some(Delays::new(random.u64(..), Duration::from_secs(2))));
        let (nodes, watch) = watch_nodes(server.client(), None);
        let (recorder, writer) = recorder(server.client(), "test");
        let context = Context {
            write: server.client(),
            recorder: recorder.clone(),
            provider: Arc::new(cloud.clone()),
            leadership: Leadership::always(),
            decisions: DecisionHistory::default(),
        };
        let lease = DeletionLease::new(server.client(), "kube-system");
        let pauses = Arc::new(PauseMonitor::new(lease, recorder, Leadership::always(), "host"));
        let settings = lifecycle_settings(&mut random);
        let node_settings = NodeSettings {
            workers: std::num::NonZeroUsize::MIN.saturating_add(3),
            period: PERIOD,
            policy: policy(&mut random),
        };
        let node = node_controller::controller(context.clone(), nodes.clone(), node_settings).unwrap();
        let lifecycle =
            node_lifecycle::controller(context, nodes.clone(), Arc::clone(&pauses), settings.clone()).unwrap();
        let terms = (node.current_term(), lifecycle.current_term());
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(watch.await) });
        let reads = pauses.run();
        tasks.spawn(async { drop(reads.await) });
        tasks.spawn(async { drop(writer.run(CancellationToken::new()).await) });
        tasks.spawn(async { drop(node.run(CancellationToken::new()).await) });
        tasks.spawn(async { drop(lifecycle.run(CancellationToken::new()).await) });
        nodes.wait_until_ready().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Self {
            server,
            cloud,
            deletion: settings.deletion,
            out_of_service_after: settings.out_of_service_after,
            nodes,
            node: terms.0,
            lifecycle: terms.1,
            _tasks: tasks,
        }
    }

    /// Returns what the commands announce now about the cached Node with this name.
    pub fn announcement(&self, name: &str) -> Option<Announcement> {
        let node = self.nodes.get(name)?;
        let (term, lifecycle_term) = (self.node.get()?, self.lifecycle.get()?);
        let answer = self.cloud.metadata(&node);
        let power = self.cloud.power(&node).found();
        let preview = term.complete_preview(&node, answer.clone());
        let lifecycle = lifecycle_term.preview(&node, power);
        let hold = lifecycle.as_ref().and_then(|lifecycle| lifecycle.deletion.checks.as_ref());
        let hold = hold.and_then(|checks| checks.hold.as_ref()).map(|(_, hold)| hold.clone());
        let unreachable = lifecycle.as_ref().map(|lifecycle| lifecycle.deletion.unknown_for);
        let is_quiet = preview
            .plan
            .as_ref()
            .is_some_and(|plan| matches!(&plan.outcome, NextStep::Blocked(blocked) if blocked.is_quiet));
        let waiting = (preview.waiting_time, Duration::from_secs(if is_quiet { 60 } else { 30 }));
        let is_behind = preview.plan.as_ref().is_some_and(|plan| plan.outcome == NextStep::Superseded);
        let has_deferred = preview.defers_record || preview.defers_labels;
        let unknown = unknown_answer(&answer);
        let is_unknown = unknown.is_some();
        let planned = |preview| {
            node_plan(&NodePlanFacts {
                node: &node,
                unknown: unknown.clone(),
                has_term: true,
                preview: Some(preview),
                lifecycle: lifecycle.clone(),
                end_of: &|hold| hold.until().map(|_| "later".to_owned()),
                network_condition: None,
            })
        };
        let deletion = lifecycle_term.explain(name).filter(|facts| facts.node.is_some());
        let at = Instant::now();
        Some(Announcement {
            at,
            machine: self.cloud.version(name),
            presence: self.cloud.answered(name, Question::Presence, at),
            plan: planned(preview),
            next: planned(term.preview(&node, answer)),
            deletion: deletion.map(|facts| explain::deletion::summary(name, &facts)),
            is_unknown,
            waiting,
            off_for: power.zip(unreachable).map(|(power, unreachable)| power.lasting.min(unreachable)),
            hold,
            is_behind,
            has_deferred,
            node,
        })
    }

    /// Returns the Node at the API server.
    pub fn live(&self, name: &str) -> Option<Node> {
        self.server.node(name).map(parsed)
    }
}

/// Returns the Node of the API server's JSON.
pub fn parsed(node: Value) -> Node {
    serde_json::from_value(node).unwrap()
}
