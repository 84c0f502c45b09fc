//! Realized state: when an object is realized, or why it is not.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::behaviour::PendingAnswer;
use super::call::{Call, Target};
use super::constraints;
use super::refusal::Refusal;
use super::store::{Stored, parent};
use super::world::World;

/// The realization of an object after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Realization {
    /// The object is realized after this time.
    After(Duration),
    /// The object is never realized.
    Never,
    /// The realization fails after this time with an alarm of this code and message.
    Error(Duration, i64, String),
}

/// The realization of each object, the newest entry last.
#[derive(Debug, Default)]
pub(super) struct RealizationPlans(Vec<(String, Realization)>);

impl RealizationPlans {
    /// Sets the realization of the object with this path, of the objects of this collection, or with `*` of all
    /// objects.
    pub(super) fn set(&mut self, what: &str, realization: Realization) {
        self.0.retain(|(of, _)| of != what);
        self.0.push((what.to_owned(), realization));
    }

    fn of(&self, stored: &Stored) -> Realization {
        let named = |what: &str| self.0.iter().find(|(of, _)| of == what).map(|(_, realization)| realization.clone());
        let found = named(&stored.path).or_else(|| named(stored.kind.collection())).or_else(|| named("*"));
        found.unwrap_or(Realization::After(Duration::from_millis(200)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RealizationState {
    Pending,
    Realized,
    Error(i64, String),
}

impl World {
    /// Returns the additional duration of a write with `sync_realization`.
    pub(super) fn synchronous_delay(&self, call: &Call) -> Option<Duration> {
        let Target::Object(_, path) = &call.target else { return None };
        let stored = self.store.get(path).filter(|_| call.is_write())?;
        stored.body.get("sync_realization").filter(|wish| **wish == json!(true))?;
        match self.plans.of(stored) {
            Realization::After(delay) | Realization::Error(delay, ..) => {
                Some(delay.saturating_sub(stored.changed.elapsed()))
            }
            Realization::Never => None,
        }
    }

    /// Records the realized revision of this object before the object is rewritten.
    pub(super) fn note_realized(&mut self, path: &str) {
        match self.store.get(path).map(|stored| self.realization(stored)) {
            Some((RealizationState::Realized, revision)) => {
                self.realized_before.insert(path.to_owned(), revision);
            }
            Some(_) => {}
            None => drop(self.realized_before.remove(path)),
        }
    }

    /// Sets how objects are realized from now on. Objects that are already realized stay so.
    pub(super) fn set_realization(&mut self, what: &str, realization: Realization) {
        let paths: Vec<String> = self.store.all().map(|stored| stored.path.clone()).collect();
        paths.iter().for_each(|path| self.note_realized(path));
        self.plans.set(what, realization);
    }

    pub(super) fn state(&self, stored: &Stored) -> RealizationState {
        self.realization(stored).0
    }

    fn realization(&self, stored: &Stored) -> (RealizationState, i64) {
        let older = self.realized_before.get(&stored.path).filter(|before| **before < stored.revision);
        match (self.state_of_revision(stored), older.filter(|_| self.behaviour.keeps_old_realization)) {
            (RealizationState::Pending, Some(before)) => (RealizationState::Realized, *before),
            (state, _) => (state, stored.revision),
        }
    }

    fn state_of_revision(&self, stored: &Stored) -> RealizationState {
        if let Some((code, message)) = self.hindrance(stored) {
            return RealizationState::Error(code, message);
        }
        let age = Instant::now() - stored.changed;
        let (delay, planned) = match self.plans.of(stored) {
            Realization::After(delay) => (delay, RealizationState::Realized),
            Realization::Never => return RealizationState::Pending,
            Realization::Error(delay, code, message) => (delay, RealizationState::Error(code, message)),
        };
        if age < delay {
            return RealizationState::Pending;
        }
        match (self.pools.assigned(&stored.path), self.over_capacity.get(&stored.path)) {
            (Some(Err(message)), _) => RealizationState::Error(8212, message.to_owned()),
            (None, Some(message)) => RealizationState::Error(23_501, message.clone()),
            _ => planned,
        }
    }

    fn intent(&self, query: &[(String, String)]) -> Result<&Stored, Refusal> {
        let path = query.iter().find(|(name, _)| name == "intent_path").map(|(_, value)| value.as_str());
        let path = path.ok_or_else(|| Refusal::invalid("\"intent_path\": is required"))?;
        self.store.find(path).ok_or_else(|| Refusal::not_found(path))
    }

    /// Returns the reason why the network cannot implement an object that the manager accepted.
    fn hindrance(&self, stored: &Stored) -> Option<(i64, String)> {
        match stored.kind.collection() {
            "lb-services" => self.hindrance_of_service(stored),
            "lb-virtual-servers" => {
                let other = self.deleted_listener(stored)?;
                let address = stored.text("ip_address").unwrap_or_default();
                Some((23_534, format!("the IP address {address} and port are in use by {}", other.path)))
            }
            _ => None,
        }
    }

    fn hindrance_of_service(&self, service: &Stored) -> Option<(i64, String)> {
        let gateway = service.text("connectivity_path")?;
        if !self.has_edge_cluster(gateway) {
            return Some((23_523, format!("the gateway {gateway} has no edge cluster")));
        }
        let room = self.edge_credits.get(gateway)?;
        let needed = constraints::edge_credits(service);
        let message = format!("the edge cluster of {gateway} has {room} credits left, and {needed} are needed");
        (needed > *room).then_some((23_514, message))
    }

    fn has_edge_cluster(&self, gateway: &str) -> bool {
        let services = self.store.below(gateway).filter(|one| one.kind.collection() == "locale-services");
        services.filter(|one| !one.is_marked()).any(|one| one.text("edge_cluster_path").is_some())
    }

    /// Answers `realized-state/realized-entities`.
    pub(super) fn realized_entities(&self, query: &[(String, String)]) -> Result<Value, Refusal> {
        let stored = self.intent(query)?;
        if !stored.is_in_effect() {
            return match self.behaviour.pending {
                PendingAnswer::Empty => Ok(json!({"result_count": 0, "results": []})),
                PendingAnswer::NotFound | PendingAnswer::Unrealized => Err(Refusal::not_found(&stored.path)),
            };
        }
        let state = self.state(stored);
        let rows = match (&state, self.behaviour.pending) {
            (RealizationState::Pending, PendingAnswer::NotFound) => return Err(Refusal::not_found(&stored.path)),
            (RealizationState::Pending, PendingAnswer::Empty) => Vec::new(),
            _ => vec![self.row(stored, &state)],
        };
        Ok(json!({"result_count": rows.len(), "results": rows}))
    }

    fn row(&self, stored: &Stored, state: &RealizationState) -> Value {
        let above = parent(&stored.path).rsplit('/').next().unwrap_or_default();
        let id = if above == "infra" { stored.id().to_owned() } else { format!("{above}-{}", stored.id()) };
        let point = "/infra/realized-state/enforcement-points/default";
        let (entity_type, folder) = match stored.resource_type {
            "StaticRoutes" if stored.kind.collections[0] == "tier-0s" => {
                ("RealizedStaticRoute", "tier-0-static-routes")
            }
            "StaticRoutes" => ("RealizedStaticRoute", "tier-1-static-routes"),
            "IpAddressAllocation" => ("AllocationIpAddress", "ip-allocations"),
            "LBPool" => ("RealizedLbPool", "lb-pools"),
            "LBVirtualServer" => ("RealizedLbVirtualServer", "lb-virtual-servers"),
            other => (other, stored.kind.collection()),
        };
        let (name, alarms) = match state {
            RealizationState::Pending => ("UNREALIZED", json!([])),
            RealizationState::Realized => ("REALIZED", json!([])),
            RealizationState::Error(code, message) => {
                let details = json!({"error_code": code, "error_message": message});
                ("ERROR", json!([{"message": message, "error_details": details, "source_reference": stored.path}]))
            }
        };
        let mut row = json!({
            "resource_type": "GenericPolicyRealizedResource",
            "entity_type": entity_type,
            "id": id,
            "path": format!("{point}/{folder}/{id}"),
            "parent_path": point,
            "state": name,
            "alarms": alarms,
            "runtime_status": "UNINITIALIZED",
            "intent_paths": [stored.path],
            "intent_reference": [stored.path],
            "realization_specific_identifier": stored.unique_id,
            "_create_user": "system",
            "_create_time": stored.created.1,
            "_last_modified_user": "system",
            "_last_modified_time": stored.modified.1,
            "_system_owned": false,
            "_protection": "NOT_PROTECTED",
            "_revision": stored.revision,
        });
        if !self.behaviour.rows_name_intents {
            row.as_object_mut().expect("a row is an object").retain(|name, _| !name.starts_with("intent_"));
        }
        if *state != RealizationState::Pending {
            row["extended_attributes"] = Value::Array(self.attributes(stored, state));
        }
        row
    }

    fn attributes(&self, stored: &Stored, state: &RealizationState) -> Vec<Value> {
        let attribute =
            |key: &str, value: &str| json!({"data_type": "STRING", "multivalue": false, "key": key, "values": [value]});
        match (stored.resource_type, self.pools.assigned(&stored.path)) {
            ("IpAddressAllocation", Some(Ok(address))) if *state == RealizationState::Realized => {
                vec![attribute("allocation_ip", &address.to_string())]
            }
            ("StaticRoutes", _) => {
                let router = self.store.find(parent(&stored.path)).map(|router| router.unique_id.as_str());
                vec![attribute("logical-router-id", router.unwrap_or_default())]
            }
            _ => Vec::new(),
        }
    }

    /// Answers `realized-state/status`.
    pub(super) fn realized_status(&self, query: &[(String, String)]) -> Result<Value, Refusal> {
        let stored = self.intent(query)?;
        let (state, revision) = self.realization(stored);
        let (publish, consolidated) = match state {
            RealizationState::Pending => ("UNREALIZED", "IN_PROGRESS"),
            RealizationState::Realized => ("REALIZED", "SUCCESS"),
            RealizationState::Error(..) => ("ERROR", "ERROR"),
        };
        let mut status = json!({
            "intent_path": stored.path,
            "publish_status": publish,
            "consolidated_status": {"consolidated_status": consolidated},
        });
        if self.behaviour.shows_intent_version && state != RealizationState::Pending {
            status["intent_version"] = json!(revision.to_string());
        }
        Ok(status)
    }
}
