//! Property collectors: versions that resume, pages, enter, modify and leave.
//!
//! A version identifies a state. A client may send the last complete version again, and gets all changes since then
//! again. The version of a truncated answer is valid once, and only as the last one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::fault::Fault;
use super::inventory::{Object, Ref};
use super::selection::{Selected, Spec};

/// One collector with at most one filter.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) filter: Option<Filter>,
    /// Lock for waits: the next wait starts after the current one ends.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Number of calls of `CancelWaitForUpdates`.
    pub(super) cancels: u32,
    last_version: u64,
    /// The last complete state whose version the client has sent back.
    base: (String, Selected),
    /// The last complete state that was sent and is not confirmed yet.
    sent: Option<(String, Selected)>,
    /// Rest of a truncated answer.
    rest: Option<Rest>,
}

#[derive(Debug)]
pub(super) struct Filter {
    pub(super) id: String,
    pub(super) spec: Spec,
}

#[derive(Debug)]
struct Rest {
    version: String,
    updates: VecDeque<Update>,
    target: Selected,
}

/// The old and the new state of an object.
#[derive(Debug)]
struct Update {
    reference: Ref,
    before: Option<Arc<Object>>,
    after: Option<Arc<Object>>,
}

impl Collector {
    pub(super) fn new() -> Self {
        Self {
            filter: None,
            turn: Arc::default(),
            cancels: 0,
            last_version: 0,
            base: (String::new(), Selected::new()),
            sent: None,
            rest: None,
        }
    }

    /// Returns the content of the answer to a wait since `version`, or `None` if nothing changed. `select` returns the
    /// objects that the filter currently selects.
    pub(super) fn updates(
        &mut self,
        version: &str,
        page_size: usize,
        select: impl FnOnce(&Spec) -> Selected,
    ) -> Result<Option<String>, Fault> {
        if self.rest.as_ref().is_some_and(|rest| rest.version == version) {
            let rest = self.rest.take().unwrap();
            return Ok(Some(self.page(rest.updates, rest.target, page_size)));
        }
        self.rest = None;
        if version.is_empty() {
            self.base = (String::new(), Selected::new());
            self.sent = None;
        } else if self.sent.as_ref().is_some_and(|(sent, _)| sent == version) {
            self.base = self.sent.take().unwrap();
        } else if self.base.0 == version {
            self.sent = None;
        } else {
            return Err(Fault::new("InvalidCollectorVersion"));
        }
        let Some(filter) = &self.filter else { return Ok(None) };
        let target = select(&filter.spec);
        let updates = self.differences(&target, &filter.spec);
        if updates.is_empty() { Ok(None) } else { Ok(Some(self.page(updates, target, page_size))) }
    }

    /// Removes an object from the reported state, so that its end is never reported.
    pub(super) fn forget(&mut self, reference: &Ref) {
        self.base.1.remove(reference);
        if let Some((_, sent)) = &mut self.sent {
            sent.remove(reference);
        }
    }

    fn differences(&self, target: &Selected, spec: &Spec) -> VecDeque<Update> {
        let before = &self.base.1;
        let mut updates = VecDeque::new();
        for (reference, after) in target {
            let known = before.get(reference);
            if known.is_none_or(|known| !Arc::ptr_eq(known, after) && differs(known, after, &spec.paths_of(reference)))
            {
                let (before, after) = (known.cloned(), Some(Arc::clone(after)));
                updates.push_back(Update { reference: reference.clone(), before, after });
            }
        }
        let left = before.keys().filter(|reference| !target.contains_key(reference));
        updates.extend(left.map(|reference| Update { reference: reference.clone(), before: None, after: None }));
        updates
    }

    fn page(&mut self, mut updates: VecDeque<Update>, target: Selected, page_size: usize) -> String {
        self.last_version += 1;
        let version = self.last_version.to_string();
        let filter = self.filter.as_ref().expect("updates come from a filter");
        let count = page_size.clamp(1, updates.len());
        let sets: String = updates.drain(..count).map(|update| update.element(&filter.spec)).collect();
        let truncated = if updates.is_empty() { "" } else { "<truncated xsi:type=\"xsd:boolean\">true</truncated>" };
        let filter = Ref::new("PropertyFilter", &filter.id).element("filter");
        let content = format!(
            "<returnval xsi:type=\"UpdateSet\"><version xsi:type=\"xsd:string\">{version}</version>\
             <filterSet xsi:type=\"PropertyFilterUpdate\">{filter}{sets}</filterSet>{truncated}</returnval>"
        );
        if updates.is_empty() {
            self.sent = Some((version, target));
        } else {
            self.rest = Some(Rest { version, updates, target });
        }
        content
    }
}

fn differs(before: &Object, after: &Object, paths: &[&str]) -> bool {
    paths.iter().any(|path| changed(before, after, path))
}

fn changed(before: &Object, after: &Object, path: &str) -> bool {
    before.properties.get(path) != after.properties.get(path) || is_hidden(before, path) != is_hidden(after, path)
}

fn is_hidden(object: &Object, path: &str) -> bool {
    object.hidden.contains(path)
}

impl Update {
    fn element(&self, spec: &Spec) -> String {
        let object = self.reference.element("obj");
        let (kind, content) = match (&self.before, &self.after) {
            (_, None) => ("leave", String::new()),
            (None, Some(after)) => ("enter", properties(after, &spec.paths_of(&self.reference), "changeSet")),
            (Some(before), Some(after)) => {
                let mut paths = spec.paths_of(&self.reference);
                paths.retain(|path| changed(before, after, path));
                let gone: BTreeSet<&str> =
                    paths.iter().filter(|path| !after.properties.contains_key(**path)).copied().collect();
                let unset: String = gone
                    .iter()
                    .filter(|path| !is_hidden(after, path))
                    .map(|path| change("changeSet", path, ""))
                    .collect();
                ("modify", unset + &properties(after, &paths, "changeSet"))
            }
        };
        format!(
            "<objectSet xsi:type=\"ObjectUpdate\"><kind xsi:type=\"ObjectUpdateKind\">{kind}</kind>{object}{content}</objectSet>"
        )
    }
}

fn change(element: &str, path: &str, value: &str) -> String {
    let op = if element == "changeSet" { "<op xsi:type=\"PropertyChangeOp\">assign</op>" } else { "" };
    let name = super::xml::escape(path);
    format!("<{element}><name xsi:type=\"xsd:string\">{name}</name>{op}{value}</{element}>")
}

/// Returns the set properties of an object, then those that may not be read. Unset ones are left out.
pub(super) fn properties(object: &Object, paths: &[&str], element: &str) -> String {
    let readable = paths.iter().filter(|path| object.is_readable && !is_hidden(object, path));
    let set: String =
        readable.filter_map(|path| Some(change(element, path, &object.properties.get(*path)?.element()))).collect();
    let fault = Fault::no_permission(&object.reference.kind, &object.reference.id).localized();
    let missing: String = paths
        .iter()
        .filter(|path| !object.is_readable || is_hidden(object, path))
        .map(|path| format!("<missingSet><path>{}</path>{fault}</missingSet>", super::xml::escape(path)))
        .collect();
    set + &missing
}
