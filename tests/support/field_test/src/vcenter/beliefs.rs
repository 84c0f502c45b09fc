//! The beliefs about a vCenter. A pure list.

use crate::belief::Belief;

/// All beliefs, in the order of the table.
pub static ALL: &[&Belief] = &[
    &VERSIONS,
    &CONTENT,
    &FIXED_IDS,
    &LOGIN,
    &CURRENT_SESSION,
    &PRIVILEGE,
    &ROOT,
    &WAIT_PAGES,
    &SEARCH,
    &SEARCH_SWAPPED,
    &SEARCH_NOTHING,
    &SEARCH_NAME,
    &READ_PAGES,
    &UNSET,
    &NEVER,
    &VIEW_UNRESOLVED,
    &VIEW_FILTER,
    &WAIT_LIMIT,
    &VIEW_LEAVE,
    &FILTER_NEVER,
    &CANCEL,
    &REST_SESSION,
    &CATEGORIES,
    &CATEGORY_GONE,
    &TAG_BATCH,
    &OBJECT_BATCH,
    &TAG_POLL,
    &LOGOUT,
];

/// Source of most beliefs.
const API: &str = "vSphere Web Services API reference";
/// Source of the beliefs about tags.
const AUTOMATION: &str = "vSphere Automation API reference, cis tagging";
/// Source with recorded answers of real servers.
const PYVMOMI: &str = "vmware/pyvmomi tests/fixtures";

macro_rules! belief {
    ($name:ident, $id:literal, $rests_on:expr, $statement:literal) => {
        #[doc = $statement]
        pub static $name: Belief = Belief { id: $id, statement: $statement, rests_on: $rests_on };
    };
}

belief!(VERSIONS, "V01", "vmware/pyvmomi pyVim/connect.py", "/sdk/vimServiceVersions.xml is served without a session");
belief!(CONTENT, "V02", API, "RetrieveServiceContent is answered without a session, with apiType VirtualCenter");
belief!(
    FIXED_IDS,
    "V03",
    PYVMOMI,
    "the ids of the well-known objects are propertyCollector, ViewManager, SearchIndex and SessionManager"
);
belief!(LOGIN, "V04", API, "Login opens a session with a cookie vmware_soap_session");
belief!(CURRENT_SESSION, "V05", API, "currentSession is set while the session lives, and needs no privilege");
belief!(PRIVILEGE, "V06", API, "HasPrivilegeOnEntity answers for the session itself on the root folder");
belief!(ROOT, "V07", API, "the account sees datacenters below the root folder, each with name and parent");
belief!(
    WAIT_PAGES,
    "V08",
    "API reference, WaitForUpdatesEx; vmware/govmomi property",
    "WaitForUpdatesEx gives at most maxObjectUpdates objects, says truncated, and goes on with the new version"
);
belief!(SEARCH, "V09", API, "FindAllByUuid finds a VM by its config.uuid in lower case");
belief!(
    SEARCH_SWAPPED,
    "V10",
    "cloud-provider-vsphere ConvertK8sUUIDtoNormal",
    "FindAllByUuid with the first three groups in the other byte order does not find this VM"
);
belief!(SEARCH_NOTHING, "V11", API, "a search for a UUID that no VM has is answered with an empty list");
belief!(SEARCH_NAME, "V12", API, "FindAllByDnsName finds a VM by its guest.hostName");
belief!(
    READ_PAGES,
    "V13",
    "API reference, RetrievePropertiesEx",
    "RetrievePropertiesEx gives pages of at most maxObjects objects and a token for the next"
);
belief!(UNSET, "V14", "API reference; vmware/pyvmomi", "properties without a value are left out, without a fault");
belief!(
    NEVER,
    "V15",
    "API reference, ManagedObjectNotFound",
    "a read of an id that never was is refused with ManagedObjectNotFound that names it"
);
belief!(
    VIEW_UNRESOLVED,
    "V16",
    "API reference, ModifyListView",
    "ModifyListView returns an id that never was as not resolved, and adds the others"
);
belief!(
    VIEW_FILTER,
    "V17",
    "API reference, TraversalSpec",
    "a filter on a ListView gives its VMs and each of their ancestors once"
);
belief!(
    WAIT_LIMIT,
    "V18",
    "API reference, WaitOptions",
    "WaitForUpdatesEx without a change is answered empty after maxWaitSeconds"
);
belief!(
    VIEW_LEAVE,
    "V19",
    "API reference, ObjectUpdateKind",
    "a VM that is removed from the ListView leaves the filter"
);
belief!(
    FILTER_NEVER,
    "V20",
    "API reference, CreateFilter",
    "CreateFilter on an id that never was is refused with ManagedObjectNotFound"
);
belief!(
    CANCEL,
    "V21",
    "API reference, CancelWaitForUpdates",
    "CancelWaitForUpdates ends a pending wait with RequestCanceled"
);
belief!(
    REST_SESSION,
    "V22",
    "vCenter 8.0 Update 3 release notes; vmware/govmomi",
    "REST accepts the SOAP session from 8.0 Update 3 on, and refuses it with 401 before"
);
belief!(CATEGORIES, "V23", AUTOMATION, "the account sees categories, and can read each that is listed");
belief!(CATEGORY_GONE, "V24", AUTOMATION, "a category that never was is answered with 404");
belief!(TAG_BATCH, "V25", AUTOMATION, "list-attached-objects-on-tags answers many tags with one call, a row for each");
belief!(OBJECT_BATCH, "V26", AUTOMATION, "list-attached-tags-on-objects answers many objects with one call");
belief!(TAG_POLL, "V27", AUTOMATION, "the same question about tags is answered in the same way a moment later");
belief!(LOGOUT, "V28", API, "after Logout a call is refused with NotAuthenticated");

#[cfg(test)]
mod tests {
    #[test]
    fn each_belief_has_an_id_of_its_own_in_order() {
        let ids: Vec<_> = super::ALL.iter().map(|belief| belief.id.to_owned()).collect();
        let expected: Vec<_> = (1..=ids.len()).map(|number| format!("V{number:02}")).collect();
        assert_eq!(ids, expected);
        assert!(super::ALL.iter().all(|belief| !belief.statement.is_empty() && !belief.rests_on.is_empty()));
    }
}
