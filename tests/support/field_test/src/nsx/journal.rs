//! What the field test makes in NSX, and its removal.
//!
//! An object is written only if its path was absent before, and is entered before the write is sent. A write under way goes on
//! when its caller is dropped, so that the removal knows what became of it: a write that is given up can still take effect
//! after the removal. Only objects with the tag of this run are deleted.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ccm::clients::http::Permit;
use ccm::clients::nsx::{Client, Error, Kind, Object, Priority, WriteCall};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Limits;
use crate::interrupts::Interrupts;

/// The client's name of the calls about the objects.
pub(super) const OPERATION: &str = "field-test.write";

/// The scopes of the tags that all objects have.
const PREFIX_SCOPE: &str = "field-test";
const RUN_SCOPE: &str = "field-test-run";

/// Where virtual servers and allocations are.
pub(super) const SERVERS: &str = "/infra/lb-virtual-servers/";
pub(super) const ALLOCATIONS: &str = "/ip-allocations/";

/// Between two attempts to remove what is still in use.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// More than a write takes with its turn and its time limit.
const UNDER_WAY: Duration = Duration::from_secs(75);

/// An object that may be written: its path was absent.
#[derive(Clone, Debug)]
pub(super) struct Planned(String);

impl Planned {
    /// Its path.
    pub(super) fn path(&self) -> &str {
        &self.0
    }
}

/// Why an object is not planned.
pub(super) enum NotPlanned {
    /// There is one with this path.
    Exists,
    /// That is not known.
    Unknown(Error),
}

/// Why the removal ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// All is absent, or its time is over.
    Done,
    /// The manager does not take the session.
    SessionOver,
    /// Nothing more can be sent.
    Stopped,
}

/// An object of which a write was begun.
struct Entry {
    path: String,
    /// Whether a write of it was answered with success.
    is_acknowledged: bool,
    /// Whether a write of it got no answer, so that it can take effect later.
    is_unanswered: bool,
    /// Whether there is an object of which nothing shows whose it is: the write got no answer, and the object has no tags. It is
    /// listed and not deleted.
    is_doubtful: bool,
    /// Since when it is absent, if that was not long enough ago.
    absent_since: Option<Instant>,
}

type Answer = Result<Option<Object>, Error>;

/// See the module.
pub(super) struct Journal {
    prefix: String,
    run: String,
    limits: Limits,
    interrupts: Interrupts,
    /// In the order of their making.
    entries: Vec<Entry>,
    /// The virtual server, once a write of it was begun.
    server: Option<String>,
    under_way: Option<(String, JoinHandle<Answer>)>,
}

impl Journal {
    pub(super) fn new(prefix: &str, limits: Limits, interrupts: Interrupts) -> Self {
        let run = uuid::Uuid::new_v4().to_string();
        let (prefix, entries) = (prefix.to_owned(), Vec::new());
        Self { prefix, run, limits, interrupts, entries, server: None, under_way: None }
    }

    /// Plans an object: there must be none of this path.
    pub(super) async fn plan(&self, client: &Client, path: &str) -> Result<Planned, NotPlanned> {
        match client.get(path, OPERATION, Priority::Urgent).await {
            Ok(_) => Err(NotPlanned::Exists),
            Err(error) if error.kind == Kind::NotFound => Ok(Planned(path.to_owned())),
            Err(error) => Err(NotPlanned::Unknown(error)),
        }
    }

    /// An object with these members, and with the name and the tags of this run.
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

    /// Creates or replaces an object; gives what is stored.
    pub(super) async fn put(&mut self, client: &Client, planned: &Planned, body: &Object) -> Result<Object, Error> {
        let (client, path, body, permit) = (client.clone(), planned.0.clone(), body.clone(), self.permit());
        let call = async move { client.put(WriteCall { permit: &permit }, &path, OPERATION, &body).await.map(Some) };
        self.write(planned, call).await.map(Option::unwrap_or_default)
    }

    /// Creates an object with PATCH, which answers without it.
    pub(super) async fn patch(&mut self, client: &Client, planned: &Planned, body: &Object) -> Result<(), Error> {
        let (client, path, body, permit) = (client.clone(), planned.0.clone(), body.clone(), self.permit());
        let call =
            async move { client.patch(WriteCall { permit: &permit }, &path, OPERATION, &body).await.map(|()| None) };
        self.write(planned, call).await.map(drop)
    }

