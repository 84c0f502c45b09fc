//! Reads the tags that name zones and regions. The tags of new objects are read in batches. A poll refreshes the tags,
//! at a cost that grows with the number of tagged objects and not with the number of Nodes.
//!
//! vCenter does not push tags. If no tag of a category is attached to any object any more, the account may have lost a
//! permission, because vCenter then returns empty lists and no errors. Such a poll removes no cached tags.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::publisher::Publisher;
use super::session::{ClientInUse, RestFailure, Session};
use super::snapshot::TagSnapshot;
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::vapi;
use crate::clients::vim::MoRef;
use crate::providers::vsphere::login::retry::PASSING;
use crate::providers::vsphere::vcenter::zone_tags::{ObjectTags, Tag, ZoneCategories};

/// Settings for reading the tags of one vCenter. The settings may change at run time; see
/// [`Vcenter::reconfigure`](super::Vcenter::reconfigure).
#[derive(Clone, Debug, PartialEq)]
pub struct TagSettings {
    /// The tag categories of zone and region, if zones are enabled.
    pub categories: Option<ZoneCategories>,
    /// Poll interval.
    pub tag_poll: Duration,
}

/// Pause that batches reads of new objects.
const GATHER: Duration = Duration::from_millis(50);
/// Number of polls between two reads of the names of tags and categories. A renamed tag keeps its id, so that
/// only this read notices the new name.
const POLLS_PER_NAME_READ: u32 = 10;
/// Maximum number of consecutive refusals that lead to another REST session. The first refusal may concern a borrowed
/// SOAP session, and the second refusal a session that has ended.
const REFUSALS: u32 = 2;

/// The most likely cause of invisible tags. vCenter omits unreadable objects from its lists without an error.
const GLOBAL_PERMISSION: &str = "check first that the account has a global permission with the role Read-only (inventory \
                                 permissions do not apply to tags)";

/// Result of a poll: the tags of the two configured categories, and the objects that have these tags.
#[derive(Default)]
struct CachedTags {
    /// The tags by id.
    tags: HashMap<String, Tag>,
    /// The ids of the tags of each object.
    attached: HashMap<MoRef, BTreeSet<String>>,
    /// The names of the two configured categories, by id.
    categories: BTreeMap<String, String>,
    polls: u32,
}

impl CachedTags {
    /// Describes the problem if a configured category is not visible.
    fn missing_category(&self, categories: &ZoneCategories) -> Option<String> {
        let is_missing = |wanted: &&String| !self.categories.values().any(|name| name == *wanted);
        let missing: Vec<&str> =
            [&categories.region, &categories.zone].into_iter().filter(is_missing).map(String::as_str).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "tag category {} is not visible: {GLOBAL_PERMISSION}, then that the category exists",
                missing.join(" and ")
            )
        })
    }

    /// Returns the categories of the attached tags.
    fn categories_of(&self, attached: &HashMap<MoRef, BTreeSet<String>>) -> BTreeSet<&str> {
        attached.values().flatten().filter_map(|id| self.tags.get(id)).map(|tag| tag.category.as_str()).collect()
    }

    /// Describes the problem if no tag of a category is attached to any object. `lost` has the categories for which
    /// this is new, and `seen` the categories of the attached tags.
    fn unattached_category(&self, lost: &BTreeSet<String>, seen: &BTreeSet<&str>) -> Option<String> {
        if !lost.is_empty() {
            let lost: Vec<&str> = lost.iter().map(String::as_str).collect();
            return Some(format!(
                "no tag of {} is visible on any object since the last read; the account may have lost its global \
                 permission",
                lost.join(" and ")
            ));
        }
        let has_none = |category: &&str| !seen.contains(category);
        let bare: Vec<&str> = self.categories.values().map(String::as_str).filter(has_none).collect();
        (!bare.is_empty()).then(|| {
            format!(
                "no tag of category {} is visible on any object: {GLOBAL_PERMISSION}, then that tags are attached",
                bare.join(" and ")
            )
        })
    }
}

/// Times of the tag reads of one vCenter, for status output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagReads {
    /// Time of the last poll that vCenter answered.
    pub last: Option<Instant>,
    /// Time of the next poll; `None` while zones are off, or without a connection.
    pub next: Option<Instant>,
}

/// Backoff and times of tag reads. Kept across connections, which may fail often. Never locked across an await.
#[derive(Default)]
pub(super) struct TagRetry {
    state: Mutex<TagRetryState>,
}

#[derive(Default)]
struct TagRetryState {
    failures: Failures,
    not_before: Option<Instant>,
    reads: TagReads,
}

impl TagRetry {
    fn failed(&self, failure: &RestFailure) {
        let mut state = self.state.lock();
        let pause = match failure {
            RestFailure::Held { pause, .. } => *pause,
            _ => state.failures.next_pause(&PASSING, fastrand::f64()),
        };
        let next = Some(Instant::now() + pause);
        state.not_before = next;
        state.reads.next = next;
    }

