//! Reads an audit log for the terms of leaders, and for writes to Nodes and Services by replicas that did not lead.
//! Pure: the log is a parameter.

use k8s_openapi::jiff::Timestamp;
use support::AuditEvent;

/// A time in which one replica held the Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// User of the replica.
    pub user: String,
    /// Time of the answer to the update that made the replica the holder.
    pub began: Timestamp,
    /// Time of the answer to the update that released the Lease; `None` if the replica did not release it.
    pub given_up: Option<Timestamp>,
}

/// An accepted write to a Node or a Service whose writer did not lead when the write arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    pub user: String,
    /// Resource, namespace and name, such as `nodes//a`.
    pub object: String,
    pub received: Timestamp,
    /// The last term that began before the write.
    pub term: Option<Term>,
}

/// Returns the terms of a Lease, first to last.
pub fn terms(log: &[AuditEvent], lease: &str) -> Vec<Term> {
    let is_ours = |event: &&AuditEvent| {
        let about = &event.object_ref;
        let is_lease = about.api_group == "coordination.k8s.io" && about.resource == "leases";
        // The path of a creation has no name.
        let name = event.request_object["metadata"]["name"].as_str().unwrap_or(&about.name);
        is_lease && name == lease && event.is_write() && event.is_accepted()
    };
    let mut written: Vec<&AuditEvent> = log.iter().filter(is_ours).collect();
    // Sorted by the order of the writes. The order of the answers can differ. Each write names the version that it
    // replaces.
    written.sort_by_key(|event| replaced(event));
    let mut terms: Vec<Term> = Vec::new();
    let mut before = String::new();
    for event in written {
        let holder = event.request_object["spec"]["holderIdentity"].as_str().unwrap_or_default();
        match terms.last_mut() {
            Some(term) if holder.is_empty() && !before.is_empty() => term.given_up = Some(event.answered),
            _ if holder.is_empty() || holder == before => {}
            _ => terms.push(Term { user: event.user.username.clone(), began: event.answered, given_up: None }),
        }
        holder.clone_into(&mut before);
    }
    terms
}

/// Returns the version that a write replaces, or zero for a creation.
fn replaced(event: &AuditEvent) -> u64 {
    event.request_object["metadata"]["resourceVersion"].as_str().map_or(0, |version| version.parse().unwrap())
}

/// Whether the event is an accepted write to an object that only a leader may write.
pub fn is_leaders_write(event: &AuditEvent) -> bool {
    let about = &event.object_ref;
    let is_leaders = about.api_group.is_empty() && ["nodes", "services"].contains(&about.resource.as_str());
    is_leaders && event.is_write() && event.is_accepted()
}

/// Returns the accepted writes to Nodes and Services by one of these users.
pub fn leaders_writes<'a>(log: &'a [AuditEvent], users: &'a [String]) -> impl Iterator<Item = &'a AuditEvent> {
    log.iter().filter(|event| is_leaders_write(event) && users.contains(&event.user.username))
}

/// Returns the last term that began before `at`, and whether the term belonged to this user and had not ended.
pub fn term_at<'a>(terms: &'a [Term], user: &str, at: Timestamp) -> (Option<&'a Term>, bool) {
    let term = terms.iter().rev().find(|term| term.began < at);
    let holds = |term: &Term| term.user == user && term.given_up.is_none_or(|given_up| at <= given_up);
    (term, term.is_some_and(holds))
}

