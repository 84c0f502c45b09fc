//! Pure: what may stay in a recording. Everything that is not in one of these lists is replaced, also
//! what no list foresees.
//!
//! The lists are of the documented schema: the vSphere Web Services API reference, the vSphere Automation API reference and
//! the NSX Policy API reference, as far as this program or a reader of a recording has a use for it.

pub(super) mod nsx;
pub(super) mod vim;

/// What this program itself sends as an example of something that does not exist.
const OWN: [&str; 5] = [
    "vm-2147483601",
    "00000000-0000-0000-0000-00000000f1e1",
    "urn:vmomi:InventoryServiceCategory:00000000-0000-4000-8000-00000000f1e1:GLOBAL",
    "field-test-f1e1-never-was",
    "JSESSIONID=0000000000000000000000000000F1E1",
];

/// Headers of requests and answers that stay. Their values are judged as well.
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

/// Media types, and how they are written.
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

/// Segments of paths before those of objects.
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

/// Segments of paths that are the schema's and end before an id or another such segment.
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

/// Names of parameters in queries.
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

/// Values of `action`.
const ACTIONS: [&str; 3] = ["list-attached-objects-on-tags", "list-attached-tags-on-objects", "list-tags-for-category"];

/// What may follow a segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A word of the schema.
    Word,
    /// A word of the schema; the next segment is an id.
    Collection,
    /// Something else.
    Other,
}

/// What a segment of a path is, if it is not an id by its place.
pub(super) fn segment(text: &str) -> Segment {
    if COLLECTIONS.contains(&text) {
        Segment::Collection
    } else if SEGMENTS.contains(&text) || STATES.contains(&text) {
        Segment::Word
    } else {
        Segment::Other
    }
}

/// Whether this program itself sends this value.
pub(super) fn is_own(value: &str) -> bool {
    OWN.contains(&value)
}

/// Whether the value of a field that holds words of the schema is such a word.
pub(super) fn is_word(value: &str) -> bool {
    ["true", "false", "1", "0"].contains(&value)
        || ACTIONS.contains(&value)
        || vim::is_word(value)
        || nsx::is_word(value)
}

/// Whether this is a media type, in lower case.
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
