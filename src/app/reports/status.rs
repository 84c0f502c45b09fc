//! Pure: the report of `status`, one screen about one process.

use super::deletion_pause::DeletionPauseStatus;
use super::text::{count, duration, far_date};
use super::{Emphasis, Line, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of objects that a line names.
const NAMED: usize = 5;

/// Lease duration in seconds if the record has none, as with the default of `--leader-elect-lease-duration`.
pub const DEFAULT_LEASE_DURATION: u64 = 15;

/// What one process knows. Ages are in seconds, at `time`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// Version of the process.
    pub version: String,
    /// Time of the report.
    pub time: Timestamp,
    /// Name of the host, which is the name of the Pod unless the Pod uses the host network.
    pub host: String,
    /// Whether this process leads.
    pub leads: bool,
    /// Whether the command read API server, vCenter and NSX itself, and asked no running process.
    pub is_detached: bool,
    /// The election; `None` with `--leader-elect=false`.
    pub election: Option<ElectionStatus>,
    /// The controllers of this process.
    pub controllers: Vec<ControllerStatus>,
    /// `vsphere.conf`.
    pub configuration: ConfigurationStatus,
    /// The vCenters.
    pub vcenters: Vec<VcenterStatus>,
    /// NSX; `None` if it is not configured.
    pub nsx: Option<NsxStatus>,
    /// The Nodes; `None` if this process does not run the node controller now.
    pub nodes: Option<NodeCounts>,
    /// The deletion of Nodes; `None` if this process does not run the node-lifecycle controller now.
    pub deletion: Option<DeletionStatus>,
    /// The pause of deletions; `None` if the node-lifecycle controller is off in this process.
    pub deletion_pause: Option<DeletionPauseStatus>,
    /// What else is not as it should be, or is worth knowing.
    pub notes: Vec<StatusNote>,
}

/// The election of the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElectionStatus {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of the holder; `None` without a holder.
    pub holder: Option<String>,
    /// Time since which the holder leads.
    pub since: Option<Timestamp>,
    /// Time since this process last read or wrote the Lease; `None` before.
    pub read_age_seconds: Option<u64>,
    /// Time since this process last saw a renewal.
    pub renewal_age_seconds: Option<u64>,
    /// Time without a renewal after which another process may take the Lease.
    pub lease_duration_seconds: Option<u64>,
}

/// A controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Name of the controller.
    pub name: String,
    /// The state.
    pub state: ControllerState,
    /// Reason of the state, if the controller idles.
    pub reason: Option<String>,
}

/// The state of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ControllerState {
    /// The controller works.
    Working,
    /// The controller has no work, because of the configuration.
    Idle,
    /// The controller cannot work, because a permission is missing.
    Refused,
    /// The controller begins soon.
    Starting,
    /// Another process leads for this controller.
    Standby,
}

/// The configuration in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// Number of accepted configurations since the start of the process, the first one included.
    pub generation: u64,
    /// Time at which the configuration in use was read.
    pub read: Timestamp,
    /// Errors of a later configuration that was refused.
    pub refused: Option<String>,
}

/// One vCenter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VcenterStatus {
    /// Host and port.
    pub server: String,
    /// Age of the inventory; 0 while it is current. `None` if nothing was read yet.
    pub inventory_age_seconds: Option<u64>,
    /// Reason why the inventory is not current, if it is not.
    pub failure: Option<String>,
    /// Number of VMs that are behind Nodes.
    pub virtual_machines: usize,
    /// Age of the session; `None` before the first login.
    pub session_age_seconds: Option<u64>,
    /// Reason why newer credentials are not in use, if vCenter rejected them.
    pub rejected_credentials: Option<String>,
    /// Whether the certificate is verified.
    pub is_certificate_verified: bool,
    /// Expiry of the certificate.
    pub certificate_expiry: Option<Timestamp>,
    /// Age of the last poll of tags.
    pub tags_age_seconds: Option<u64>,
    /// Time until the next poll of tags.
    pub next_tag_poll_seconds: Option<u64>,
    /// Reason why zones and regions cannot be read, if any.
    pub tag_failure: Option<String>,
    /// Pause of logins.
    pub login_pause: Option<PauseStatus>,
}