/// Returns the accepted writes to Nodes and Services by one of these users that arrived before the user's first term,
/// after the start of another user's term, or after the release of the Lease. A write that arrived in time and was
/// answered later is no breach.
pub fn breaches(log: &[AuditEvent], lease: &str, users: &[String]) -> Vec<Breach> {
    let terms = terms(log, lease);
    let breach = |event: &AuditEvent| {
        let (term, leads) = term_at(&terms, &event.user.username, event.received);
        let about = &event.object_ref;
        let found = Breach {
            user: event.user.username.clone(),
            object: format!("{}/{}/{}", about.resource, about.namespace, about.name),
            received: event.received,
            term: term.cloned(),
        };
        if leads { None } else { Some(found) }
    };
    leaders_writes(log, users).filter_map(breach).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LEASE: &str = "pool";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Returns a request that arrived at the first second and was answered at the second one.
    fn request(user: &str, verb: &str, times: (i64, i64), code: u16, about: &Value, sent: &Value) -> AuditEvent {
        serde_json::from_value(json!({
            "verb": verb,
            "requestURI": "/",
            "user": { "username": user },
            "objectRef": about,
            "requestObject": sent,
            "responseStatus": { "code": code },
            "requestReceivedTimestamp": at(times.0),
            "stageTimestamp": at(times.1),
        }))
        .unwrap()
    }

    /// Returns the n-th write of a Lease, answered at that second.
    fn lease(user: &str, version: u64, holder: &str, second: i64) -> AuditEvent {
        lease_named(LEASE, user, version, holder, (second, 200))
    }

    fn lease_named(name: &str, user: &str, version: u64, holder: &str, (second, code): (i64, u16)) -> AuditEvent {
        let about = json!({ "apiGroup": "coordination.k8s.io", "resource": "leases", "name": name });
        let version = if version == 0 { Value::Null } else { version.to_string().into() };
        let sent =
            json!({ "metadata": { "name": name, "resourceVersion": version }, "spec": { "holderIdentity": holder } });
        request(user, if version.is_null() { "create" } else { "update" }, (second, second), code, &about, &sent)
    }

    /// Returns a write to a Node that arrived at the first second and was answered at the second one.
    fn node(user: &str, times: (i64, i64)) -> AuditEvent {
        node_with(user, "patch", times, 200)
    }

    /// Returns a write to a Service with these times.
    fn service(user: &str, times: (i64, i64)) -> AuditEvent {
        let about = json!({ "resource": "services", "subresource": "status", "namespace": "n", "name": "s-1" });
        request(user, "patch", times, 200, &about, &Value::Null)
    }

    fn node_with(user: &str, verb: &str, times: (i64, i64), code: u16) -> AuditEvent {
        let about = json!({ "resource": "nodes", "subresource": "status", "name": "n-1" });
        request(user, verb, times, code, &about, &Value::Null)
    }

    /// A leads from second 10 on, B from second 20 on.
    fn hand_over() -> Vec<AuditEvent> {
        vec![lease("a", 0, "id-a", 10), lease("a", 1, "id-a", 12), lease("b", 2, "id-b", 20), lease("b", 3, "id-b", 22)]
    }

    /// As [`hand_over`], but A releases the Lease at second 15.
    fn clean_hand_over() -> Vec<AuditEvent> {
        vec![lease("a", 0, "id-a", 10), lease("a", 1, "", 15), lease("b", 2, "id-b", 20)]
    }

    #[test]
    fn a_breach_is_a_write_that_is_accepted_and_came_when_its_writer_did_not_lead() {
        let a_again = [hand_over(), vec![lease("a", 4, "id-a", 30)]].concat();
        let renewed_late = vec![lease("a", 0, "id-a", 10), lease("b", 2, "id-b", 20), lease("a", 1, "id-a", 21)];
        let of_another = [hand_over(), vec![lease_named("other", "a", 4, "id-a", (25, 200))]].concat();
        let refused = [hand_over(), vec![lease_named(LEASE, "a", 3, "id-a", (25, 409))]].concat();
        let cases = [
            ("the leader", hand_over(), node("a", (11, 11)), 0),
            ("the next leader", hand_over(), node("b", (21, 21)), 0),
            ("came before, answered after", hand_over(), node("a", (19, 25)), 0),
            ("came at the same moment", hand_over(), node("a", (20, 25)), 0),
            ("the one before", hand_over(), node("a", (21, 21)), 1),
            ("the one before, much later", hand_over(), node("a", (100, 101)), 1),
            ("the leader, a Service", hand_over(), service("a", (11, 11)), 0),
            ("the one before, a Service", hand_over(), service("a", (21, 21)), 1),
            ("deletes", hand_over(), node_with("a", "delete", (21, 21), 200), 1),
            ("creates", hand_over(), node_with("a", "create", (21, 21), 201), 1),
            ("is refused", hand_over(), node_with("a", "patch", (21, 21), 409), 0),
            ("reads", hand_over(), node_with("a", "get", (21, 21), 200), 0),
            ("watches", hand_over(), node_with("a", "watch", (21, 21), 200), 0),
            ("somebody else", hand_over(), node("admin", (21, 21)), 0),
            ("before it led", hand_over(), node("b", (15, 15)), 1),
            ("before anybody led", hand_over(), node("a", (5, 5)), 1),
            ("never led", hand_over(), node("c", (21, 21)), 1),
            ("leads again", a_again.clone(), node("a", (31, 31)), 0),
            ("while the other led", a_again.clone(), node("a", (29, 29)), 1),
            ("the other, when it led again", a_again, node("b", (31, 31)), 1),
            ("the renewal was answered late", renewed_late.clone(), node("a", (22, 22)), 1),
            ("the renewal was answered late, the leader", renewed_late, node("b", (22, 22)), 0),
            ("holds another Lease", of_another, node("a", (26, 26)), 1),
            ("did not get it", refused.clone(), node("a", (26, 26)), 1),
            ("did not lose it", refused, node("b", (26, 26)), 0),
            ("before it gave up", clean_hand_over(), node("a", (14, 16)), 0),
            ("after it gave up", clean_hand_over(), node("a", (16, 16)), 1),
            ("after it was given up", clean_hand_over(), node("b", (21, 21)), 0),
        ];
        let users = ["a", "b", "c"].map(str::to_owned);
        for (case, mut log, write, expected) in cases {
            log.push(write);
            assert_eq!(breaches(&log, LEASE, &users).len(), expected, "{case}");
        }
    }

    #[test]
    fn a_breach_names_the_write_and_the_term() {
        let log = [hand_over(), vec![node("a", (21, 21))]].concat();
        let term = Term { user: "b".to_owned(), began: at(20), given_up: None };
        let expected =
            Breach { user: "a".to_owned(), object: "nodes//n-1".to_owned(), received: at(21), term: Some(term) };
        assert_eq!(breaches(&log, LEASE, &["a".to_owned()]), [expected]);
        let log = [hand_over(), vec![service("a", (21, 21))]].concat();
        assert_eq!(breaches(&log, LEASE, &["a".to_owned()])[0].object, "services/n/s-1");
    }

    #[test]
    fn terms_begin_when_the_holder_changes_and_are_given_up_or_taken() {
        let log =
            [clean_hand_over(), vec![lease("b", 3, "id-b", 25), lease("b", 4, "", 28), lease("b", 5, "id-b2", 29)]];
        let found: Vec<_> =
            terms(&log.concat(), LEASE).into_iter().map(|term| (term.user, term.began, term.given_up)).collect();
        let term = |user: &str, began, given_up: Option<i64>| (user.to_owned(), at(began), given_up.map(at));
        assert_eq!(found, [term("a", 10, Some(15)), term("b", 20, Some(28)), term("b", 29, None)]);
    }
}
