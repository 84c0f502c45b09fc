//! No replica writes to NSX after another one has acquired the Lease.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use support::{ApiServer, AuditEvent, eventually};

use crate::invariants::audit::{self, Term, term_at, terms};

/// A write that NSX executed.
#[derive(Clone, Debug, PartialEq)]
pub struct NsxWrite {
    /// The account, which has the name of the replica's user.
    pub user: String,
    /// Path of the object.
    pub path: String,
    /// Time at which the request arrived.
    pub received: Timestamp,
}

/// Returns the writes that arrived before the first term of their replica, after the start of another replica's term,
/// or after the release of the Lease. Each comes with the last term that began before the write.
pub fn breaches(writes: &[NsxWrite], terms: &[Term]) -> Vec<(NsxWrite, Option<Term>)> {
    let breach = |write: &NsxWrite| {
        let (term, leads) = term_at(terms, &write.user, write.received);
        (!leads).then(|| (write.clone(), term.cloned()))
    };
    writes.iter().filter_map(breach).collect()
}

/// Waits until the audit log has the end of the last term of this Lease, and checks that none of these users wrote to
/// NSX or to the API server while it did not lead. Returns the terms and the audit log.
pub async fn assert_only_leaders_wrote(
    server: &ApiServer,
    lease: &str,
    users: &[String],
    writes: &[NsxWrite],
    limit: Duration,
) -> (Vec<Term>, Vec<AuditEvent>) {
    let (terms, log) = eventually("the audit log has the end of the last term", limit, async || {
        let log = server.audit();
        let terms = terms(&log, lease);
        match terms.last() {
            Some(term) if term.given_up.is_some() => Ok((terms, log)),
            term => Err(format!("{term:?}")),
        }
    })
    .await;
    assert_eq!(breaches(writes, &terms), [], "a replica that did not lead wrote to NSX: {terms:#?}");
    assert_eq!(audit::breaches(&log, lease, users), []);
    (terms, log)
}

#[test]
fn a_write_by_a_former_leader_is_reported() {
    let at = |second| Timestamp::from_second(1_000_000 + second).unwrap();
    let term = |user: &str, began, given_up: Option<i64>| Term {
        user: user.to_owned(),
        began: at(began),
        given_up: given_up.map(at),
    };
    let terms = [term("a", 10, None), term("b", 20, Some(30)), term("a", 40, None)];
    for (case, user, second, is_breach) in [
        ("before the first term", "a", 9, true),
        ("by the leader", "a", 15, false),
        ("by the leader before", "a", 21, true),
        ("by the next one too early", "b", 19, true),
        ("by the next one", "b", 25, false),
        ("after it gave up", "b", 31, true),
        ("after the last term", "a", 31, true),
        ("by one that leads again", "a", 50, false),
    ] {
        let write = NsxWrite { user: user.to_owned(), path: "/p".to_owned(), received: at(second) };
        assert_eq!(breaches(&[write], &terms).len(), usize::from(is_breach), "{case}");
    }
}