/// A pause of logins that protects the account from lockout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseStatus {
    /// The end of the pause.
    pub until: Timestamp,
    /// The cause.
    pub cause: String,
    /// The command that ends the pause for all replicas; `None` if only this process counts its failed logins.
    pub reset_command: Option<String>,
}

/// NSX, its load balancers and routes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NsxStatus {
    /// Host and port.
    pub server: String,
    /// Whether this process uses NSX now. A standby does not.
    pub is_in_use: bool,
    /// Whether a login is in use.
    pub is_logged_in: bool,
    /// Reason of the last failed login, or of rejected newer credentials.
    pub failure: Option<String>,
    /// Whether the certificate is verified.
    pub is_certificate_verified: bool,
    /// Expiry of the certificate.
    pub certificate_expiry: Option<Timestamp>,
    /// Pause of logins.
    pub login_pause: Option<PauseStatus>,
    /// The load balancers; `None` if this process does not run the service controller now.
    pub load_balancers: Option<BalancerCounts>,
    /// The routes; `None` if this process does not run the route controller now.
    pub routes: Option<RouteCounts>,
}

/// The load balancers of Services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BalancerCounts {
    /// Number of Services whose load balancer was ensured in this term of leadership.
    pub ensured: usize,
    /// Number of Services that wait for their first sync in this term, or for a list of the objects in NSX.
    pub waiting: usize,
    /// Services whose load balancer is not up to date.
    pub held: Vec<HeldObject>,
    /// Number of objects in NSX that name this cluster and are not known to be its objects.
    pub ambiguous_objects: Option<usize>,
    /// Number of deleted Services that still have load balancers.
    pub orphans: Option<usize>,
    /// Age of the last complete list of the objects in NSX; `None` before the first list of this term of leadership.
    pub list_age_seconds: Option<u64>,
    /// Reason why the objects in NSX cannot be listed now, if any.
    pub list_failure: Option<String>,
}

/// The routes of the pod network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteCounts {
    /// Whether the routes were listed in this term of leadership.
    pub are_listed: bool,
    /// Reason why the routes cannot be listed now, if any.
    pub failure: Option<String>,
    /// Number of routes that match their Node.
    pub ready: usize,
    /// Number of destinations whose changes were not tried yet.
    pub pending: usize,
    /// Destinations that cannot be changed.
    pub held: Vec<HeldObject>,
}

/// An object that a reason blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldObject {
    /// Name of the object.
    pub name: String,
    /// The reason, as in conditions, Events and metrics.
    pub reason: String,
    /// Time for which this reason has blocked the object in this term of leadership.
    pub for_seconds: u64,
    /// Whether that is as it should be.
    pub is_expected: bool,
}

/// The Nodes of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Number of Nodes.
    pub nodes: usize,
    /// Number of Nodes that are up to date.
    pub settled: usize,
    /// Number of Nodes that wait for their first reconcile in this term of leadership.
    pub waiting: usize,
    /// Nodes that cannot be brought up to date.
    pub held: Vec<HeldObject>,
    /// The selected Node, if one is selected. The counts above are then those of this Node.
    pub selected: Option<String>,
}

/// The deletion of Nodes whose VMs are gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionStatus {
    /// The mode: `enforce`, `dry-run` or `off`.
    pub mode: String,
    /// Number of Nodes that may be deleted now.
    pub allowance: usize,
    /// Limit of the deletions within the window.
    pub limit: usize,
    /// Whether deletions pause because many VMs are absent at the same time.
    pub is_mass_held: bool,
    /// Number of Nodes whose VM may be absent, and about which vCenter has not answered yet.
    pub unanswered: usize,
    /// Nodes that are not deleted, or not taken out of service, for a reason.
    pub pending: Vec<HeldObject>,
    /// The last deletion, by any replica.
    pub last: Option<DeletedNodeStatus>,
}

