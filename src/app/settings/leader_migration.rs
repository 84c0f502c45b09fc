//! Pure: the configuration of a leader migration, which assigns controllers to Leases. Mirrors `pkg/leadermigration` of
//! `k8s.io/controller-manager`: accepts v1alpha1, v1beta1 and v1, as YAML or JSON, and rejects unknown fields.

#[cfg(test)]
mod tests;

use crate::base::yaml::{Aliases, Entry, Node, Value, parse_document};

/// The only supported kind of lock.
pub const LEASES: &str = "leases";

/// A removed kind of lock that the format still allows.
const ENDPOINTS: &str = "endpoints";

/// The name of this program in a leader migration.
const COMPONENT: &str = "cloud-controller-manager";

/// The component that matches any program.
const ANY: &str = "*";

const GROUP: &str = "controllermanager.config.k8s.io/";
const KIND: &str = "LeaderMigrationConfiguration";

/// A leader migration: the controllers that work under the second Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderMigration {
    /// The name of the second Lease.
    pub leader_name: String,
    /// The kind of lock: `leases`, or the removed `endpoints`.
    pub resource_lock: String,
    /// The controllers, in the order of the file.
    pub controller_leaders: Vec<ControllerLeader>,
}

/// A controller that migrates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerLeader {
    /// The name of the controller.
    pub name: String,
    /// The program that runs the controller; `*` for any program.
    pub component: String,
}

/// The Lease under which a controller works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The main Lease: the controller does not migrate.
    Main,
    /// The second Lease.
    Migrated,
    /// No Lease of this program: another program runs the controller.
    Unowned,
}

/// The default of the Go program: controllers that left kube-controller-manager. The first two names are older names,
/// which match no controller of this program.
impl Default for LeaderMigration {
    fn default() -> Self {
        let any = |name: &str| ControllerLeader { name: name.to_owned(), component: ANY.to_owned() };
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            resource_lock: LEASES.to_owned(),
            controller_leaders: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"]
                .map(any)
                .to_vec(),
        }
    }
}

impl LeaderMigration {
    /// Returns the Lease of this controller in this program.
    pub fn placement(&self, controller: &str) -> Placement {
        self.placement_in(controller, COMPONENT)
    }

    /// Returns the Lease by the last entry of the controller. Aliases have no effect, since all programs must agree.
    fn placement_in(&self, controller: &str, component: &str) -> Placement {
        match self.controller_leaders.iter().rfind(|leader| leader.name == controller) {
            None => Placement::Main,
            Some(leader) if leader.component == component || leader.component == ANY => Placement::Migrated,
            Some(_) => Placement::Unowned,
        }
    }
}

/// Parses a `LeaderMigrationConfiguration`.
///
/// # Errors
/// All errors. An error that a line causes contains the line number.
pub fn parse(text: &str) -> Result<LeaderMigration, Vec<String>> {
    let document = parse_document(text, Aliases::Copied).map_err(|error| vec![error.to_string()])?;
    let mut reading = Reading { errors: Vec::new() };
    let migration = reading.configuration(&document);
    match reading.errors.is_empty() {
        true => Ok(migration),
        false => Err(reading.errors),
    }
}

struct Reading {
    errors: Vec<String>,
}

impl Reading {
    fn configuration(&mut self, document: &Node) -> LeaderMigration {
        let mut migration = LeaderMigration {
            leader_name: String::new(),
            resource_lock: String::new(),
            controller_leaders: Vec::new(),
        };
        let Some(entries) = document.entries() else {
            self.invalid(document.line, format!("expected a mapping: a {KIND}"));
            return migration;
        };
        if matches!(document.value, Value::Null) {
            self.invalid(document.line, format!("the file is empty; expected a {KIND}"));
            return migration;
        }
        let Some(version) = self.version(document.line, entries) else { return migration };
        if version == "v1" {
            migration.resource_lock = LEASES.to_owned();
        }
        self.refuse_duplicates(entries);
        for entry in entries {
            match entry.key.as_str() {
                "apiVersion" | "kind" => {}
                "leaderName" => migration.leader_name = self.text(entry),
                "resourceLock" if version != "v1" => migration.resource_lock = self.text(entry),
                "controllerLeaders" => migration.controller_leaders = self.leaders(entry),
                other => self.invalid(entry.line, format!("unknown field {other:?}")),
            }
        }
        self.validate(&migration);
        migration
    }

