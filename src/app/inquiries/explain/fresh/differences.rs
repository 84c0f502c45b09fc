//! Pure: the differences between what the process knows of an object and what was read again.

use crate::app::inquiries::explain::outside_text::clipped;
use crate::app::reports::explain::fresh::FieldDifference;
use crate::clients::vim::{GuestNic, MoRef};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::vcenter::snapshot::{PowerState, VmRecord};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of differences of one object.
const MAX_DIFFERENCES: usize = 10;

/// The field that changes with every write, and that no decision depends on.
const RESOURCE_VERSION: &str = "metadata.resourceVersion";

/// Returns the differences that the process has not caught up with during the read: `before` and `after` compare the
/// same read with what was known before and after it.
pub(super) fn lasting(before: Vec<FieldDifference>, after: Vec<FieldDifference>) -> Vec<FieldDifference> {
    if before.is_empty() { before } else { after }
}

/// Compares the cached form of an object with that of a read.
pub(super) fn of_object(known: Option<&Value>, read: Option<&Value>) -> Vec<FieldDifference> {
    let mut differences = Vec::new();
    match (known, read) {
        (None, None) => {}
        (Some(known), Some(read)) => compare("", known, read, &mut differences),
        (known, _) => differences.push(FieldDifference::of_existence(known.is_some())),
    }
    differences
}

fn compare(path: &str, known: &Value, read: &Value, differences: &mut Vec<FieldDifference>) {
    if known == read || path == RESOURCE_VERSION || differences.len() >= MAX_DIFFERENCES {
        return;
    }
    let (Value::Object(known), Value::Object(read)) = (known, read) else {
        differences.push(FieldDifference::new(path, shown(known), shown(read)));
        return;
    };
    let names: BTreeSet<&String> = known.keys().chain(read.keys()).collect();
    for name in names {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let value = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
        compare(&field, &value(known), &value(read), differences);
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => format!("{:?}", clipped(text)),
        other => clipped(&other.to_string()),
    }
}