/// A Node that a replica deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedNodeStatus {
    /// Name of the Node.
    pub name: String,
    /// UID of the Node.
    pub uid: String,
    /// Time of the proof that the VM is absent, right before the deletion.
    pub time: Timestamp,
    /// The proof.
    pub proof: String,
    /// Host of the replica.
    pub replica: String,
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusNote {
    /// Whether it is not as it should be. Otherwise it is worth knowing.
    pub is_finding: bool,
    /// The subject, such as a controller.
    pub subject: String,
    /// The remark.
    pub message: String,
}

impl ConfigurationStatus {
    /// Returns the state of the first configuration, which was read at this time.
    pub fn new(read: Timestamp) -> Self {
        Self { generation: 1, read, refused: None }
    }

    /// Records a configuration that was read at this time and accepted. `is_changed` is false if it means the same as
    /// the one before.
    pub fn accept(&mut self, is_changed: bool, read: Timestamp) {
        self.generation += u64::from(is_changed);
        self.read = read;
        self.refused = None;
    }
}

impl StatusReport {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "Status";

    /// Returns the result. A part that was not looked at is not as it should be: the result is then incomplete.
    pub fn verdict(&self) -> Verdict {
        if self.lines().iter().any(|line| line.emphasis == Emphasis::Finding) {
            return Verdict::Findings;
        }
        let has_started = |controller: &ControllerStatus| {
            !matches!(controller.state, ControllerState::Starting | ControllerState::Standby)
        };
        // Without a running process, the Nodes and their deletions are not known.
        let is_complete = !self.is_detached
            && self.controllers.iter().all(has_started)
            && self.nodes.as_ref().is_none_or(|nodes| nodes.waiting == 0)
            && self.deletion.as_ref().is_none_or(|deletion| deletion.unanswered == 0)
            && self.deletion_pause.as_ref().is_none_or(|pause| pause.is_paused.is_some())
            && self.nsx.as_ref().is_none_or(NsxStatus::is_complete);
        if is_complete { Verdict::Ok } else { Verdict::Incomplete }
    }

    /// Whether no controller works here, because another process leads.
    fn is_standby(&self) -> bool {
        !self.leads && self.controllers.iter().all(|one| one.state == ControllerState::Standby)
    }

    /// Returns the text.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = self.first_lines();
        for vcenter in &self.vcenters {
            lines.extend(vcenter.lines(self.time));
        }
        if let Some(nsx) = &self.nsx {
            lines.extend(nsx.lines(self.time));
        }
        if let Some(nodes) = &self.nodes {
            lines.extend(nodes.lines());
        }
        if let Some(deletion) = &self.deletion {
            lines.extend(deletion.lines());
        }
        if let Some(pause) = &self.deletion_pause {
            lines.extend(pause.lines(self.time));
        }
        lines.extend(self.login_lines());
        lines.extend(self.controllers.iter().filter(|_| !self.is_standby()).flat_map(ControllerStatus::lines));
        for note in &self.notes {
            let emphasis = if note.is_finding { Emphasis::Finding } else { Emphasis::Notice };
            lines.extend(Line::wrapped(emphasis, &[format!("{}: {}", note.subject, note.message)]));
        }
        lines
    }

    fn first_lines(&self) -> Vec<Line> {
        let mut fields = Vec::new();
        let leader = self.election.as_ref().map(|election| election.text(self.time));
        match (&leader, !self.is_standby()) {
            (leader, _) if self.is_detached => {
                fields.push(format!("read from {}", self.host));
                fields.push(leader.clone().unwrap_or_else(|| "no election".to_owned()));
            }
            (None, _) => fields.push(format!("leader {}, without an election", self.host)),
            (Some(leader), true) => {
                fields.push(format!("{leader}, this process"));
                fields.push("standbys are not known here".to_owned());
            }
            (Some(leader), false) => {
                fields.push(format!("standby {}, this process", self.host));
                fields.push(leader.clone());
            }
        }
        let ConfigurationStatus { generation, read, refused } = &self.configuration;
        fields.push(format!("configuration generation {generation}, read {}", read.strftime("%H:%M:%SZ")));
        let mut lines = Line::wrapped(Emphasis::Plain, &fields);
        if let (Some(election), true) = (&self.election, self.is_standby()) {
            let text = "only the leader knows what it decided about Nodes and deletions; find its Pod with".to_owned();
            lines.extend(Line::wrapped(Emphasis::Notice, &[text]));
            lines.push(Line::new(Emphasis::Notice, &format!("  {}", election.command())));
        }
        if let Some(election) = self.election.as_ref().filter(|_| !self.is_detached) {
            lines.extend(election.stale_lines());
        }
        if let Some(refused) = refused {
            let text =
                format!("configuration: the changed vsphere.conf is refused, the one before is in use: {refused}");
            lines.extend(Line::wrapped(Emphasis::Finding, &[text]));
        }
        lines
    }

    fn login_lines(&self) -> Vec<Line> {
        let of_vcenters =
            self.vcenters.iter().filter_map(|one| Some(("vCenter", &one.server, one.login_pause.as_ref()?)));
        let of_nsx = self.nsx.iter().filter_map(|one| Some(("NSX", &one.server, one.login_pause.as_ref()?)));
        let mut paused = of_vcenters.chain(of_nsx).peekable();
        let mut lines = Vec::new();
        if paused.peek().is_none() {
            let mut fields = vec!["logins not paused".to_owned()];
            let next = self.vcenters.iter().filter_map(|vcenter| vcenter.next_tag_poll_seconds).min();
            fields.extend(next.map(|seconds| format!("next: tag poll in {}", duration(seconds))));
            lines.extend(Line::wrapped(Emphasis::Plain, &fields));
        }
        for (product, server, PauseStatus { until, cause, .. }) in paused {
            let text = format!("logins to {product} {server} are paused until {until}: {cause}");
            lines.extend(Line::wrapped(Emphasis::Finding, &[text]));
        }
        lines
    }
}

