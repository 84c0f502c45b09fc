//! Pure: the values that may stay in a recording. Everything else is replaced, including values that no list foresees.
//!
//! The lists come from the documented schema: the vSphere Web Services API reference, the vSphere Automation API
//! reference and the NSX Policy API reference. They have the parts that this program or a reader of a recording needs.

pub(super) mod nsx;
pub(super) mod vim;

/// Values that this program itself sends as an example of an object that does not exist.
const OWN: [&str; 5] = [
    "vm-2147483601",
    "00000000-0000-0000-0000-00000000f1e1",
    "urn:vmomi:InventoryServiceCategory:00000000-0000-4000-8000-00000000f1e1:GLOBAL",
    "field-test-f1e1-never-was",
    "JSESSIONID=0000000000000000000000000000F1E1",
];

/// Headers of requests and answers that stay. Their values are checked as well.
pub(super) const HEADERS: [&str; 12] = [
    "accept",
    "authorization",
    "content-type",
    "cookie",
    "csp-auth-token",
    "retry-after",
    "set-cookie",
    "soapaction",
    "vmware-api-session-id",
    "vmware-use-header-authn",
    "www-authenticate",
    "x-xsrf-token",
];

/// Media types and their spellings.
const MEDIA_TYPES: [&str; 14] = [
    "application/json",
    "application/json;charset=utf-8",
    "application/json; charset=utf-8",
    "application/x-www-form-urlencoded",
    "application/xml",
    "text/html",
    "text/html;charset=utf-8",
    "text/html; charset=utf-8",
    "text/plain",
    "text/plain;charset=utf-8",
    "text/plain; charset=utf-8",
    "text/xml",
    "text/xml; charset=utf-8",
    "text/xml; charset=\"utf-8\"",
];

/// Path segments that come before the segments of objects.
const SEGMENTS: [&str; 17] = [
    "api",
    "cis",
    "com",
    "create",
    "destroy",
    "global-infra",
    "infra",
    "policy",
    "rest",
    "sdk",
    "service-usage",
    "session",
    "tag-association",
    "tagging",
    "v1",
    "vimServiceVersions.xml",
    "vmware",
];

/// Path segments of the schema that come before an id or before another such segment.
const STATES: [&str; 4] = ["realized-state", "realized-entities", "status", "statistics"];

/// Segments that are followed by an id.
const COLLECTIONS: [&str; 40] = [
    "category",
    "tag",
    "domains",
    "edge-clusters",
    "edge-nodes",
    "edge-transport-nodes",
    "enforcement-points",
    "groups",
    "interfaces",
    "ip-addresses",
    "ip-allocations",
    "ip-blocks",
    "ip-pools",
    "ip-subnets",
    "lb-app-profiles",
    "lb-client-ssl-profiles",
    "lb-monitor-profiles",
    "lb-persistence-profiles",
    "lb-pools",
    "lb-server-ssl-profiles",
    "lb-services",
    "lb-virtual-servers",
    "locale-services",
    "logical-routers",
    "logical-switches",
    "orgs",
    "projects",
    "realized-services",
    "segments",
    "services",
    "sites",
    "static-routes",
    "tier-0-static-routes",
    "tier-0s",
    "tier-1-static-routes",
    "tier-1s",
    "transport-zones",
    "vpc-ip-allocations",
    "vpc-lbs",
    "vpcs",
];

pub(super) const PARAMETERS: [&str; 8] = [
    "action",
    "cursor",
    "enforce_revision_check",
    "force",
    "include_mark_for_delete_objects",
    "intent_path",
    "page_size",
    "~action",
];

const ACTIONS: [&str; 3] = ["list-attached-objects-on-tags", "list-attached-tags-on-objects", "list-tags-for-category"];

/// The kind of a path segment, which decides what may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A schema word.
    Word,
    /// A schema word. The next segment is an id.
    Collection,
    /// Any other text.
    Other,
}

/// Returns the kind of a path segment whose place does not make it an id.
pub(super) fn segment(text: &str) -> Segment {
    if COLLECTIONS.contains(&text) {
        Segment::Collection
    } else if SEGMENTS.contains(&text) || STATES.contains(&text) {
        Segment::Word
    } else {
        Segment::Other
    }
}

/// Returns true if this program itself sends this value.
pub(super) fn is_own(value: &str) -> bool {
    OWN.contains(&value)
}

/// Returns true if the value of a field for schema words is a schema word.
pub(super) fn is_word(value: &str) -> bool {
    ["true", "false", "1", "0"].contains(&value)
        || ACTIONS.contains(&value)
        || vim::is_word(value)
        || nsx::is_word(value)
}

pub(super) fn is_media_type(value: &str) -> bool {
    MEDIA_TYPES.contains(&value)
}

#[cfg(test)]
mod tests {
    use super::{Segment, is_own, is_word, segment};

    #[test]
    fn what_the_schema_has_is_known_and_other_words_are_not() {
        for word in ["enter", "poweredOn", "ManagedObjectNotFound", "guest.hostName", "REALIZED", "LBVirtualServer"] {
            assert!(is_word(word), "{word}");
        }
        for other in ["", "secret", "vm-1", "vm-2147483601"] {
            assert!(!is_word(other), "{other}");
        }
        assert!(is_own("vm-2147483601"));
        assert_eq!(["infra", "lb-pools", "secret"].map(segment), [Segment::Word, Segment::Collection, Segment::Other]);
    }
}
