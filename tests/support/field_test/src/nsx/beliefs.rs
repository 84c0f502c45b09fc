//! The beliefs about an NSX Manager. A pure list.

use crate::belief::Belief;

/// All beliefs, in the order of the table.
pub static ALL: &[&Belief] = &[
    &CREATE,
    &USE,
    &FIRST_COUNT,
    &PAGE_SIZE,
    &LAST_CURSOR,
    &EACH_ONCE,
    &MARKED,
    &GATEWAY,
    &EDGE,
    &USAGE,
    &REALIZED,
    &ROWS_NAME,
    &VERSION,
    &ABSENT,
    &ABSENT_STATE,
    &NO_TOKEN,
    &NO_SESSION,
    &NEITHER,
    &DESTROYED,
    &NEW,
    &ALLOCATION,
    &SERVER,
    &REALIZES,
    &REVISION,
    &OLD_REVISION,
    &NO_REVISION,
    &MISSING,
    &IN_USE,
    &DELETED,
    &SECOND_DELETE,
    &UNREALIZED,
];

/// Beliefs that need writes. They are the last ones.
pub static WRITING: &[&Belief] = &[
    &NEW,
    &ALLOCATION,
    &SERVER,
    &REALIZES,
    &REVISION,
    &OLD_REVISION,
    &NO_REVISION,
    &MISSING,
    &IN_USE,
    &DELETED,
    &SECOND_DELETE,
    &UNREALIZED,
];

/// Source of most beliefs.
const API: &str = "NSX Policy API reference";
/// Source of the beliefs about sessions.
const SESSIONS: &str = "NSX API guide, session-based authentication; vmware/nsx-operator";

macro_rules! belief {
    ($name:ident, $id:literal, $rests_on:expr, $statement:literal) => {
        #[doc = $statement]
        pub static $name: Belief = Belief { id: $id, statement: $statement, rests_on: $rests_on };
    };
}

belief!(CREATE, "N01", SESSIONS, "/api/session/create answers 200 with a cookie JSESSIONID and a header X-XSRF-TOKEN");
belief!(USE, "N02", SESSIONS, "calls with cookie and token need no other credentials");
belief!(
    FIRST_COUNT,
    "N03",
    "NSX Policy API reference, ListResult",
    "result_count is on the first page and on no other"
);
belief!(PAGE_SIZE, "N04", API, "a page has at most page_size objects");
belief!(LAST_CURSOR, "N05", API, "each page of a list has a cursor but the last");
belief!(EACH_ONCE, "N06", API, "the pages of a list have each object once, and all of them");
belief!(
    MARKED,
    "N07",
    "NSX Policy API reference, include_mark_for_delete_objects",
    "lists take include_mark_for_delete_objects=true, and leave marked objects out without it"
);
belief!(GATEWAY, "N08", API, "a tier-1 gateway says in route_advertisement_types what it advertises");
belief!(EDGE, "N09", API, "a locale service of the gateway has the edge cluster in edge_cluster_path");
belief!(
    USAGE,
    "N10",
    "NSX Policy API reference, LBServiceUsage; terraform-provider-nsxt",
    "service-usage has counts and capacities of virtual servers, pools and pool members in its first result"
);
belief!(
    REALIZED,
    "N11",
    "NSX Policy API reference, GenericPolicyRealizedResource",
    "realized-entities has a row with a state for a virtual server that exists"
);
belief!(ROWS_NAME, "N12", "terraform-provider-nsxt", "such a row names its intent in intent_paths or intent_reference");
belief!(
    VERSION,
    "N13",
    "NSX Policy API reference, realized-state/status",
    "the status names the revision in intent_version"
);
belief!(
    ABSENT,
    "N14",
    "terraform-provider-nsxt; vmware/nsx-operator",
    "an object that never was is answered with 404 and code 600"
);
belief!(
    ABSENT_STATE,
    "N15",
    "terraform-provider-nsxt",
    "the realized state of an object that never was is answered with 404 and code 600, or with an empty list"
);
belief!(NO_TOKEN, "N16", SESSIONS, "a session without its token is refused with 401, or 403 and code 98 or 403");
belief!(
    NO_SESSION,
    "N17",
    SESSIONS,
    "a cookie of no session, with a token, is refused with 401, or 403 and code 98 or 403"
);
belief!(
    NEITHER,
    "N18",
    SESSIONS,
    "a cookie of no session, without a token, is refused with 401, or 403 and code 98 or 403"
);
belief!(DESTROYED, "N19", SESSIONS, "a session that was destroyed is refused with 401, or 403 and code 98 or 403");

belief!(
    NEW,
    "N20",
    "NSX Policy API reference; terraform-provider-nsxt",
    "PUT without _revision creates monitor, pool and group, and answers with the object and _revision 0"
);
belief!(
    ALLOCATION,
    "N21",
    "terraform-provider-nsxt; its issues 817 and 1619",
    "a PATCH makes an allocation, which is realized with its address in the attribute allocation_ip, or with alarm 8212 \
     where the pool is exhausted"
);
belief!(SERVER, "N22", API, "a virtual server whose pool has no members is realized");
belief!(
    REALIZES,
    "N23",
    "NSX Policy API reference, GenericPolicyRealizedResource",
    "monitor, pool and group are realized"
);
belief!(
    REVISION,
    "N24",
    "NSX Policy API reference, realized-state/status",
    "PUT with the current _revision makes the next one, and the status names it once it is realized"
);
belief!(
    OLD_REVISION,
    "N25",
    "terraform-provider-nsxt; vmware-nsxlib",
    "PUT with an old _revision is refused: 412 and code 206, 409, or 400 and code 500087, 500232 or 100148"
);
belief!(
    NO_REVISION,
    "N26",
    "terraform-provider-nsxt; its issue 2063",
    "PUT of an object that exists, without _revision, is refused: 412, 409, or 400 and code 500127"
);
belief!(
    MISSING,
    "N27",
    "terraform-provider-nsxt; vmware/nsx-operator",
    "a path in the body that never was is refused, and named: 404 and code 600, or 400 and code 500012"
);
belief!(
    IN_USE,
    "N28",
    "terraform-provider-nsxt; its issues 942 and 952",
    "DELETE of an object that another refers to is refused: 400 and code 500030"
);
belief!(
    DELETED,
    "N29",
    "terraform-provider-nsxt; its issue 516",
    "an object that was deleted is answered with 404 at once, also while it is only marked"
);
belief!(
    SECOND_DELETE,
    "N30",
    "vmware/nsx-operator; its issue 1529",
    "a second DELETE is answered with 404, or 400 and code 500045"
);
belief!(
    UNREALIZED,
    "N31",
    "vmware/nsx-operator; its issue 1033",
    "an object that was deleted is no longer realized after some minutes at most"
);

#[cfg(test)]
mod tests {
    #[test]
    fn those_that_need_writes_are_the_last_ones() {
        let ids = |all: &[&crate::Belief]| all.iter().map(|belief| belief.id).collect::<Vec<_>>();
        assert!(ids(super::ALL).ends_with(&ids(super::WRITING)));
        assert_eq!(super::WRITING.first().map(|belief| belief.id), Some("N20"));
    }

    #[test]
    fn each_belief_has_an_id_of_its_own_in_order() {
        let ids: Vec<_> = super::ALL.iter().map(|belief| belief.id.to_owned()).collect();
        let expected: Vec<_> = (1..=ids.len()).map(|number| format!("N{number:02}")).collect();
        assert_eq!(ids, expected);
        assert!(super::ALL.iter().all(|belief| !belief.statement.is_empty() && !belief.rests_on.is_empty()));
    }
}