/// Whether `wanted`, a host or a host and port, is this server, which has a port.
pub fn is_same_server(server: &str, wanted: &str) -> bool {
    server == wanted || server.rsplit_once(':').is_some_and(|(host, _)| host == wanted)
}

impl ElectionStatus {
    /// Returns the name of the leader's host. The identity is `HOST_UUID`, as the Go program writes it.
    fn host(&self) -> Option<&str> {
        let holder = self.holder.as_deref()?;
        Some(holder.rsplit_once('_').map_or(holder, |(host, _)| host))
    }

    fn text(&self, time: Timestamp) -> String {
        let Some(host) = self.host() else { return "no leader".to_owned() };
        match self.since {
            Some(since) => format!("leader {host} for {}", duration(seconds_between(since, time))),
            None => format!("leader {host}"),
        }
    }

    /// Returns the line about a Lease that this process cannot read, so that the leader may be another one.
    fn stale_lines(&self) -> Vec<Line> {
        let limit = self.lease_duration_seconds.unwrap_or_default().max(DEFAULT_LEASE_DURATION);
        let Some(age) = self.read_age_seconds.filter(|age| *age > limit) else { return Vec::new() };
        let Self { namespace, name, .. } = self;
        let text = format!(
            "Lease {namespace}/{name}: last read {} ago, so another process may lead: the API server does not answer \
             this process",
            duration(age)
        );
        Line::wrapped(Emphasis::Finding, &[text])
    }

    /// Returns the command that finds the Pod of the leader. The host is the Pod's name, or the name of its Node.
    pub fn command(&self) -> String {
        let Self { namespace, name, .. } = self;
        // The holder wrote its name itself. A shell must not interpret it.
        let is_name = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '.';
        match self.host().filter(|host| host.chars().all(is_name) && !host.starts_with('-')) {
            Some(host) => format!("kubectl -n {namespace} get pods -o wide | grep -w {host}"),
            None => format!("kubectl -n {namespace} get lease {name} -o yaml"),
        }
    }
}

