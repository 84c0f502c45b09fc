//! The tags of zones and regions: read in batches for objects that are new, refreshed by a poll whose cost grows with
//! the tagged objects and not with the nodes.
//!
//! There is no push for tags. An answer that suddenly holds no attachment at all may mean a lost permission (vCenter
//! answers with empty lists, not with errors), so it never takes away what is known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::retry::Kind;
use super::snapshot::Tags;
use super::vcenter::Vcenter;
use crate::clients::vapi;
use crate::clients::vim::MoRef;
use crate::cloud::error::chain;
use crate::providers::vsphere::zones::{ObjectTags, Tag, ZoneCategories};

/// Pause in which new objects are gathered into one read.
const GATHER: Duration = Duration::from_millis(50);
/// Polls after which the names of tags and categories are read again: a renamed tag keeps its id.
const POLLS_PER_NAME_READ: u32 = 10;

/// vCenter leaves what the account may not read out of its lists, without an error.
const GLOBAL_PERMISSION: &str =
    "tags are not in the inventory tree, so reading them needs a global permission (role Read-only) or one on the tags";

/// What a poll found: the tags of the two categories, and what they are attached to.
#[derive(Default)]
struct Known {
    /// Tag id → tag.
    tags: HashMap<String, Tag>,
    /// Object → ids of the tags it carries.
    attached: HashMap<MoRef, BTreeSet<String>>,
    /// The ids of the two configured categories, and their names.
    categories: BTreeMap<String, String>,
    polls: u32,
}

impl Vcenter {
    /// Keeps the tags in the snapshot true. Failures are told and retried; they never end the subscription.
    pub(super) async fn follow_tags(&self) -> Infallible {
        let Some(categories) = &self.settings.categories else {
            return std::future::pending().await;
        };
        loop {
            let not_before = self.state.lock().unwrap_or_else(PoisonError::into_inner).tags_not_before;
            if let Some(moment) = not_before {
                sleep_until(moment).await;
            }
            let failure = match self.keep_tags(categories).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            let kind = if failure.is_invalid_login() { Kind::Rejected } else { Kind::Passing };
            {
                // Not forgotten with the connection: a subscription that breaks often must not make rejected logins.
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.tags_not_before = Some(Instant::now() + state.tags_retry.after(kind, fastrand::f64()));
            }
            self.tell_trouble(Some(format!("tags cannot be read: {}", chain(&failure))));
        }
    }

