//! The state of a manager, and its answers to accepted requests.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::access::{Access, Credential, Sessions};
use super::behaviour::Behaviour;
use super::call::{Call, Method, Target};
use super::constraints::Usage;
use super::limits::Limits;
use super::managers::Managers;
use super::pools::Pools;
use super::realization::{RealizationPlans, RealizationState};
use super::record::Records;
use super::refusal::Refusal;
use super::server_fields;
use super::store::{Store, Stored};
use super::trouble::Trouble;
use super::writes::Caller;
use crate::fake_server::http::Reply;
use crate::fake_server::rules::Rules;
use crate::fake_vcenter::logins::Logins;

/// The state. It is never locked across an await.
pub(super) struct World {
    pub(super) behaviour: Behaviour,
    pub(super) prefix: String,
    pub(super) serves_sessions: Sessions,
    pub(super) access: Access,
    pub(super) limits: Limits,
    pub(super) managers: Managers,
    pub(super) rules: Rules<Trouble>,
    pub(super) records: Records,
    pub(super) logins: Logins,
    pub(super) store: Store,
    pub(super) pools: Pools,
    pub(super) plans: RealizationPlans,
    /// Reason why an object is realized as an error, by path.
    pub(super) over_capacity: BTreeMap<String, String>,
    /// Last realized revision of each object when it was rewritten or its realization was set, by path.
    pub(super) realized_before: BTreeMap<String, i64>,
    /// Usage of load balancer services at the last count, by path.
    pub(super) usages: BTreeMap<String, (Instant, Usage)>,
    /// Capacity for load balancer services on the edges of a gateway, by its path. Without an entry it is unlimited.
    pub(super) edge_credits: BTreeMap<String, usize>,
    pub(super) delay: Option<Duration>,
}

fn success(body: &Value) -> Reply {
    Reply::new(200, "application/json", body.to_string())
}

impl World {
    /// Returns an object as this user reads it, with the fields that the manager computes.
    pub(super) fn read(&self, stored: &Stored, reader: &str) -> Value {
        let mut object = stored.render(reader);
        if self.behaviour.fills_in {
            object["_links"] = server_fields::links(&stored.path);
        }
        match stored.resource_type {
            "IpAddressPool" => {
                let usage = self.pools.usage(&self.store, &stored.path);
                object["ip_address_type"] = usage["ip_address_type"].clone();
                object["pool_usage"] = usage["pool_usage"].clone();
            }
            "IpAddressAllocation" if self.behaviour.shows_allocated_ip => {
                if let (Some(Ok(address)), RealizationState::Realized) =
                    (self.pools.assigned(&stored.path), self.state(stored))
                {
                    object["allocated_ip"] = json!(address);
                }
            }
            _ => {}
        }
        object
    }

    /// Removes the marked objects whose purge is due.
    pub(super) fn purge(&mut self) {
        self.store.purge();
    }

    pub(super) fn serve(&mut self, call: &Call, caller: &Caller, credential: &Credential) -> Result<Reply, Refusal> {
        self.purge();
        let user = caller.user.as_str();
        match (call.method, &call.target) {
            (Method::Get, Target::Collection(kind, parent)) => {
                self.list(kind, parent, &call.query, (user, caller.request)).map(|list| success(&list))
            }
            (Method::Get, Target::Object(_, path)) => {
                let stored = self.store.get(path).ok_or_else(|| self.store.not_found(path))?;
                Ok(success(&self.read(stored, user)))
            }
            (Method::Put | Method::Patch, Target::Object(kind, path)) => {
                let written = self.put(kind, path, call, caller)?;
                Ok(written.map_or_else(|| self.nothing(), |object| success(&object)))
            }
            (Method::Patch, Target::Infra) => {
                self.patch_infra(call, caller)?;
                Ok(self.nothing())
            }
            (Method::Delete, Target::Object(kind, path)) => {
                self.delete(kind, path, call, caller)?;
                Ok(self.nothing())
            }
            (Method::Get, Target::RealizedEntities) => self.realized_entities(&call.query).map(|rows| success(&rows)),
            (Method::Get, Target::RealizedStatus) => self.realized_status(&call.query).map(|status| success(&status)),
            (Method::Get, Target::ServiceUsage(path)) => self.service_usage(path).map(|usage| success(&usage)),
            (Method::Get, Target::NodeVersion) => {
                Ok(success(&json!({"node_version": "4.2.0.0.0.24105817", "product_version": "4.2.0.0.0.24105817"})))
            }
            (Method::Get, Target::HttpService) => Ok(success(&json!({"service_name": "http", "service_properties": {
                "session_timeout": 1800, "connection_timeout": 30, "client_api_rate_limit": 100,
                "client_api_concurrency_limit": 40, "global_api_concurrency_limit": 199}}))),
            (Method::Get, Target::Health) => {
                Ok(success(&json!({"healthy": true, "components_health": "MANAGER:UP, POLICY:UP, SEARCH:UP"})))
            }
            (Method::Post, Target::SessionDestroy) => Ok(self.access.destroy_session(credential)),
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn nothing(&self) -> Reply {
        Reply::new(if self.behaviour.answers_no_content { 204 } else { 200 }, "application/json", String::new())
    }
}