/// Compares the properties of a VM. The metadata of the guest are not shown, because they may have secrets.
pub(super) fn of_vm(known: Option<&VmRecord>, read: Option<&VmRecord>) -> Vec<FieldDifference> {
    let (Some(known), Some(read)) = (known, read) else {
        let existence = || FieldDifference::of_existence(known.is_some());
        return (known.is_some() != read.is_some()).then(existence).into_iter().collect();
    };
    let mut differences = Vec::new();
    let mut compare = |field: &str, known: String, read: String| {
        if known != read {
            differences.push(FieldDifference::new(field, clipped(&known), clipped(&read)));
        }
    };
    let object = |object: &Option<MoRef>| object.as_ref().map_or_else(|| "none".to_owned(), MoRef::to_string);
    compare("name", quoted(&known.name), quoted(&read.name));
    compare("UUID", uuid(known), uuid(read));
    compare("power state", power(known), power(read));
    compare("connection state", connection(known), connection(read));
    compare("host", object(&known.host), object(&read.host));
    compare("folder", object(&known.parent), object(&read.parent));
    compare("vApp", object(&known.parent_vapp), object(&read.parent_vapp));
    compare("resource pool", object(&known.resource_pool), object(&read.resource_pool));
    compare("template", known.is_template.to_string(), read.is_template.to_string());
    compare("CPUs", number(known.cpus), number(read.cpus));
    compare("memory in MiB", number(known.memory_mib), number(read.memory_mib));
    compare("guest id", quoted(&known.guest_id), quoted(&read.guest_id));
    compare("configuration file", quoted(&known.path), quoted(&read.path));
    compare("host name of the guest", quoted(&known.host_name), quoted(&read.host_name));
    compare("VMware Tools", quoted(&known.tools), quoted(&read.tools));
    compare("addresses of the guest", nics(&known.nics), nics(&read.nics));
    compare("unreadable properties", unreadable(known), unreadable(read));
    if known.metadata != read.metadata || known.metadata_encoding != read.metadata_encoding {
        let text = |record: &VmRecord| format!("{} bytes, not shown", record.metadata.len());
        differences.push(FieldDifference::new("guestinfo.metadata", text(known), text(read)));
    }
    differences
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn uuid(record: &VmRecord) -> String {
    record.bios_uuid.as_ref().map_or_else(|| "none".to_owned(), BiosUuid::to_string)
}

fn power(record: &VmRecord) -> String {
    let state = record.power_state.map(|state| match state {
        PowerState::PoweredOn => "powered on",
        PowerState::PoweredOff => "powered off",
        PowerState::Suspended => "suspended",
    });
    state.unwrap_or("not known").to_owned()
}

fn connection(record: &VmRecord) -> String {
    record.connection_state.clone().unwrap_or_else(|| "not known".to_owned())
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// Returns the addresses with the network of each interface.
fn nics(nics: &[GuestNic]) -> String {
    if nics.is_empty() {
        return "none".to_owned();
    }
    let nic = |nic: &GuestNic| {
        let network = nic.network.as_deref().map_or_else(|| "no network".to_owned(), quoted);
        format!("{} on {network}", nic.ip_addresses.join(" "))
    };
    nics.iter().map(nic).collect::<Vec<_>>().join(", ")
}

fn unreadable(record: &VmRecord) -> String {
    let paths: BTreeSet<&str> = record.unreadable.iter().map(String::as_str).collect();
    let paths: Vec<&str> = paths.into_iter().collect();
    if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(differences: &[FieldDifference]) -> Vec<String> {
        differences.iter().map(|one| format!("{}: {} -> {}", one.field, one.known, one.read)).collect()
    }

    #[test]
    fn an_object_differs_in_the_fields_that_the_cache_keeps() {
        let known =
            json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"providerID": "p", "taints": [1]}});
        let same =
            json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"providerID": "p", "taints": [1]}});
        assert_eq!(of_object(Some(&known), Some(&same)), [], "only the version differs");
        let read = json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"providerID": "q"}});
        let expected = ["spec.providerID: \"p\" -> \"q\"", "spec.taints: [1] -> not set"];
        assert_eq!(texts(&of_object(Some(&known), Some(&read))), expected);
        assert_eq!(texts(&of_object(None, Some(&read))), ["object: does not exist -> exists"]);
        assert_eq!(texts(&of_object(Some(&known), None)), ["object: exists -> does not exist"]);
        assert_eq!(of_object(None, None), []);
        let many = |value: u32| {
            json!((0..99).map(|number| (number.to_string(), json!(value))).collect::<serde_json::Map<_, _>>())
        };
        assert_eq!(of_object(Some(&many(1)), Some(&many(2))).len(), MAX_DIFFERENCES);
    }

    #[test]
    fn a_vm_differs_in_the_watched_properties_and_its_metadata_stay_secret() {
        let known = VmRecord { name: "a".to_owned(), unreadable: vec!["x".into(), "y".into()], ..VmRecord::default() };
        let same = VmRecord { unreadable: vec!["y".into(), "x".into()], ..known.clone() };
        assert_eq!(of_vm(Some(&known), Some(&same)), [], "the order has no meaning");
        let nic =
            GuestNic { ip_addresses: vec!["10.0.0.1".into()], network: Some("net".into()), ..GuestNic::default() };
        let read = VmRecord {
            name: "b".to_owned(),
            power_state: Some(PowerState::PoweredOff),
            host: Some(MoRef::new("HostSystem", "host-9")),
            nics: vec![nic],
            metadata: "password".to_owned(),
            ..known.clone()
        };
        let expected = [
            "name: \"a\" -> \"b\"",
            "power state: not known -> powered off",
            "host: none -> HostSystem:host-9",
            "addresses of the guest: none -> 10.0.0.1 on \"net\"",
            "guestinfo.metadata: 0 bytes, not shown -> 8 bytes, not shown",
        ];
        assert_eq!(texts(&of_vm(Some(&known), Some(&read))), expected);
        assert_eq!(texts(&of_vm(Some(&known), None)), ["object: exists -> does not exist"]);
        assert_eq!(of_vm(None, None), []);
    }

    #[test]
    fn a_change_that_arrives_during_the_read_is_no_difference() {
        let one = || vec![FieldDifference::new("name", "a", "b")];
        assert_eq!(lasting(one(), Vec::new()), [], "the process has learnt it");
        assert_eq!(lasting(Vec::new(), one()), [], "the process has learnt more than the read");
        assert_eq!(lasting(one(), one()), one());
    }
}
