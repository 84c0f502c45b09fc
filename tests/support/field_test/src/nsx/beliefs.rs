//! What this project believes of an NSX Manager. A pure list.

use crate::belief::Belief;

/// All of them, in the order of the table.
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
];

/// Where most of it is documented.
const API: &str = "NSX Policy API reference";
/// How sessions are described.
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

#[cfg(test)]
mod tests {
    #[test]
    fn each_belief_has_an_id_of_its_own_in_order() {
        let ids: Vec<_> = super::ALL.iter().map(|belief| belief.id.to_owned()).collect();
        let expected: Vec<_> = (1..=ids.len()).map(|number| format!("N{number:02}")).collect();
        assert_eq!(ids, expected);
        assert!(super::ALL.iter().all(|belief| !belief.statement.is_empty() && !belief.rests_on.is_empty()));
    }
}