impl ControllerStatus {
    fn lines(&self) -> Vec<Line> {
        let (emphasis, text) = match (self.state, &self.reason) {
            (ControllerState::Working, _) => return Vec::new(),
            (ControllerState::Refused, Some(reason)) => (Emphasis::Finding, reason.as_str()),
            (ControllerState::Refused, None) => (Emphasis::Finding, "a permission is missing"),
            (ControllerState::Idle, Some(reason)) => (Emphasis::Notice, reason.as_str()),
            (ControllerState::Idle, None) => (Emphasis::Notice, "idle"),
            (ControllerState::Starting, _) => (Emphasis::Notice, "begins soon"),
            (ControllerState::Standby, _) => (Emphasis::Notice, "another process leads for it"),
        };
        Line::wrapped(emphasis, &[format!("{}: {text}", self.name)])
    }
}

impl VcenterStatus {
    fn lines(&self, time: Timestamp) -> Vec<Line> {
        let is_current = self.inventory_age_seconds == Some(0) && self.failure.is_none();
        let state = match self.inventory_age_seconds {
            _ if is_current => "connected, current".to_owned(),
            Some(age) => format!("not connected, inventory {} old", duration(age)),
            None => "not connected, nothing was read yet".to_owned(),
        };
        let mut fields = vec![format!("vCenter {}", self.server), state, count(self.virtual_machines, "VM")];
        fields.extend(self.session_age_seconds.map(|age| format!("session {}", duration(age))));
        fields.extend(self.certificate_expiry.map(|expiry| certificate(expiry, time)));
        fields.extend(self.tags_age_seconds.map(|age| format!("tags {} ago", duration(age))));
        let emphasis = if is_current { Emphasis::Plain } else { Emphasis::Finding };
        let mut lines = Line::wrapped(emphasis, &fields);
        let findings = [
            self.failure.as_ref().map(|failure| format!("not current: {failure}")),
            self.rejected_credentials.as_ref().map(|why| format!("new credentials are rejected: {why}")),
            self.tag_failure.as_ref().map(|why| format!("zones and regions stay as they are: {why}")),
            (!self.is_certificate_verified).then(|| INSECURE.to_owned()),
        ];
        for finding in findings.into_iter().flatten() {
            lines.extend(Line::wrapped(Emphasis::Finding, &[format!("vCenter {}: {finding}", self.server)]));
        }
        lines
    }
}

const INSECURE: &str =
    "insecure-flag is on, so its certificate is not verified: set thumbprint or ca-file in vsphere.conf instead";

impl NsxStatus {
    /// Whether all is known that this process has to know. A process that does not use NSX has to know nothing.
    pub(super) fn is_complete(&self) -> bool {
        let are_balancers_known =
            self.load_balancers.as_ref().is_none_or(|one| one.waiting == 0 && one.orphans.is_some());
        let are_routes_known = self.routes.as_ref().is_none_or(|one| one.are_listed && one.pending == 0);
        !self.is_in_use || (self.is_logged_in && are_balancers_known && are_routes_known)
    }

    fn lines(&self, time: Timestamp) -> Vec<Line> {
        let state = match (self.is_in_use, self.is_logged_in) {
            (false, _) => "used by the leader only",
            (true, true) => "connected",
            (true, false) => "no login",
        };
        let mut fields = vec![format!("NSX {}", self.server), state.to_owned()];
        let mut held = Vec::new();
        if let Some(balancers) = &self.load_balancers {
            let orphans =
                balancers.orphans.map(|orphans| format!(", {}", count(orphans, "orphan"))).unwrap_or_default();
            let (ensured, blocked) = (count(balancers.ensured, "load balancer"), balancers.held.len());
            let waiting =
                if balancers.waiting > 0 { format!(", {} waiting", balancers.waiting) } else { String::new() };
            fields.push(format!("{ensured}{waiting}, {blocked} held{orphans}"));
            held.extend(held_text("load balancers held", &balancers.held));
            if let Some(objects @ 1..) = balancers.ambiguous_objects {
                let objects = count(objects, "object");
                held.push(format!("{objects} name this cluster and are not known to be its objects, so they stay"));
            }
            held.extend(balancers.list_failure.as_ref().map(|why| format!("load balancers cannot be listed: {why}")));
        }
        if let Some(routes) = &self.routes {
            let pending = if routes.pending > 0 { format!(", {} pending", routes.pending) } else { String::new() };
            match routes.are_listed {
                true => fields.push(format!("{} Ready{pending}", count(routes.ready, "route"))),
                false => fields.push("routes not listed yet".to_owned()),
            }
            held.extend(held_text("routes held", &routes.held));
            held.extend(routes.failure.as_ref().map(|why| format!("routes cannot be listed: {why}")));
        }
        fields.extend(self.certificate_expiry.map(|expiry| certificate(expiry, time)));
        let is_failed = self.is_in_use && self.failure.is_some();
        let mut lines = Line::wrapped(if is_failed { Emphasis::Finding } else { Emphasis::Plain }, &fields);
        held.extend(self.failure.clone().filter(|_| is_failed));
        held.extend((!self.is_certificate_verified).then(|| INSECURE.to_owned()));
        for finding in held {
            lines.extend(Line::wrapped(Emphasis::Finding, &[format!("NSX {}: {finding}", self.server)]));
        }
        lines
    }
}

