//! The policies of a Service, in addition to its ports.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::{Kind, SERVICE, take};
use crate::invariants::nsx::routes::tag;

const ANNOTATION_SNAT: &str = "loadbalancer.vsphere-ccm.dev/snat";

/// Expected policies of a Service's objects.
pub struct Policies {
    /// The port of the health check, if only Nodes with endpoints get traffic.
    pub health_check: Option<i32>,
    /// Path of the group that may use the virtual servers.
    group: Value,
    /// Path of the virtual servers' persistence profile.
    profile: Value,
    snat: &'static str,
}

impl Policies {
    /// Returns the policies of a Service. Removes their objects from `left`.
    pub fn take<'a>(service: &Service, key: &str, left: &mut BTreeMap<&'a str, &'a Value>) -> Result<Self, String> {
        let spec = service.spec.clone().unwrap_or_default();
        let mut take_one = |kind| {
            take(left, |path, object| Kind::of(path) == Some(kind) && tag(object, SERVICE).as_deref() == Some(key))
        };
        let ranges: BTreeSet<String> = spec.load_balancer_source_ranges.into_iter().flatten().collect();
        let mut group = Value::Null;
        if !ranges.is_empty() {
            let (path, object) = take_one(Kind::Group)?;
            let networks = object["expression"].as_array().into_iter().flatten();
            let networks = networks.flat_map(|part| part["ip_addresses"].as_array().into_iter().flatten());
            let networks: BTreeSet<String> = networks.filter_map(Value::as_str).map(str::to_owned).collect();
            if networks != ranges {
                return Err(format!("the group has {networks:?}, expected {ranges:?}"));
            }
            group = json!(path);
        }
        let mut profile = Value::Null;
        if spec.session_affinity.as_deref() == Some("ClientIP") {
            let (path, object) = take_one(Kind::Profile)?;
            let timeout = spec.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
            if object["timeout"] != json!(timeout) {
                return Err(format!("the persistence profile has {}, expected {timeout:?}", object["timeout"]));
            }
            profile = json!(path);
        }
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        let annotations = service.metadata.annotations.as_ref();
        let snat = match annotations.and_then(|annotations| annotations.get(ANNOTATION_SNAT)).map(String::as_str) {
            Some("disabled") => "LBSnatDisabled",
            _ => "LBSnatAutoMap",
        };
        let health_check = spec.health_check_node_port.filter(|_| is_local);
        Ok(Self { health_check, group, profile, snat })
    }

    /// Checks the policies of a virtual server and its pool.
    pub fn check(&self, server: &Value, pool: &Value) -> Result<(), String> {
        let has = (
            &server["access_list_control"]["group_path"],
            &server["lb_persistence_profile_path"],
            &pool["snat_translation"]["type"],
        );
        let expected = (&self.group, &self.profile, &json!(self.snat));
        (has == expected).then_some(()).ok_or_else(|| format!("{has:?}, expected {expected:?}"))
    }
}
