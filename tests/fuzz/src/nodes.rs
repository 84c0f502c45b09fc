//! Fuzz targets for Nodes from the API server, and for single values.

use ccm::base::go_duration::{parse_duration, spelled};
use ccm::clients::http::Thumbprint;
use ccm::clients::vim::decode_name;
use ccm::cloud::node::addresses::{merge, parse_provided_node_ips};
use ccm::cloud::node::{self, Readiness};
use ccm::controllers::node_lifecycle::deletion_policy::Facts;
use ccm::providers::provider_id::{BiosUuid, is_own, parse_provider_id};
use ccm::providers::vsphere::login::credentials::pem;
use ccm::providers::vsphere::nodes::absence::location::Location;
use ccm::providers::vsphere::nodes::lookup::facts::facts_of;
use ccm::providers::vsphere::nodes::metadata::instance_type::build_instance_type;
use k8s_openapi::api::core::v1::Node;

/// Reads a Node in JSON. A Node of another provider is ignored. Facts of its machine that cannot be read are not made
/// up.
pub fn object(bytes: &[u8]) {
    let Ok(node) = serde_json::from_slice::<Node>(bytes) else { return };
    let id = node::provider_id(&node);
    let facts = facts_of(&node);
    assert_eq!(facts.is_some(), id.is_empty() || is_own(id), "whose node is {id:?}?");
    if let Some(facts) = facts {
        assert_eq!(facts.has_provider_id, !id.is_empty(), "{id:?}");
        assert!(
            !facts.has_provider_id || facts.search_uuid() == facts.provider_id.as_ref(),
            "searched by another UUID"
        );
        assert!(!facts.is_initialized || facts.provider_id.is_some(), "initialized without a machine");
        let recorded = facts.recorded.as_deref().map(Location::to_record);
        assert_eq!(
            recorded.as_deref().and_then(Location::parse).as_ref(),
            facts.recorded.as_deref(),
            "a record is read as another one"
        );
    }
    let guarded = Facts::of(&node, is_own(id));
    let is_ready = guarded.readiness == Readiness::True;
    assert!(!guarded.may_have_absent_vm || (is_own(id) && !is_ready && !id.is_empty()), "suspected: {guarded:?}");
    if let Ok(merged) = merge(&node, node::addresses::of(&node)) {
        assert!(merged.len() <= node::addresses::of(&node).len() + 1, "addresses are made up");
    }
}

/// Reads one text as each kind of value that fits in one line. A value that was read survives a round trip through its
/// text.
pub fn value(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(uuid) = parse_provider_id(&text) {
        assert_eq!(parse_provider_id(&uuid.provider_id()).as_ref(), Ok(&uuid), "{uuid}");
        assert_eq!(uuid.to_string().parse::<BiosUuid>().as_ref(), Ok(&uuid), "{uuid}");
        assert_eq!(uuid.byte_swapped().byte_swapped(), uuid, "{uuid}");
        assert!(is_own(&text) && is_own(&uuid.provider_id()), "{text:?}");
    }
    if let Some(print) = Thumbprint::parse(&text) {
        assert_eq!(Thumbprint::parse(&print.to_string()), Some(print), "{print}");
    }
    if let Ok(duration) = parse_duration(&text) {
        assert_eq!(parse_duration(&spelled(duration)).ok(), Some(duration), "{duration:?}");
    }
    if let Ok(ips) = parse_provided_node_ips(&text) {
        let printed: Vec<String> = ips.iter().map(ToString::to_string).collect();
        assert_eq!(parse_provided_node_ips(&printed.join(",")).ok(), Some(ips), "{printed:?}");
    }
    if let Some(location) = Location::parse(&text) {
        assert_eq!(Location::parse(&location.to_record()).as_ref(), Some(&location), "{location:?}");
        assert!(!location.vm.is_empty() && !location.vcenter.is_empty(), "{location:?}");
    }
    let decoded = decode_name(&text);
    assert!(decoded.len() <= text.len(), "{decoded}");
    let label = build_instance_type(4, 8192, &text);
    assert!(label.len() < 128, "an instance type of {} bytes", label.len());
    if pem::kind_of(&text) == pem::PemKind::Complete {
        assert!(text.contains("-----BEGIN"), "{text}");
    }
}
