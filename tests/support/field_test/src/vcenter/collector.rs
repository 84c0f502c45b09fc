//! Checks of the property collector: pages, objects that do not exist, a ListView, waits and their end.

use std::time::Duration;

use ccm::clients::vim::{
    self, FilterSpec, MoRef, ObjectContent, ObjectSpec, PropertySpec, Selection, ServiceContent, UpdateKind, UpdateSet,
};
use tokio::time::Instant;

use super::beliefs::{
    CANCEL, FILTER_NEVER, NEVER, READ_PAGES, UNSET, VIEW_FILTER, VIEW_LEAVE, VIEW_UNRESOLVED, WAIT_LIMIT, WAIT_PAGES,
};
use super::search::{NEVER_ID, text};
use super::{Check, Ended};

/// Objects per answer in the first waits.
const PAGE: u32 = 60;

/// Number of VMs that are read again by id. It is larger than the product's page of 100.
const SAMPLES: usize = 110;

/// Number of VMs in the view.
const VIEWED: usize = 5;

/// Duration of the wait without a change, and the longest delay of its answer.
const WAIT: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(10);

/// Number of waits that may return a change before one returns empty.
const ATTEMPTS: usize = 3;

/// Duration of the wait that is cancelled, and time until it is cancelled.
const CANCELLED_WAIT: Duration = Duration::from_secs(20);
const CANCEL_AFTER: Duration = Duration::from_secs(1);

/// Reads the first VMs of the inventory, in at most three pages.
pub(super) async fn first_machines(check: &mut Check, content: &ServiceContent) -> Result<Vec<ObjectContent>, Ended> {
    let Some(root) = &content.root_folder else {
        check.sheet.skip(&WAIT_PAGES, "the server names no root folder");
        return Ok(Vec::new());
    };
    let (collector, mut version) = match collector_with(check, &machines_below(root)).await {
        Ok(collector) => (collector, String::new()),
        Err(error) => return check.failed(&WAIT_PAGES, &error).map(|()| Vec::new()),
    };
    let (mut machines, mut pages, mut largest) = (Vec::new(), Vec::new(), 0);
    let mut was_truncated = true;
    while was_truncated && machines.len() < SAMPLES && pages.len() < 3 {
        match check.soap.wait_for_updates(&collector, &version, Duration::ZERO, PAGE).await {
            Ok(Some(set)) => {
                let objects = entered(&set);
                largest = largest.max(objects.len());
                pages.push(objects.len());
                machines.extend(objects);
                (version, was_truncated) = (set.version, set.truncated);
            }
            Ok(None) => was_truncated = false,
            Err(error) => {
                check.failed(&WAIT_PAGES, &error)?;
                was_truncated = false;
            }
        }
    }
    let seen = format!("pages of {pages:?} VMs, the last one {}", if was_truncated { "truncated" } else { "complete" });
    match pages.len() {
        0 => check.sheet.skip(&WAIT_PAGES, "no VM is visible"),
        1 if largest <= PAGE as usize => check.sheet.skip(&WAIT_PAGES, format!("one page is enough: {seen}")),
        _ => check.sheet.judge(&WAIT_PAGES, largest <= PAGE as usize, seen),
    }
    // If this fails, the collector ends with the session.
    let _ = check.soap.destroy_property_collector(&collector).await;
    Ok(machines)
}

/// Reads VMs by their ids, and one VM that does not exist.
pub(super) async fn reads(check: &mut Check, samples: &[ObjectContent]) -> Result<(), Ended> {
    let objects: Vec<_> = samples.iter().take(SAMPLES).map(|vm| start(&vm.object)).collect();
    let spec = FilterSpec {
        properties: vec![PropertySpec::new("VirtualMachine", &vim::filter::VIRTUAL_MACHINE_PATHS)],
        objects,
    };
    if samples.is_empty() {
        check.sheet.skip(&READ_PAGES, "no VM is visible");
        check.sheet.skip(&UNSET, "no VM is visible");
    } else {
        check.wire.take();
        match check.soap.retrieve_properties(&spec).await {
            Ok(read) => {
                let pages = check.wire.take().len();
                let (asked, got) = (spec.objects.len(), read.len());
                let seen = format!("{got} of {asked} VMs in {pages} pages");
                match asked > 100 {
                    true => check.sheet.judge(&READ_PAGES, pages > 1 && got == asked, seen),
                    false => check.sheet.skip(&READ_PAGES, format!("one page is enough: {seen}")),
                }
                let missing: usize = read.iter().map(|vm| vm.missing.len()).sum();
                let paths = vim::filter::VIRTUAL_MACHINE_PATHS.len();
                let unset: usize =
                    read.iter().map(|vm| paths.saturating_sub(vm.properties.len() + vm.missing.len())).sum();
                let seen = format!("{unset} left out, {missing} with a fault, of {} VMs", read.len());
                match unset + missing {
                    0 => check.sheet.skip(&UNSET, "all properties have values"),
                    _ => check.sheet.judge(&UNSET, missing == 0, seen),
                }
            }
            Err(error) => {
                check.failed(&READ_PAGES, &error)?;
                check.failed(&UNSET, &error)?;
            }
        }
    }
    let never = MoRef::new("VirtualMachine", NEVER_ID);
    match check.soap.retrieve_properties(&FilterSpec::of_object(&never, &["name"])).await {
        Ok(read) => check.sheet.judge(&NEVER, false, format!("{} objects, no fault", read.len())),
        Err(error) if error.is_managed_object_not_found(&never) => {
            check.sheet.judge(&NEVER, true, "ManagedObjectNotFound with this id");
        }
        Err(error) => check.failed(&NEVER, &error)?,
    }
    Ok(())
}