    /// Deletes an object of which a write was acknowledged; it stays in the journal until the removal sees that it is absent.
    pub(super) async fn delete(&self, client: &Client, planned: &Planned) -> Result<(), Error> {
        debug_assert!(self.is_made(planned), "{} was not made", planned.0);
        let permit = self.permit();
        client.delete(WriteCall { permit: &permit }, planned.path(), OPERATION).await
    }

    /// Whether a write of it was acknowledged.
    pub(super) fn is_made(&self, planned: &Planned) -> bool {
        self.entries.iter().any(|entry| entry.path == planned.0 && entry.is_acknowledged)
    }

    /// No write begins after an interruption, and one that is under way goes on.
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
            // Such a call did nothing.
            Err(error) if matches!(error.kind, Kind::SessionOver | Kind::Rejected | Kind::NotPermitted) => {
                entry.is_unanswered = false;
                self.entries.retain(|entry| entry.path != path || entry.is_acknowledged);
            }
            Err(error) => {
                entry.is_unanswered = {
                    // Only a refusal says that nothing was done.
                    error.status().is_none_or(|status| !(400..500).contains(&status))
                }
            }
        }
    }

    /// Waits for the write that was under way when its caller was dropped.
    pub(super) async fn settle(&mut self) {
        let Some((path, task)) = &mut self.under_way else { return };
        let path = path.clone();
        if let Ok(answer) = tokio::time::timeout(UNDER_WAY, joined(task)).await {
            self.enter(&path, &answer);
        }
        self.under_way = None;
    }

    /// Removes what was made, the last one first, again and again until all is absent or `deadline` has come.
    pub(super) async fn remove_all(&mut self, client: &Client, deadline: Instant) -> Removal {
        let mut pause = FIRST_PAUSE;
        loop {
            let entries = self.entries.iter().rev().filter(|entry| !entry.is_doubtful);
            let paths: Vec<_> = entries.map(|entry| entry.path.clone()).collect();
            for path in paths {
                match self.remove(client, &path).await {
                    Err(error) if error.kind == Kind::SessionOver => return Removal::SessionOver,
                    Err(error) if matches!(error.kind, Kind::Rejected | Kind::NotPermitted) => return Removal::Stopped,
                    // What is still there is tried again.
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

    /// Deletes an object if it is of this run. One that is absent, or is another's, leaves the journal.
    async fn remove(&mut self, client: &Client, path: &str) -> Result<(), Error> {
        let get = async || client.get(path, OPERATION, Priority::Urgent).await;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else { return Ok(()) };
        let mut seen = get().await;
        let was_unanswered = entry.is_unanswered;
        // A write without an answer has taken effect.
        entry.is_unanswered &= seen.is_err();
        let is_of_run = match &seen {
            Ok(object) => is_of_run(object, &self.run, entry.is_acknowledged),
            // It may be deleted without being read.
            Err(error) => entry.is_acknowledged && error.kind == Kind::NoPermission,
        };
        if is_of_run {
            if self.is_address_in_use(client, path).await? {
                return Ok(());
            }
            let permit: Arc<dyn Permit> = Arc::new(UntilInterrupted(None));
            client.delete(WriteCall { permit: &permit }, path, OPERATION).await?;
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

    /// One whose write got no answer leaves the journal when it is still absent later.
    fn enter_absent(&mut self, path: &str) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else { return };
        let since = entry.absent_since.get_or_insert_with(Instant::now);
        if !entry.is_unanswered || since.elapsed() >= self.limits.late {
            self.entries.retain(|entry| entry.path != path);
        }
    }

    /// An address must not go to another client while the network still has a virtual server with it.
    async fn is_address_in_use(&self, client: &Client, path: &str) -> Result<bool, Error> {
        let Some(server) = self.server.as_deref().filter(|_| path.contains(ALLOCATIONS)) else { return Ok(false) };
        let is_there = self.entries.iter().any(|entry| entry.path == server);
        Ok(is_there || client.is_in_effect(server, OPERATION).await?)
    }

    /// What may still be there, in the order in which it can be removed.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().rev().map(|entry| entry.path.as_str())
    }
}

/// Whether the object is one that this run made. Whether each kind of object keeps its tags is not known.
fn is_of_run(object: &Object, run: &str, is_acknowledged: bool) -> bool {
    object.tag(RUN_SCOPE) == Some(run) || (is_acknowledged && object.tags().next().is_none())
}

/// The outcome of a task. It is never aborted.
async fn joined(task: &mut JoinHandle<Answer>) -> Answer {
    match task.await {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The permission to begin a write: until the first signal, or for ever.
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
