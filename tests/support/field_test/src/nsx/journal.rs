//! The objects that the field test creates in NSX, and their removal.
//!
//! An object is written only if its path was absent before. The journal gets its entry before the write is sent. A
//! write that was started continues when its caller is dropped, so that the removal knows its result: a cancelled write
//! could still take effect after the removal. Only objects with the tag of this run are deleted.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ccm::clients::http::Permit;
use ccm::clients::nsx::{Client, Error, Kind, Object};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Limits;
use crate::interrupts::Interrupts;

/// Operation name of the calls about the objects.
pub(super) const OPERATION: &str = "field-test.write";

/// Scopes of the tags that all these objects have.
const PREFIX_SCOPE: &str = "field-test";
const RUN_SCOPE: &str = "field-test-run";

/// Path of the virtual servers, and the part of a path before the id of an allocation.
pub(super) const SERVERS: &str = "/infra/lb-virtual-servers/";
pub(super) const ALLOCATIONS: &str = "/ip-allocations/";

/// First and longest pause between two attempts to remove an object that is still in use.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Longer than a write takes, including its wait for the rate limit and its timeout.
const UNDER_WAY: Duration = Duration::from_secs(75);

/// An object that may be written, because its path was absent.
#[derive(Clone, Debug)]
pub(super) struct Planned(String);

impl Planned {
    pub(super) fn path(&self) -> &str {
        &self.0
    }
}

/// Reason why an object may not be written.
pub(super) enum NotPlanned {
    Exists,
    /// The read failed.
    Unknown(Error),
}

/// Reason why the removal ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Everything is absent, or the deadline has passed.
    Done,
    /// The manager rejects the session.
    SessionOver,
    /// No more calls can be sent.
    Stopped,
}

/// An object whose write was started.
struct Entry {
    path: String,
    /// Whether a write of it succeeded.
    is_acknowledged: bool,
    /// Whether a write of it got no answer, so that the write can take effect later.
    is_unanswered: bool,
    /// Whether the owner of the object is unknown: its write got no answer, and it has no tags. Such an object is
    /// listed and not deleted.
    is_doubtful: bool,
    /// Time since which the object is absent, until it has been absent long enough.
    absent_since: Option<Instant>,
}

type Answer = Result<Option<Object>, Error>;

/// The journal of what this run creates. See the module.
pub(super) struct Journal {
    prefix: String,
    run: String,
    limits: Limits,
    interrupts: Interrupts,
    entries: Vec<Entry>,
    /// Path of the virtual server, once a write of it was started.
    server: Option<String>,
    under_way: Option<(String, JoinHandle<Answer>)>,
}

impl Journal {
    pub(super) fn new(prefix: &str, limits: Limits, interrupts: Interrupts) -> Self {
        let run = uuid::Uuid::new_v4().to_string();
        let (prefix, entries) = (prefix.to_owned(), Vec::new());
        Self { prefix, run, limits, interrupts, entries, server: None, under_way: None }
    }

    /// Plans an object. Its path must be absent.
    pub(super) async fn plan(&self, client: &Client, path: &str) -> Result<Planned, NotPlanned> {
        match client.get(path, OPERATION).await {
            Ok(_) => Err(NotPlanned::Exists),
            Err(error) if error.kind == Kind::NotFound => Ok(Planned(path.to_owned())),
            Err(error) => Err(NotPlanned::Unknown(error)),
        }
    }

    /// Returns an object with these members and with the name and tags of this run.
    pub(super) fn body(&self, members: Value) -> Object {
        let mut object = Object::default();
        if let Value::Object(members) = members {
            object.0.extend(members);
        }
        object.0.insert("display_name".to_owned(), format!("{}-field-test", self.prefix).into());
        let tags = json!([{"scope": PREFIX_SCOPE, "tag": self.prefix}, {"scope": RUN_SCOPE, "tag": self.run}]);
        object.0.insert("tags".to_owned(), tags);
        object
    }

