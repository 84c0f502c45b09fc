//! Reads VMs again, from vCenter with the session in use.

use super::differences::{lasting, of_vm};
use super::objects;
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::check::accounts;
use crate::app::inquiries::explain::vm::watched_vms;
use crate::app::reports::explain::fresh::{FieldDifference, FreshObject};
use crate::app::reports::status::is_same_server;
use crate::app::reports::text::count;
use crate::base::addresses::parse_ip;
use crate::clients::vim::MoRef;
use crate::cloud::node::{self, addresses};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::reports::{NodeVmReport, VmReport, reports_address};
use crate::providers::vsphere::vcenter::Vcenter;
use crate::providers::vsphere::vcenter::reads::{ReadAnswer, SearchRead};
use crate::providers::vsphere::vcenter::snapshot::{Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::zone_tags::{ObjectTags, Tag, ZoneCategories};
use k8s_openapi::api::core::v1::NodeAddress;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of VMs of one subject that are read.
const MAX_VMS: usize = 8;

/// Maximum number of Nodes with one address that are read.
const MAX_NODES: usize = 4;

/// Reads the VM of the Node with this name, and searches by its UUID. Without a VM, searches all vCenters.
pub(super) async fn of_node(process: &Inquiries, name: &str, objects: &mut Vec<FreshObject>) {
    let (Some(node), Some(provider)) = (process.nodes.get(name), process.vsphere.provider()) else { return };
    let report = provider.node_report(&node);
    if let Some(vm) = &report.vm {
        let Some(vcenter) = vcenter_of(process, &vm.server) else { return };
        read_vm(&vcenter, &vm.key.id, objects).await;
        if let Some(uuid) = &vm.uuid {
            let known = BTreeSet::from([vm.key.id.to_string()]);
            search(&vcenter, uuid, &known, objects).await;
        }
        return;
    }
    for vcenter in provider.inventories() {
        let of_vcenter = report.matches.iter().filter(|vm| vm.server == vcenter.server());
        let known: BTreeSet<String> = of_vcenter.map(|vm| vm.key.id.to_string()).collect();
        for uuid in searched_uuids(&report) {
            search(&vcenter, &uuid, &known, objects).await;
        }
    }
}

/// Returns the UUIDs with which the look-up searches the VM of a Node: that of the provider ID, otherwise that of the
/// guest in both byte orders.
fn searched_uuids(report: &NodeVmReport) -> Vec<BiosUuid> {
    let Some(facts) = &report.facts else { return Vec::new() };
    match facts.search_uuid() {
        None => Vec::new(),
        Some(uuid) if facts.has_provider_id => vec![uuid.clone()],
        Some(uuid) => vec![uuid.byte_swapped(), uuid.clone()],
    }
}

/// Reads the watched VMs with this id, name or inventory path.
pub(super) async fn of_name(process: &Inquiries, name: &str, objects: &mut Vec<FreshObject>) {
    let Some(provider) = process.vsphere.provider() else { return };
    for VmReport { server, key, .. } in watched_vms(&provider, name).into_iter().take(MAX_VMS) {
        if let Some(vcenter) = vcenter_of(process, &server) {
            read_vm(&vcenter, &key.id, objects).await;
        }
    }
}

/// Searches all vCenters for the address, and reads the watched VMs that report it and the Nodes that have it.
pub(super) async fn of_address(process: &Inquiries, name: &str, objects: &mut Vec<FreshObject>) {
    let (Some(ip), Some(provider)) = (parse_ip(name), process.vsphere.provider()) else { return };
    for vcenter in provider.inventories() {
        let snapshot = vcenter.snapshot();
        let reporters = snapshot.vms.iter().filter(|(_, record)| reports_address(record, ip));
        let mut ids: BTreeSet<Arc<str>> = reporters.map(|(id, _)| Arc::clone(id)).collect();
        let found = match found_ids(vcenter.search_by_name(&ip.to_string()).await) {
            Ok(found) => found,
            Err(failure) => {
                objects.push(FreshObject::failed("search", vcenter.server(), failure));
                continue;
            }
        };
        let (watched, others): (Vec<Arc<str>>, Vec<Arc<str>>) =
            found.into_iter().partition(|id| snapshot.vms.get(id).is_some());
        let others: Vec<&str> = others.iter().map(|id| &**id).collect();
        let text = match others.as_slice() {
            [] => "no VM but those of Nodes reports it".to_owned(),
            others => format!("reported by {}, too, of no Node", others.join(", ")),
        };
        objects.push(FreshObject::read("search", vcenter.server(), Vec::new()).with_text(text));
        ids.extend(watched);
        for id in ids.into_iter().take(MAX_VMS) {
            read_vm(&vcenter, &id, objects).await;
        }
    }
    let has_address = |entry: &NodeAddress| parse_ip(&entry.address) == Some(ip);
    let holders = process.nodes.list().filter(|node| addresses::of(node).iter().any(has_address));
    for holder in holders.take(MAX_NODES) {
        objects.push(objects::node(process, node::name(&holder)).await);
    }
}

/// Reads what the account sees of the vCenter with this host, or host and port.
pub(super) async fn account(process: &Inquiries, name: &str, objects: &mut Vec<FreshObject>) {
    let Some(provider) = process.vsphere.provider() else { return };
    let vcenter = provider.inventories().into_iter().find(|vcenter| is_same_server(vcenter.server(), name));
    let Some(vcenter) = vcenter else { return };
    let server = vcenter.server();
    if let Err(failure) = vcenter.snapshot().freshness.check() {
        objects.push(FreshObject::failed("account", server, failure.summary));
        return;
    }
    let account = accounts::of_vcenter(process, &vcenter).await;
    objects.push(match (account.datacenters, account.reads_root) {
        (Err(failure), _) | (Ok(_), Err(failure)) => FreshObject::failed("account", server, failure),
        (Ok(datacenters), Ok(reads_root)) => {
            let root = match reads_root {
                Some(true) => "reads the root folder",
                Some(false) => "does not read the root folder",
                None => "reads as far as is known",
            };
            let text = format!("sees {}, and {root}", count(datacenters, "datacenter"));
            FreshObject::read("account", server, Vec::new()).with_text(text)
        }
    });
}

fn vcenter_of(process: &Inquiries, server: &str) -> Option<Arc<Vcenter>> {
    let provider = process.vsphere.provider()?;
    provider.inventories().into_iter().find(|vcenter| vcenter.server() == server)
}

/// Reads the properties and the tags of a watched VM.
async fn read_vm(vcenter: &Vcenter, id: &str, objects: &mut Vec<FreshObject>) {
    let before = vcenter.snapshot();
    let read = match vcenter.read_record(id).await {
        ReadAnswer::Found(record) => Some(record),
        ReadAnswer::Gone => None,
        ReadAnswer::Denied(denial) => {
            objects.push(FreshObject::failed("VM", id, denial.to_string()));
            return;
        }
        ReadAnswer::Silent(failure) => {
            objects.push(FreshObject::failed("VM", id, failure.summary));
            return;
        }
    };
    let after = vcenter.snapshot();
    let compare = |snapshot: &Snapshot| of_vm(snapshot.vms.get(id).map(|record| &**record), read.as_ref());
    objects.push(FreshObject::read("VM", id, lasting(compare(&before), compare(&after))));
    let categories = vcenter.settings().categories.clone();
    if let (Some(categories), Some(record)) = (categories, after.vms.get(id)) {
        read_tags(vcenter, &after, id, record, &categories, objects).await;
    }
}

/// Reads the tags that may give the VM its zone and region. Compares the objects whose tags the process has read.
async fn read_tags(
    vcenter: &Vcenter,
    before: &Snapshot,
    id: &str,
    record: &VmRecord,
    categories: &ZoneCategories,
    objects: &mut Vec<FreshObject>,
) {
    let above = [&record.host, &record.resource_pool].into_iter().flatten().flat_map(|object| before.chain(object));
    let candidates: BTreeSet<MoRef> = before.vm_chain(id, record).into_iter().chain(above).collect();
    let tagged: Vec<MoRef> =
        candidates.into_iter().filter(|object| known_tags(before, object, categories).is_some()).collect();
    if tagged.is_empty() {
        return;
    }
    let read = match vcenter.read_tags(&tagged, categories).await {
        Ok(read) => read,
        Err(failure) => {
            objects.push(FreshObject::failed("tags", id, failure));
            return;
        }
    };
    let after = vcenter.snapshot();
    let mut differences = Vec::new();
    for (object, tags) in &read {
        let compare = |snapshot: &Snapshot| difference_of_tags(snapshot, object, tags, categories);
        differences.extend(lasting(compare(before), compare(&after)));
    }
    objects.push(FreshObject::read("tags", id, differences));
}

fn known_tags(snapshot: &Snapshot, object: &MoRef, categories: &ZoneCategories) -> Option<Vec<Tag>> {
    match snapshot.tags.objects.get(object)? {
        ObjectTags::Read(tags) => Some(categories.among(tags)),
        ObjectTags::Unreadable(_) => None,
    }
}

/// An object whose tags are being read again has no known tags, and no difference.
fn difference_of_tags(
    snapshot: &Snapshot,
    object: &MoRef,
    read: &[Tag],
    categories: &ZoneCategories,
) -> Vec<FieldDifference> {
    let known = known_tags(snapshot, object, categories).filter(|known| known != read);
    known.map(|known| FieldDifference::new(&object.to_string(), tag_text(&known), tag_text(read))).into_iter().collect()
}

fn tag_text(tags: &[Tag]) -> String {
    let texts: Vec<String> = tags.iter().map(|tag| format!("{:?} of {:?}", tag.name, tag.category)).collect();
    if texts.is_empty() { "no tag".to_owned() } else { texts.join(", ") }
}

/// Searches by UUID, and compares the matches with the known ones.
async fn search(vcenter: &Vcenter, uuid: &BiosUuid, known: &BTreeSet<String>, objects: &mut Vec<FreshObject>) {
    let name = format!("UUID {uuid}");
    objects.push(match found_ids(vcenter.search_by_uuid(uuid).await) {
        Err(failure) => FreshObject::failed("search", &name, failure),
        Ok(found) => {
            let found: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
            compared_matches(vcenter.server(), &name, known, &found)
        }
    });
}

/// A search in one byte order has no match of the other order, so that only further matches are differences.
fn compared_matches(server: &str, name: &str, known: &BTreeSet<String>, found: &BTreeSet<String>) -> FreshObject {
    let ids = |ids: &BTreeSet<String>| match ids.is_empty() {
        true => "no VM".to_owned(),
        false => ids.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let difference = FieldDifference::new("matches", ids(known), ids(found));
    let differences: Vec<FieldDifference> = (!found.is_subset(known)).then_some(difference).into_iter().collect();
    let object = FreshObject::read("search", name, differences);
    object.with_text(format!("{} on {server}", ids(found)))
}

fn found_ids(read: SearchRead) -> Result<Vec<Arc<str>>, String> {
    match read {
        ReadAnswer::Found(ids) => Ok(ids),
        ReadAnswer::Gone => Ok(Vec::new()),
        ReadAnswer::Denied(denial) => Err(denial.to_string()),
        ReadAnswer::Silent(failure) => Err(failure.summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::snapshot::TagSnapshot;
    use std::collections::HashMap;

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_further_match_is_a_difference_and_a_missing_one_may_have_the_other_byte_order() {
        let compare = |known: &[&str], found: &[&str]| compared_matches("vc:443", "UUID u", &set(known), &set(found));
        let same = compare(&["vm-1"], &["vm-1"]);
        assert_eq!((same.differences.len(), same.text.as_str()), (0, "vm-1 on vc:443"));
        assert_eq!(compare(&["vm-1"], &[]).differences, []);
        let twin = compare(&["vm-1"], &["vm-1", "vm-2"]);
        assert_eq!(twin.differences, [FieldDifference::new("matches", "vm-1", "vm-1, vm-2")]);
        assert_eq!(compare(&[], &["vm-2"]).differences, [FieldDifference::new("matches", "no VM", "vm-2")]);
    }

    #[test]
    fn tags_differ_in_the_configured_categories_and_only_where_they_are_known() {
        let tag = |category: &str, name: &str| Tag { name: name.to_owned(), category: category.to_owned() };
        let categories = ZoneCategories { zone: "zone".to_owned(), region: "region".to_owned() };
        let host = MoRef::new("HostSystem", "host-1");
        let known = vec![tag("zone", "a"), tag("backup", "daily")];
        let objects = HashMap::from([(host.clone(), ObjectTags::Read(known))]);
        let tags = Arc::new(TagSnapshot { objects, error: None });
        let snapshot = Snapshot { tags, ..Snapshot::default() };
        let compare = |object: &MoRef, read: &[Tag]| difference_of_tags(&snapshot, object, read, &categories);
        assert_eq!(compare(&host, &[tag("zone", "a")]), []);
        let changed = FieldDifference::new("HostSystem:host-1", "\"a\" of \"zone\"", "\"b\" of \"zone\"");
        assert_eq!(compare(&host, &[tag("zone", "b")]), [changed]);
        let lost = FieldDifference::new("HostSystem:host-1", "\"a\" of \"zone\"", "no tag");
        assert_eq!(compare(&host, &[]), [lost]);
        assert_eq!(compare(&MoRef::new("HostSystem", "host-2"), &[tag("zone", "a")]), []);
    }
}