    fn succeeded(&self, next: Instant) {
        let mut state = self.state.lock();
        state.failures.reset();
        state.reads = TagReads { last: Some(Instant::now()), next: Some(next) };
    }

    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        let last = state.reads.last;
        *state = TagRetryState { reads: TagReads { last, next: None }, ..TagRetryState::default() };
    }

    fn stop(&self) {
        self.state.lock().reads = TagReads::default();
    }

    /// Records that there is no connection, and so no next poll.
    pub(super) fn disconnected(&self) {
        self.state.lock().reads.next = None;
    }

    /// Returns the times of the reads.
    pub(super) fn reads(&self) -> TagReads {
        self.state.lock().reads
    }
}

/// Reads the tags over one connection.
pub(super) struct TagReader<'a> {
    pub(super) session: &'a Session,
    pub(super) publisher: &'a Publisher,
    pub(super) settings: &'a watch::Sender<Arc<TagSettings>>,
    pub(super) retry: &'a TagRetry,
}

impl TagReader<'_> {
    /// Keeps the tags in the snapshot current. Failures are logged and retried, and never end the subscription.
    pub(super) async fn run(&self) -> Infallible {
        let mut changes = self.settings.subscribe();
        loop {
            let settings = changes.borrow_and_update().clone();
            let mut following = pin!(self.follow_categories(&settings));
            tokio::select! {
                never = &mut following => match never {},
                // Cannot fail, because `self` owns the sender.
                _ = changes.wait_for(|now| *now != settings) => {}
            }
            self.session.logins().give_up(following).await;
        }
    }

    async fn follow_categories(&self, settings: &TagSettings) -> Infallible {
        let Some(categories) = &settings.categories else {
            self.forget_tags();
            self.retry.stop();
            return std::future::pending().await;
        };
        loop {
            let not_before = self.retry.state.lock().not_before;
            if let Some(moment) = not_before {
                tokio::select! {
                    () = sleep_until(moment) => {}
                    () = self.session.released() => {}
                    () = self.session.returned() => {}
                }
            }
            let Err(failure) = self.keep_tags(categories, settings.tag_poll).await;
            self.retry.failed(&failure);
            self.report_failure(Some(format!("tags cannot be read: {}", chain(&failure))));
        }
    }

    async fn keep_tags(&self, categories: &ZoneCategories, tag_poll: Duration) -> Result<Infallible, RestFailure> {
        let mut known = CachedTags::default();
        let mut refused_in_row = 0;
        let mut next_poll = Instant::now();
        loop {
            let rest = self.session.rest().await?;
            let read = async {
                if Instant::now() >= next_poll {
                    self.poll(&rest, categories, &mut known).await?;
                    refused_in_row = 0;
                    // Jitter spreads the polls of replicas and vCenters.
                    next_poll = Instant::now() + tag_poll.mul_f64(0.9 + fastrand::f64() / 10.0);
                    self.retry.succeeded(next_poll);
                }
                self.read_new_objects(&rest, &known).await
            };
            match read.await.map_err(RestFailure::Rest) {
                Ok(()) => refused_in_row = 0,
                // The REST session has ended, or REST refuses the SOAP session. The read is repeated with another one.
                Err(failure) if failure.is_unauthenticated() && refused_in_row < REFUSALS => {
                    refused_in_row += 1;
                    self.session.rest_refused(&rest).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            drop(rest);
            tokio::select! {
                () = sleep_until(next_poll) => {}
                () = self.publisher.objects_changed.notified() => sleep(GATHER).await,
            }
        }
    }

    /// Drops the cached tags, because zones are disabled.
    fn forget_tags(&self) {
        if *self.tags() != TagSnapshot::default() {
            self.publisher.change_tags(|tags| *tags = TagSnapshot::default());
        }
    }

    /// Reads the attachments of the tags of both categories. Drops the cached tags of objects whose tags changed, so
    /// that these tags are read again.
    async fn poll(
        &self,
        rest: &ClientInUse<vapi::Client>,
        categories: &ZoneCategories,
        known: &mut CachedTags,
    ) -> Result<(), vapi::Error> {
        if known.polls.is_multiple_of(POLLS_PER_NAME_READ) {
            known.categories = self.fetch_categories(rest, categories).await?;
            known.tags.clear();
        }
        self.fetch_tags(rest, known).await?;
        let ids: Vec<String> = known.tags.keys().cloned().collect();
        let mut attached: HashMap<MoRef, BTreeSet<String>> = HashMap::new();
        for found in rest.list_attached_objects_on_tags(&ids).await? {
            for object in found.objects {
                attached.entry(object).or_default().insert(found.tag_id.clone());
            }
        }
        let seen = known.categories_of(&attached);
        let lost = self.lost_categories(categories, &seen);
        let failure = known.missing_category(categories).or_else(|| known.unattached_category(&lost, &seen));
        self.report_failure(failure);
        if lost.is_empty() {
            known.attached = attached;
            self.forget_changed(known);
        }
        known.polls = known.polls.wrapping_add(1);
        Ok(())
    }

    /// Fetches the names of tags that `known` lacks, and removes the tags that no longer exist from `known`.
    async fn fetch_tags(&self, rest: &ClientInUse<vapi::Client>, known: &mut CachedTags) -> Result<(), vapi::Error> {
        let mut names = HashMap::new();
        for (category_id, category) in &known.categories {
            // A category or tag may disappear between the calls.
            for tag_id in rest.list_tags_of_category(category_id).await?.unwrap_or_default() {
                let tag = match known.tags.remove(&tag_id) {
                    Some(tag) => Some(tag),
                    None => {
                        let tag = rest.fetch_tag(&tag_id).await?;
                        tag.map(|tag| Tag { name: tag.name, category: category.clone() })
                    }
                };
                names.extend(tag.map(|tag| (tag_id, tag)));
            }
        }
        known.tags = names;
        Ok(())
    }

    /// Returns the configured categories whose tags are in the snapshot, but in this poll on no object. `seen` has the
    /// categories of the tags on objects.
    fn lost_categories(&self, categories: &ZoneCategories, seen: &BTreeSet<&str>) -> BTreeSet<String> {
        let cached = self.tags();
        let held = cached.objects.values().flat_map(|tags| match tags {
            ObjectTags::Read(tags) => tags.as_slice(),
            ObjectTags::Unreadable(_) => &[],
        });
        // The snapshot may have tags of a previously configured category.
        let is_of_interest = |category: &&String| **category == categories.zone || **category == categories.region;
        let interesting = held.map(|tag| &tag.category).filter(is_of_interest);
        interesting.filter(|category| !seen.contains(category.as_str())).cloned().collect()
    }

    /// Fetches the ids of the two configured categories. vCenter has no lookup by name.
    async fn fetch_categories(
        &self,
        rest: &ClientInUse<vapi::Client>,
        categories: &ZoneCategories,
    ) -> Result<BTreeMap<String, String>, vapi::Error> {
        let mut found = BTreeMap::new();
        for id in rest.list_categories().await? {
            let Some(category) = rest.fetch_category(&id).await? else { continue };
            if category.name == categories.zone || category.name == categories.region {
                found.insert(id, category.name);
            }
        }
        Ok(found)
    }

    fn forget_changed(&self, known: &CachedTags) {
        let tags = self.tags();
        let is_same = |object: &MoRef, cached: &ObjectTags| {
            let ObjectTags::Read(held) = cached else { return false };
            let ids = known.attached.get(object).into_iter().flatten();
            let now: Vec<&Tag> = ids.filter_map(|id| known.tags.get(id)).collect();
            now.len() == held.len() && now.iter().all(|tag| held.contains(tag))
        };
        if tags.objects.iter().all(|(object, held)| is_same(object, held)) {
            return;
        }
        self.publisher.change_tags(|tags| tags.objects.retain(|object, held| is_same(object, held)));
    }

    async fn read_new_objects(&self, rest: &ClientInUse<vapi::Client>, known: &CachedTags) -> Result<(), vapi::Error> {
        let (new, gone) = self.publisher.with(|state| {
            let vms = state.vms().map(|(id, _)| MoRef::new("VirtualMachine", id));
            let objects: BTreeSet<MoRef> = vms.chain(state.mirror.entities.keys().cloned()).collect();
            let new: Vec<MoRef> =
                objects.iter().filter(|object| !state.next.tags.objects.contains_key(object)).cloned().collect();
            let gone: Vec<MoRef> =
                state.next.tags.objects.keys().filter(|object| !objects.contains(object)).cloned().collect();
            (new, gone)
        });
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let answer = rest.list_attached_tags_on_objects(&new).await?;
        // The answer omits objects without tags.
        let mut read: HashMap<MoRef, ObjectTags> =
            new.into_iter().map(|object| (object, ObjectTags::Read(Vec::new()))).collect();
        for found in answer {
            let tags: Vec<Tag> = found.tag_ids.iter().filter_map(|id| known.tags.get(id).cloned()).collect();
            // Objects are read only if they are new or changed, so the warning is logged once.
            let settings = self.settings.borrow().clone();
            let notices = settings.categories.iter().flat_map(|known| known.notices(&found.object, &tags));
            for oddity in notices {
                warn!(vcenter = self.session.server(), "{oddity}");
            }
            read.insert(found.object, ObjectTags::Read(tags));
        }
        self.publisher.change_tags(|tags| {
            tags.objects.retain(|object, _| !gone.contains(object));
            tags.objects.extend(read);
        });
        Ok(())
    }

    fn tags(&self) -> Arc<TagSnapshot> {
        self.publisher.with(|state| Arc::clone(&state.next.tags))
    }

    /// Stores the reason why zones cannot be determined. Logs each new reason, and that tags can be read again.
    fn report_failure(&self, failure: Option<String>) {
        if self.tags().error == failure {
            return;
        }
        let vcenter = self.session.server();
        match &failure {
            Some(reason) => warn!(vcenter, "{reason}; zones and regions stay unchanged"),
            None => info!(vcenter, "tags can be read again"),
        }
        self.publisher.change_tags(|tags| tags.error = failure);
    }
}