    async fn keep_tags(&self, categories: &ZoneCategories) -> Result<Infallible, vapi::Error> {
        let mut known = Known::default();
        let mut renewed_at_poll = None;
        // A session of an earlier connection is still good for all this side knows; the first call tells.
        if !self.rest.has_session() {
            self.log_in_to_rest().await?;
        }
        loop {
            match self.poll(categories, &mut known).await {
                Ok(()) => {}
                // The session ended: one new login, then the poll again. A second refusal in a row is a failure.
                Err(error) if error.is_unauthenticated() && renewed_at_poll != Some(known.polls) => {
                    renewed_at_poll = Some(known.polls);
                    self.log_in_to_rest().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.state.lock().unwrap_or_else(PoisonError::into_inner).tags_retry.reset();
            // Jitter keeps replicas and vCenters apart.
            let next_poll = Instant::now() + self.settings.tag_poll.mul_f64(0.9 + fastrand::f64() / 10.0);
            loop {
                self.read_new_objects(&known).await?;
                tokio::select! {
                    () = sleep_until(next_poll) => break,
                    () = self.objects_changed.notified() => sleep(GATHER).await,
                }
            }
        }
    }

    async fn log_in_to_rest(&self) -> Result<(), vapi::Error> {
        // A server may refuse a session that still lives; it is ended, so that refusals do not add up. Best effort.
        let ended = self.rest.logout().await;
        debug!(vcenter = self.settings.server, ?ended, "a REST session is made");
        let _under_way = self.logins.begin();
        self.rest.login(&self.settings.user, &self.settings.password).await
    }

    /// Reads what the tags of the two categories are attached to, and again the tags of every object where that
    /// differs from what is known.
    async fn poll(&self, categories: &ZoneCategories, known: &mut Known) -> Result<(), vapi::Error> {
        if known.polls.is_multiple_of(POLLS_PER_NAME_READ) {
            known.categories = self.fetch_categories(categories).await?;
            known.tags.clear();
        }
        let missing: Vec<&str> = [&categories.region, &categories.zone]
            .into_iter()
            .filter(|wanted| !known.categories.values().any(|name| name == *wanted))
            .map(String::as_str)
            .collect();
        let mut names = HashMap::new();
        for (category_id, category) in &known.categories {
            // A category or tag may disappear between the calls.
            for tag_id in self.rest.list_tags_of_category(category_id).await?.unwrap_or_default() {
                let tag = match known.tags.remove(&tag_id) {
                    Some(tag) => Some(tag),
                    None => {
                        let tag = self.rest.fetch_tag(&tag_id).await?;
                        tag.map(|tag| Tag { name: tag.name, category: category.clone() })
                    }
                };
                names.extend(tag.map(|tag| (tag_id, tag)));
            }
        }
        known.tags = names;
        let ids: Vec<String> = known.tags.keys().cloned().collect();
        let mut attached: HashMap<MoRef, BTreeSet<String>> = HashMap::new();
        for found in self.rest.list_attached_objects_on_tags(&ids).await? {
            for object in found.objects {
                attached.entry(object).or_default().insert(found.tag_id.clone());
            }
        }
        let lost = self.lost_categories(&known.tags, &attached);
        let has_none = |category: &&str| !known.tags.values().any(|tag| tag.category == **category);
        let bare: Vec<&str> = known.categories.values().map(String::as_str).filter(has_none).collect();
        let trouble = if !missing.is_empty() {
            Some(format!(
                "there is no tag category {}, or the account may not read it: {GLOBAL_PERMISSION}",
                missing.join(" and ")
            ))
        } else if lost.is_empty() && !bare.is_empty() {
            Some(format!(
                "there is no tag of category {}, or the account may not read any: {GLOBAL_PERMISSION}",
                bare.join(" and ")
            ))
        } else if lost.is_empty() {
            None
        } else {
            let lost: Vec<&str> = lost.iter().map(String::as_str).collect();
            Some(format!(
                "no tag of {} is attached to anything any more; the account may have lost its right to read tags",
                lost.join(" and ")
            ))
        };
        self.tell_trouble(trouble);
        if lost.is_empty() {
            known.attached = attached;
            self.forget_changed(known);
        }
        known.polls = known.polls.wrapping_add(1);
        Ok(())
    }

    /// The categories of which the snapshot holds a tag, while vCenter says now that none is attached anywhere.
    fn lost_categories(
        &self,
        tags: &HashMap<String, Tag>,
        attached: &HashMap<MoRef, BTreeSet<String>>,
    ) -> BTreeSet<String> {
        let held = self.state.lock().unwrap_or_else(PoisonError::into_inner).tags.clone();
        let held = held.of.values().flat_map(|tags| match tags {
            ObjectTags::Read(tags) => tags.as_slice(),
            ObjectTags::Unreadable(_) => &[],
        });
        let mut lost: BTreeSet<String> = held.map(|tag| tag.category.clone()).collect();
        for tag in attached.values().flatten().filter_map(|id| tags.get(id)) {
            lost.remove(&tag.category);
        }
        lost
    }

    /// The ids of the two configured categories. There is no look-up by name.
    async fn fetch_categories(&self, categories: &ZoneCategories) -> Result<BTreeMap<String, String>, vapi::Error> {
        let mut found = BTreeMap::new();
        for id in self.rest.list_categories().await? {
            let Some(category) = self.rest.fetch_category(&id).await? else { continue };
            if category.name == categories.zone || category.name == categories.region {
                found.insert(id, category.name);
            }
        }
        Ok(found)
    }

    /// Marks the objects whose tags differ from what the snapshot holds as not read.
    fn forget_changed(&self, known: &Known) {
        let tags = self.state.lock().unwrap_or_else(PoisonError::into_inner).tags.clone();
        let is_same = |object: &MoRef, held: &ObjectTags| {
            let ObjectTags::Read(held) = held else { return false };
            let none = BTreeSet::new();
            let now: Vec<&Tag> =
                known.attached.get(object).unwrap_or(&none).iter().filter_map(|id| known.tags.get(id)).collect();
            now.len() == held.len() && now.iter().all(|tag| held.contains(tag))
        };
        if tags.of.iter().all(|(object, held)| is_same(object, held)) {
            return;
        }
        let mut kept = Tags::clone(&tags);
        kept.of.retain(|object, held| is_same(object, held));
        self.publish(|state| state.tags = Arc::new(kept));
    }

    /// Reads the tags of objects that were not asked about yet.
    async fn read_new_objects(&self, known: &Known) -> Result<(), vapi::Error> {
        let (new, gone) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let vms = state.vms().map(|(id, _)| MoRef::new("VirtualMachine", id));
            let objects: BTreeSet<MoRef> = vms.chain(state.mirror.entities.keys().cloned()).collect();
            let new: Vec<MoRef> =
                objects.iter().filter(|object| !state.tags.of.contains_key(object)).cloned().collect();
            let gone: Vec<MoRef> = state.tags.of.keys().filter(|object| !objects.contains(object)).cloned().collect();
            (new, gone)
        };
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let answer = self.rest.list_attached_tags_on_objects(&new).await?;
        // An object without tags is left out of the answer.
        let mut read: HashMap<MoRef, ObjectTags> =
            new.into_iter().map(|object| (object, ObjectTags::Read(Vec::new()))).collect();
        for found in answer {
            let tags: Vec<Tag> = found.tag_ids.iter().filter_map(|id| known.tags.get(id).cloned()).collect();
            // An object is read when it is new or its tags changed, so that this is told once.
            let oddities = self.settings.categories.iter().flat_map(|known| known.oddities(&found.object, &tags));
            for oddity in oddities {
                warn!(vcenter = self.settings.server, "{oddity}");
            }
            read.insert(found.object, ObjectTags::Read(tags));
        }
        self.publish(|state| {
            let mut tags = Tags::clone(&state.tags);
            tags.of.retain(|object, _| !gone.contains(object));
            tags.of.extend(read);
            state.tags = Arc::new(tags);
        });
        Ok(())
    }

    /// Says once why zones cannot be found, and once that they can again.
    fn tell_trouble(&self, trouble: Option<String>) {
        let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).tags.trouble.clone();
        if before == trouble {
            return;
        }
        let vcenter = &self.settings.server;
        match &trouble {
            Some(reason) => warn!(vcenter, reason, "zones and regions stay as they are known"),
            None => info!(vcenter, "tags can be read again"),
        }
        self.publish(|state| {
            let mut tags = Tags::clone(&state.tags);
            tags.trouble = trouble;
            state.tags = Arc::new(tags);
        });
    }
}