/// Checks a ListView of a few VMs as the product uses it, and the waits on it.
pub(super) async fn view(check: &mut Check, samples: &[ObjectContent]) -> Result<(), Ended> {
    let never = MoRef::new("VirtualMachine", NEVER_ID);
    let viewed: Vec<_> = samples.iter().take(VIEWED).map(|vm| vm.object.clone()).collect();
    let view = match check.soap.create_list_view(&[]).await {
        Ok(view) => view,
        Err(error) => return check.failed(&VIEW_UNRESOLVED, &error),
    };
    let added: Vec<_> = viewed.iter().cloned().chain([never.clone()]).collect();
    match check.soap.modify_list_view(&view, &added, &[]).await {
        Ok(unresolved) => {
            let seen = format!("{} of {} not resolved", unresolved.len(), added.len());
            check.sheet.judge(&VIEW_UNRESOLVED, unresolved == [never.clone()], seen);
        }
        Err(error) => check.failed(&VIEW_UNRESOLVED, &error)?,
    }
    let collector = match collector_with(check, &FilterSpec::for_view(&view)).await {
        Ok(collector) => collector,
        Err(error) => return check.failed(&VIEW_FILTER, &error),
    };
    if let Some(version) = initial_state(check, &collector, &viewed).await?
        && let Some(version) = empty_wait(check, &collector, version).await?
        && let Some(version) = leave(check, &collector, &view, &viewed, version).await?
    {
        cancelled_wait(check, &collector, &version).await?;
    }
    match check.soap.create_filter(&collector, &FilterSpec::of_object(&never, &["name"])).await {
        Ok(_) => check.sheet.judge(&FILTER_NEVER, false, "the filter was created"),
        Err(error) if error.is_managed_object_not_found(&never) => {
            check.sheet.judge(&FILTER_NEVER, true, "ManagedObjectNotFound with this id");
        }
        Err(error) => check.failed(&FILTER_NEVER, &error)?,
    }
    let _ = check.soap.destroy_property_collector(&collector).await;
    let _ = check.soap.destroy_view(&view).await;
    Ok(())
}

