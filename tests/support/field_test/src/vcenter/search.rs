//! Checks of searches for VMs.

use ccm::clients::vim::{MoRef, ObjectContent, Value};
use ccm::providers::provider_id::BiosUuid;

use super::beliefs::{SEARCH, SEARCH_NAME, SEARCH_NOTHING, SEARCH_SWAPPED};
use super::{Check, Ended};

/// Id of no object: vCenter numbers its objects from 1 and does not reach this number.
pub(super) const NEVER_ID: &str = "vm-2147483601";

/// UUID of no VM, because its version field is invalid.
pub(super) const NO_UUID: &str = "00000000-0000-0000-0000-00000000f1e1";

/// Searches for the first VM that has the searched property.
pub(super) async fn machines(check: &mut Check, samples: &[ObjectContent]) -> Result<(), Ended> {
    let with_uuid =
        samples.iter().find_map(|vm| Some((&vm.object, text(vm, "config.uuid")?.parse::<BiosUuid>().ok()?)));
    match with_uuid {
        Some((vm, uuid)) => both_byte_orders(check, vm, &uuid).await?,
        None => {
            check.sheet.skip(&SEARCH, "no VM with a UUID is visible");
            check.sheet.skip(&SEARCH_SWAPPED, "no VM with a UUID is visible");
        }
    }
    match check.soap.find_all_by_uuid(NO_UUID).await {
        Ok(found) => check.sheet.judge(&SEARCH_NOTHING, found.is_empty(), format!("{} found", found.len())),
        Err(error) => check.failed(&SEARCH_NOTHING, &error)?,
    }
    let named = samples.iter().find_map(|vm| Some((&vm.object, text(vm, "guest.hostName")?)));
    let Some((vm, name)) = named else {
        check.sheet.skip(&SEARCH_NAME, "no VM whose guest reports a host name is visible");
        return Ok(());
    };
    match check.soap.find_all_by_dns_name(name).await {
        Ok(found) => {
            let is_found = found.contains(vm);
            check.sheet.judge(&SEARCH_NAME, is_found, seen(is_found, found.len()));
        }
        Err(error) => check.failed(&SEARCH_NAME, &error)?,
    }
    Ok(())
}

async fn both_byte_orders(check: &mut Check, vm: &MoRef, uuid: &BiosUuid) -> Result<(), Ended> {
    let other = uuid.byte_swapped();
    for (belief, uuid, expected) in [(&SEARCH, uuid, true), (&SEARCH_SWAPPED, &other, false)] {
        if !expected && *uuid == uuid.byte_swapped() {
            check.sheet.skip(belief, "the UUID is the same in both byte orders");
            continue;
        }
        match check.soap.find_all_by_uuid(&uuid.to_string()).await {
            Ok(found) => {
                let is_found = found.contains(vm);
                check.sheet.judge(belief, is_found == expected, seen(is_found, found.len()));
            }
            Err(error) => check.failed(belief, &error)?,
        }
    }
    Ok(())
}

fn seen(is_found: bool, all: usize) -> String {
    format!("{all} found, {} them the VM", if is_found { "among" } else { "not among" })
}

/// Returns a property if it is a non-empty text.
pub(super) fn text<'a>(object: &'a ObjectContent, path: &str) -> Option<&'a str> {
    object.property(path).and_then(Value::as_str).filter(|text| !text.is_empty())
}