    /// Creates or replaces an object. Returns the stored object.
    pub(super) async fn put(&mut self, client: &Client, planned: &Planned, body: &Object) -> Result<Object, Error> {
        let (client, path, body, permit) = (client.clone(), planned.0.clone(), body.clone(), self.permit());
        let call = async move { client.put(&permit, &path, OPERATION, &body).await.map(Some) };
        self.write(planned, call).await.map(Option::unwrap_or_default)
    }

    /// Creates an object with PATCH, whose answer does not contain the object.
    pub(super) async fn patch(&mut self, client: &Client, planned: &Planned, body: &Object) -> Result<(), Error> {
        let (client, path, body, permit) = (client.clone(), planned.0.clone(), body.clone(), self.permit());
        let call = async move { client.patch(&permit, &path, OPERATION, &body).await.map(|()| None) };
        self.write(planned, call).await.map(drop)
    }

    /// Deletes an object whose write succeeded. It stays in the journal until the removal finds it absent.
    pub(super) async fn delete(&self, client: &Client, planned: &Planned) -> Result<(), Error> {
        debug_assert!(self.is_made(planned), "{} was not made", planned.0);
        let permit = self.permit();
        client.delete(&permit, planned.path(), OPERATION).await
    }

    /// Returns true if a write of it succeeded.
    pub(super) fn is_made(&self, planned: &Planned) -> bool {
        self.entries.iter().any(|entry| entry.path == planned.0 && entry.is_acknowledged)
    }

    /// Returns a permit that expires at an interruption. A write that was started continues.
    fn permit(&self) -> Arc<dyn Permit> {
        Arc::new(UntilInterrupted(Some(self.interrupts.clone())))
    }

    async fn write(&mut self, planned: &Planned, call: impl Future<Output = Answer> + Send + 'static) -> Answer {
        let path = planned.path();
        if !self.entries.iter().any(|entry| entry.path == path) {
            let path = path.to_owned();
            self.entries.push(Entry {
                path,
                is_acknowledged: false,
                is_unanswered: true,
                is_doubtful: false,
                absent_since: None,
            });
        }
        if path.starts_with(SERVERS) {
            self.server = Some(path.to_owned());
        }
        let (path, task) = self.under_way.insert((path.to_owned(), tokio::spawn(call)));
        let (path, answer) = (path.clone(), joined(task).await);
        self.under_way = None;
        self.enter(&path, &answer);
        answer
    }