/// Reads the initial state of the view's filter. Returns the version after it.
async fn initial_state(check: &mut Check, collector: &MoRef, viewed: &[MoRef]) -> Result<Option<String>, Ended> {
    if viewed.is_empty() {
        check.sheet.skip(&VIEW_FILTER, "no VM is visible");
    }
    let (mut version, mut objects) = (String::new(), Vec::new());
    for _ in 0..ATTEMPTS {
        match check.soap.wait_for_updates(collector, &version, Duration::ZERO, 1000).await {
            Ok(Some(set)) => {
                objects.extend(entered(&set).into_iter().map(|object| object.object));
                version.clone_from(&set.version);
                if !set.truncated {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => return check.failed(&VIEW_FILTER, &error).map(|()| None),
        }
    }
    let distinct: std::collections::BTreeSet<_> = objects.iter().map(|object| (object.kind(), object.id())).collect();
    let machines = viewed.iter().filter(|vm| objects.contains(vm)).count();
    let has_datacenter = objects.iter().any(|object| object.kind() == "Datacenter");
    let seen = format!(
        "{machines} of {} VMs, {} other objects, {} twice, {} datacenter",
        viewed.len(),
        distinct.len().saturating_sub(machines),
        objects.len() - distinct.len(),
        if has_datacenter { "a" } else { "no" }
    );
    if !viewed.is_empty() {
        let is_so = machines == viewed.len() && has_datacenter && objects.len() == distinct.len();
        check.sheet.judge(&VIEW_FILTER, is_so, seen);
    }
    if version.is_empty() {
        check.sheet.skip(&WAIT_LIMIT, "the filter has no state to wait from");
    }
    Ok(Some(version).filter(|version| !version.is_empty()))
}

/// Waits until a wait returns without a change. Returns the version after it.
async fn empty_wait(check: &mut Check, collector: &MoRef, mut version: String) -> Result<Option<String>, Ended> {
    for _ in 0..ATTEMPTS {
        let began = Instant::now();
        match check.soap.wait_for_updates(collector, &version, WAIT, 1000).await {
            Ok(None) => {
                let took = began.elapsed();
                let is_so = took >= WAIT.mul_f64(0.9) && took <= WAIT + LATE;
                let seen = format!("empty after {:.1} s of {} s", took.as_secs_f64(), WAIT.as_secs());
                check.sheet.judge(&WAIT_LIMIT, is_so, seen);
                return Ok(Some(version));
            }
            Ok(Some(set)) => version = set.version,
            Err(error) => return check.failed(&WAIT_LIMIT, &error).map(|()| None),
        }
    }
    check.sheet.skip(&WAIT_LIMIT, format!("something changed in each of {ATTEMPTS} waits"));
    Ok(Some(version))
}

/// Removes a VM from the view, and waits for the update of the filter. Returns the version after it.
async fn leave(
    check: &mut Check,
    collector: &MoRef,
    view: &MoRef,
    viewed: &[MoRef],
    mut version: String,
) -> Result<Option<String>, Ended> {
    let Some(vm) = viewed.first() else {
        check.sheet.skip(&VIEW_LEAVE, "no VM is visible");
        return Ok(Some(version));
    };
    if let Err(error) = check.soap.modify_list_view(view, &[], std::slice::from_ref(vm)).await {
        return check.failed(&VIEW_LEAVE, &error).map(|()| Some(version));
    }
    let mut answers = 0;
    for _ in 0..ATTEMPTS {
        match check.soap.wait_for_updates(collector, &version, WAIT, 1000).await {
            Ok(None) => break,
            Ok(Some(set)) => {
                answers += 1;
                let mut updates = set.filters.iter().flat_map(|filter| &filter.objects);
                let has_left = updates.any(|update| update.kind == UpdateKind::Leave && update.object == *vm);
                version = set.version;
                if has_left {
                    check.sheet.judge(&VIEW_LEAVE, true, format!("leave in answer {answers}"));
                    return Ok(Some(version));
                }
            }
            Err(error) => return check.failed(&VIEW_LEAVE, &error).map(|()| None),
        }
    }
    check.sheet.judge(&VIEW_LEAVE, false, format!("no leave in {answers} answers"));
    Ok(Some(version))
}

async fn cancelled_wait(check: &mut Check, collector: &MoRef, version: &str) -> Result<(), Ended> {
    let (waiting, cancelling) = (check.soap.clone(), check.soap.clone());
    let began = Instant::now();
    let (waited, cancelled) = tokio::join!(waiting.wait_for_updates(collector, version, CANCELLED_WAIT, 1000), async {
        tokio::time::sleep(CANCEL_AFTER).await;
        cancelling.cancel_wait_for_updates(collector).await
    });
    if let Err(error) = cancelled {
        return check.failed(&CANCEL, &error);
    }
    let took = format!("after {:.1} s", began.elapsed().as_secs_f64());
    match waited {
        Ok(Some(_)) => check.sheet.skip(&CANCEL, "something changed before the wait was cancelled"),
        Ok(None) => check.sheet.judge(&CANCEL, false, format!("the wait ended empty {took}")),
        Err(error) if error.fault().is_some_and(|fault| fault.kind == vim::FaultKind::RequestCanceled) => {
            check.sheet.judge(&CANCEL, true, format!("RequestCanceled {took}"));
        }
        Err(error) => check.failed(&CANCEL, &error)?,
    }
    Ok(())
}

async fn collector_with(check: &Check, spec: &FilterSpec) -> Result<MoRef, vim::Error> {
    let collector = check.soap.create_property_collector().await?;
    check.soap.create_filter(&collector, spec).await?;
    Ok(collector)
}

/// Returns a filter for the VMs in all datacenters below this folder, each with the properties for a search.
fn machines_below(root: &MoRef) -> FilterSpec {
    let down = || vec![Selection::named("down"), Selection::named("vms")];
    let select = vec![
        Selection::along("down", "Folder", "childEntity", down()),
        Selection::along("vms", "Datacenter", "vmFolder", vec![Selection::named("down")]),
    ];
    FilterSpec {
        properties: vec![PropertySpec::new("VirtualMachine", &["config.uuid", "guest.hostName"])],
        objects: vec![ObjectSpec { object: root.clone(), skip: true, select }],
    }
}

fn start(object: &MoRef) -> ObjectSpec {
    ObjectSpec { object: object.clone(), skip: false, select: Vec::new() }
}

/// Returns the objects that entered, in the form of a read. VMs with a UUID and a host name come first, for the
/// searches.
fn entered(set: &UpdateSet) -> Vec<ObjectContent> {
    let updates = set.filters.iter().flat_map(|filter| &filter.objects);
    let mut objects: Vec<_> = updates
        .filter(|update| update.kind == UpdateKind::Enter)
        .map(|update| ObjectContent {
            object: update.object.clone(),
            properties: update.changes.iter().filter_map(|one| Some((one.name.clone(), one.value.clone()?))).collect(),
            missing: update.missing.clone(),
        })
        .collect();
    let lacks = |vm: &ObjectContent| ["config.uuid", "guest.hostName"].map(|path| text(vm, path).is_none());
    objects.sort_by_key(lacks);
    objects
}