    /// Returns the version in `apiVersion`; `None` if the group, the version or the kind is invalid.
    fn version(&mut self, line: usize, entries: &[Entry]) -> Option<String> {
        let mut of = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| self.text(entry));
        let (kind, api_version) = (of("kind").unwrap_or_default(), of("apiVersion").unwrap_or_default());
        let version = api_version.strip_prefix(GROUP).filter(|version| ["v1alpha1", "v1beta1", "v1"].contains(version));
        match version {
            Some(version) if kind == KIND => Some(version.to_owned()),
            _ => {
                let expected = format!("expected kind {KIND} and apiVersion {GROUP}v1, v1beta1 or v1alpha1");
                self.invalid(line, format!("kind {kind:?}, apiVersion {api_version:?}: {expected}"));
                None
            }
        }
    }

    fn leaders(&mut self, list: &Entry) -> Vec<ControllerLeader> {
        let items = match &list.node.value {
            Value::List(items) => items.as_slice(),
            Value::Null => &[],
            Value::Scalar { .. } | Value::Map(_) => {
                self.invalid(list.line, "controllerLeaders: expected a list".to_owned());
                &[]
            }
        };
        items.iter().map(|item| self.leader(item)).collect()
    }

    fn leader(&mut self, item: &Node) -> ControllerLeader {
        let mut leader = ControllerLeader { name: String::new(), component: String::new() };
        let Value::Map(entries) = &item.value else {
            self.invalid(item.line, "controllerLeaders: expected name and component".to_owned());
            return leader;
        };
        self.refuse_duplicates(entries);
        for entry in entries {
            match entry.key.as_str() {
                "name" => leader.name = self.text(entry),
                "component" => leader.component = self.text(entry),
                other => self.invalid(entry.line, format!("controllerLeaders: unknown field {other:?}")),
            }
        }
        for (field, value) in [("name", &leader.name), ("component", &leader.component)] {
            if value.is_empty() {
                self.invalid(item.line, format!("controllerLeaders: {field} must be set"));
            }
        }
        leader
    }

    /// Applies the rules of `ValidateLeaderMigrationConfiguration`.
    fn validate(&mut self, migration: &LeaderMigration) {
        if migration.leader_name.is_empty() {
            self.errors.push("leaderName must be set".to_owned());
        }
        if ![LEASES, ENDPOINTS].contains(&migration.resource_lock.as_str()) {
            self.errors.push(format!("resourceLock {:?}: expected leases", migration.resource_lock));
        }
    }

    fn refuse_duplicates(&mut self, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            if entries.iter().take(index).any(|earlier| earlier.key == entry.key) {
                self.invalid(entry.line, format!("field {:?} is there twice", entry.key));
            }
        }
    }

    /// Returns the string of an entry; empty for null. Any other value is an error, even a number or boolean of YAML,
    /// as in the Go program.
    fn text(&mut self, entry: &Entry) -> String {
        match &entry.node.value {
            Value::Null => String::new(),
            Value::Scalar { text, plain } if !(*plain && is_typed(text)) => text.to_string(),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => {
                self.invalid(entry.line, format!("{}: expected a text", entry.key));
                String::new()
            }
        }
    }

    fn invalid(&mut self, line: usize, what: String) {
        self.errors.push(format!("line {line}: {what}"));
    }
}

/// Returns true if YAML 1.1 reads the scalar without quotes as a number or a boolean.
fn is_typed(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "y", "n"];
    text.parse::<f64>().is_ok() || WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}