impl NodeCounts {
    fn lines(&self) -> Vec<Line> {
        let mut fields = match &self.selected {
            Some(name) if self.settled > 0 => vec![format!("Node {name}"), "settled".to_owned()],
            Some(name) => vec![format!("Node {name}")],
            None => vec![format!("nodes {}", self.nodes), format!("settled {}", self.settled)],
        };
        if self.waiting > 0 {
            fields.push(format!("not checked yet {}", self.waiting));
        }
        fields.extend(held_text("held", &self.held));
        Line::wrapped(if self.held.is_empty() { Emphasis::Plain } else { Emphasis::Finding }, &fields)
    }
}

impl DeletionStatus {
    /// Returns the Nodes that are deleted soon, or after a pause, and those whose deletion needs an action.
    pub fn parts(&self) -> (Vec<&HeldObject>, Vec<&HeldObject>) {
        self.pending.iter().partition(|held| held.is_expected)
    }

    fn lines(&self) -> Vec<Line> {
        let mut fields = vec![format!("deletion {}", self.mode)];
        if self.mode != "off" {
            fields.push(format!("allowance {} of {}", self.allowance, self.limit));
        }
        let (pending, held) = self.parts();
        let is_finding = self.is_mass_held || !held.is_empty();
        fields.push(held_text("pending", pending).unwrap_or_else(|| "pending none".to_owned()));
        fields.extend(held_text("held", held));
        if self.unanswered > 0 {
            fields.push(format!("not checked yet {}", self.unanswered));
        }
        fields.extend(self.last.as_ref().map(|last| format!("last: {} at {}", last.name, last.time)));
        let mut lines = Line::wrapped(if is_finding { Emphasis::Finding } else { Emphasis::Plain }, &fields);
        if self.is_mass_held {
            let text = "deletions pause, because many VMs are absent at the same time";
            lines.extend(Line::wrapped(Emphasis::Finding, &[format!("deletion: {text}")]));
        }
        lines
    }
}

/// Returns a text such as `held 2: NoZoneTags worker-7 (6 m 12 s), VMNotFound worker-9 (1 h)`; `None` without objects.
fn held_text<'a>(label: &str, held: impl IntoIterator<Item = &'a HeldObject>) -> Option<String> {
    let held: Vec<&HeldObject> = held.into_iter().collect();
    if held.is_empty() {
        return None;
    }
    let named = held.iter().take(NAMED);
    let text = |held: &&HeldObject| format!("{} {} ({})", held.reason, held.name, duration(held.for_seconds));
    let mut named: Vec<String> = named.map(text).collect();
    if held.len() > NAMED {
        named.push(format!("and {} more", held.len() - NAMED));
    }
    Some(format!("{label} {}: {}", held.len(), named.join(", ")))
}

fn certificate(expiry: Timestamp, time: Timestamp) -> String {
    if expiry <= time {
        return format!("certificate expired {}", expiry.strftime("%Y-%m-%d"));
    }
    match far_date(time, expiry) {
        Some(date) => format!("certificate until {date}"),
        None => format!("certificate {}", duration(seconds_between(time, expiry))),
    }
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_second().saturating_sub(from.as_second())).unwrap_or_default()
}

#[cfg(test)]
mod tests;
