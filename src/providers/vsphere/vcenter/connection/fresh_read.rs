//! Reads again what the subscription and the tag reader have read of one VM, for the command `explain --fresh`. The
//! answers change neither the snapshot nor the session: only the caller sees them.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::timeout;

use super::Vcenter;
use super::reads::{READ_LIMIT, ReadAnswer};
use crate::base::error_chain::chain;
use crate::clients::vapi;
use crate::clients::vim::MoRef;
use crate::clients::vim::filter::VIRTUAL_MACHINE_PATHS;
use crate::providers::vsphere::vcenter::mirror::record_of;
use crate::providers::vsphere::vcenter::snapshot::VmRecord;
use crate::providers::vsphere::vcenter::zone_tags::{Tag, ZoneCategories};

/// Maximum number of tags whose names are read. Each name is a call.
const MAX_TAGS: usize = 32;

/// The tags of zone and region on objects, by object. Objects without such tags have an empty list.
pub type TagsByObject = BTreeMap<MoRef, Vec<Tag>>;

impl Vcenter {
    /// Reads the properties that the subscription watches of the VM with this id. Makes one call and no login.
    pub async fn read_record(&self, id: &str) -> ReadAnswer<VmRecord> {
        let content = self.read(&MoRef::new("VirtualMachine", id), &VIRTUAL_MACHINE_PATHS).await;
        content.and_then(|content| ReadAnswer::Found(record_of(content)))
    }

    /// Reads the tags of these objects with the REST session in use. Makes one call, one for each attached tag and one
    /// for each of their categories, and no login.
    ///
    /// # Errors
    /// The reason why the tags are not known, for operators.
    pub async fn read_tags(&self, objects: &[MoRef], categories: &ZoneCategories) -> Result<TagsByObject, String> {
        let Some(rest) = self.session().rest_in_use() else {
            return Err("no REST session is open: the next poll of the tags opens one".to_owned());
        };
        match timeout(READ_LIMIT, tags_of(&rest, objects, categories)).await {
            Ok(tags) => tags,
            Err(_) => Err(format!("no answer within {} s", READ_LIMIT.as_secs())),
        }
    }
}

async fn tags_of(rest: &vapi::Client, objects: &[MoRef], categories: &ZoneCategories) -> Result<TagsByObject, String> {
    let attached = rest.list_attached_tags_on_objects(objects).await.map_err(text_of)?;
    let ids: BTreeSet<&str> = attached.iter().flat_map(|found| &found.tag_ids).map(String::as_str).collect();
    if ids.len() > MAX_TAGS {
        return Err(format!("the objects have {} tags, at most {MAX_TAGS} are read", ids.len()));
    }
    let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut tags: BTreeMap<&str, Tag> = BTreeMap::new();
    for id in ids {
        // A tag or a category may disappear between the calls.
        let Some(tag) = rest.fetch_tag(id).await.map_err(text_of)? else { continue };
        let category = match names.get(&tag.category_id) {
            Some(known) => known.clone(),
            None => {
                let category = rest.fetch_category(&tag.category_id).await.map_err(text_of)?;
                let name = category.map(|category| category.name);
                names.insert(tag.category_id, name.clone());
                name
            }
        };
        if let Some(category) = category {
            tags.insert(id, Tag { name: tag.name, category });
        }
    }
    let mut by_object: TagsByObject = objects.iter().map(|object| (object.clone(), Vec::new())).collect();
    for found in &attached {
        let of_object: Vec<Tag> = found.tag_ids.iter().filter_map(|id| tags.get(id.as_str()).cloned()).collect();
        by_object.insert(found.object.clone(), categories.among(&of_object));
    }
    Ok(by_object)
}

fn text_of(error: vapi::Error) -> String {
    chain(&error)
}