    fn enter(&mut self, path: &str, answer: &Answer) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else { return };
        match answer {
            Ok(_) => (entry.is_acknowledged, entry.is_unanswered) = (true, false),
            // Such a call changed nothing.
            Err(error) if matches!(error.kind, Kind::SessionOver | Kind::Rejected | Kind::NotPermitted) => {
                entry.is_unanswered = false;
                self.entries.retain(|entry| entry.path != path || entry.is_acknowledged);
            }
            Err(error) => {
                entry.is_unanswered = {
                    // Only a 4xx answer proves that nothing was changed.
                    error.status().is_none_or(|status| !(400..500).contains(&status))
                }
            }
        }
    }

    /// Waits for the write that was in flight when its caller was dropped.
    pub(super) async fn settle(&mut self) {
        let Some((path, task)) = &mut self.under_way else { return };
        let path = path.clone();
        if let Ok(answer) = tokio::time::timeout(UNDER_WAY, joined(task)).await {
            self.enter(&path, &answer);
        }
        self.under_way = None;
    }

    /// Removes what was created, in reverse order. Repeats this until everything is absent or `deadline` has passed.
    pub(super) async fn remove_all(&mut self, client: &Client, deadline: Instant) -> Removal {
        let mut pause = FIRST_PAUSE;
        loop {
            let entries = self.entries.iter().rev().filter(|entry| !entry.is_doubtful);
            let paths: Vec<_> = entries.map(|entry| entry.path.clone()).collect();
            for path in paths {
                match self.remove(client, &path).await {
                    Err(error) if error.kind == Kind::SessionOver => return Removal::SessionOver,
                    Err(error) if matches!(error.kind, Kind::Rejected | Kind::NotPermitted) => return Removal::Stopped,
                    // An object that remains is tried again.
                    Ok(()) | Err(_) => {}
                }
            }
            if self.entries.iter().all(|entry| entry.is_doubtful) || Instant::now() + pause > deadline {
                return Removal::Done;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Deletes an object if this run owns it. An object that is absent, or that another client owns, leaves the
    /// journal.
    async fn remove(&mut self, client: &Client, path: &str) -> Result<(), Error> {
        let get = async || client.get(path, OPERATION).await;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else { return Ok(()) };
        let mut seen = get().await;
        let was_unanswered = entry.is_unanswered;
        // The object exists, so the write without an answer has taken effect.
        entry.is_unanswered &= seen.is_err();
        let is_of_run = match &seen {
            Ok(object) => is_of_run(object, &self.run, entry.is_acknowledged),
            // The account may be allowed to delete the object but not to read it.
            Err(error) => entry.is_acknowledged && error.kind == Kind::NoPermission,
        };
        if is_of_run {
            if self.is_address_in_use(client, path).await? {
                return Ok(());
            }
            let permit: Arc<dyn Permit> = Arc::new(UntilInterrupted(None));
            client.delete(&permit, path, OPERATION).await?;
            seen = get().await;
        }
        match seen {
            Ok(object) if !is_of_run && was_unanswered && object.tags().next().is_none() => {
                self.entries.iter_mut().filter(|entry| entry.path == path).for_each(|entry| entry.is_doubtful = true);
            }
            Ok(_) if !is_of_run => self.entries.retain(|entry| entry.path != path),
            Err(error) if error.kind == Kind::NotFound => self.enter_absent(path),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Enters that the object is absent. If its write got no answer, the entry leaves the journal only if the object is
    /// still absent later.
    fn enter_absent(&mut self, path: &str) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else { return };
        let since = entry.absent_since.get_or_insert_with(Instant::now);
        if !entry.is_unanswered || since.elapsed() >= self.limits.late {
            self.entries.retain(|entry| entry.path != path);
        }
    }

    /// Returns true while NSX still has a virtual server with the address. The address must not be given to another
    /// client until then.
    async fn is_address_in_use(&self, client: &Client, path: &str) -> Result<bool, Error> {
        let Some(server) = self.server.as_deref().filter(|_| path.contains(ALLOCATIONS)) else { return Ok(false) };
        let is_there = self.entries.iter().any(|entry| entry.path == server);
        Ok(is_there || client.is_in_effect(server, OPERATION).await?)
    }

    /// Returns the objects that may still exist, in the order in which they can be removed.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().rev().map(|entry| entry.path.as_str())
    }
}

/// Returns true if this run created the object. Some kinds of objects may not keep their tags.
fn is_of_run(object: &Object, run: &str, is_acknowledged: bool) -> bool {
    object.tag(RUN_SCOPE) == Some(run) || (is_acknowledged && object.tags().next().is_none())
}

/// Returns the result of a task. The task is never aborted.
async fn joined(task: &mut JoinHandle<Answer>) -> Answer {
    match task.await {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A permit to start a write: until the first signal, or forever.
struct UntilInterrupted(Option<Interrupts>);

#[async_trait]
impl Permit for UntilInterrupted {
    fn is_valid(&self) -> bool {
        !self.0.as_ref().is_some_and(Interrupts::is_interrupted)
    }

    async fn ended(&self) {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use ccm::clients::nsx::Object;
    use serde_json::json;

    use super::is_of_run;

    #[test]
    fn an_object_of_this_run_has_its_tag_or_was_acknowledged_and_keeps_no_tags() {
        let object = |tags: serde_json::Value| Object(serde_json::from_value(json!({"tags": tags})).unwrap());
        let of = |run: &str| json!([{"scope": "field-test", "tag": "a"}, {"scope": "field-test-run", "tag": run}]);
        for (tags, is_acknowledged, expected) in [
            (of("1"), false, true),
            (of("1"), true, true),
            (of("2"), true, false),
            (of("2"), false, false),
            (json!([{"scope": "cluster", "tag": "a"}]), true, false),
            (json!([]), true, true),
            (json!([]), false, false),
        ] {
            assert_eq!(is_of_run(&object(tags.clone()), "1", is_acknowledged), expected, "{tags} {is_acknowledged}");
        }
    }
}
