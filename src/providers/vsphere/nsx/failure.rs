//! Pure: maps a failed NSX call to the error that the controllers handle.

use std::time::Duration;

use crate::base::error_chain::chain;
use crate::clients::nsx::{self, Kind};
use crate::cloud::{Error, Reason};
use crate::providers::vsphere::reason;

/// Retry interval after a missing permission, which is rarely granted within minutes.
const NO_PERMISSION: Duration = Duration::from_secs(300);

/// Maps the failure of a call to the error of the controllers. `doing` names the operation and the object. `owner` is
/// the user that created the object: NSX may protect the object from all other users.
pub(in crate::providers::vsphere) fn failed(doing: &str, owner: Option<&str>, error: &nsx::Error) -> Error {
    let reported = chain(error);
    let because = |reason: Reason, after, what: &str| Error::Failed {
        reason,
        message: format!("{doing}: {what}{reported}"),
        after,
    };
    match &error.kind {
        Kind::NotPermitted => Error::NotLeader,
        Kind::NoPermission => because(reason::NSXNoPermission, Some(NO_PERMISSION), &denial(error.code(), owner)),
        Kind::Rejected => because(reason::NSXLoginRejected, None, ""),
        Kind::MissingReference(_) => because(reason::NSXObjectMissing, None, ""),
        Kind::Busy | Kind::SessionOver | Kind::Unavailable => because(reason::NSXUnavailable, None, ""),
        Kind::Unknown => because(reason::NSXUnavailable, None, "whether it took effect is not known: "),
        Kind::BadRequest => Error::Invalid { reason: reason::NSXRefused, message: format!("{doing}: {reported}") },
        Kind::NotFound | Kind::Referenced | Kind::MarkedForDeletion | Kind::Conflict => {
            because(reason::NSXRefused, None, "")
        }
    }
}

/// Explains a denied call by the error code of NSX.
fn denial(code: Option<i64>, owner: Option<&str>) -> String {
    let role = "the role of the NSX account does not allow it";
    match (code, owner.filter(|owner| !owner.is_empty())) {
        (Some(401), _) => format!("{role}: "),
        (Some(289), Some(owner)) => {
            format!("the object is protected, and only user {owner:?}, which made it, may do it: ")
        }
        (Some(289), None) => "the object is protected, and only the user that made it may do it: ".to_owned(),
        (Some(505), _) => "the license of NSX does not include it: ".to_owned(),
        (_, Some(owner)) => format!("{role}, or the object is protected: user {owner:?} made it: "),
        (_, None) => format!("{role}: "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_reason_and_its_pause() {
        let (backoff, later) = (None, Some(NO_PERMISSION));
        for (kind, expected, pause) in [
            (Kind::Rejected, reason::NSXLoginRejected, backoff),
            (Kind::NoPermission, reason::NSXNoPermission, later),
            (Kind::MissingReference("/infra/x".to_owned()), reason::NSXObjectMissing, backoff),
            (Kind::Busy, reason::NSXUnavailable, backoff),
            (Kind::SessionOver, reason::NSXUnavailable, backoff),
            (Kind::Unavailable, reason::NSXUnavailable, backoff),
            (Kind::Unknown, reason::NSXUnavailable, backoff),
            (Kind::NotFound, reason::NSXRefused, backoff),
            (Kind::Referenced, reason::NSXRefused, backoff),
            (Kind::MarkedForDeletion, reason::NSXRefused, backoff),
            (Kind::Conflict, reason::NSXRefused, backoff),
        ] {
            let error = failed("create x", None, &nsx::Error::of_kind(kind.clone()));
            assert_eq!((error.reason(), error.retry_after()), (expected, pause), "{kind:?}: {error}");
            assert!(error.to_string().starts_with("create x: "), "{kind:?}: {error}");
        }
        let wrong = failed("create x", None, &nsx::Error::of_kind(Kind::BadRequest));
        assert!(matches!(&wrong, Error::Invalid { reason: reason::NSXRefused, .. }), "{wrong}");
        assert!(matches!(failed("create x", None, &nsx::Error::of_kind(Kind::NotPermitted)), Error::NotLeader));
    }

    #[test]
    fn the_role_the_owner_and_the_license_are_told_apart() {
        for (code, owner, expected) in [
            (Some(401), Some("other"), "the role of the NSX account does not allow it: "),
            (Some(289), Some("other"), "the object is protected, and only user \"other\", which made it, may do it: "),
            (Some(289), Some(""), "the object is protected, and only the user that made it may do it: "),
            (Some(505), Some("other"), "the license of NSX does not include it: "),
            (
                Some(7),
                Some("other"),
                "the role of the NSX account does not allow it, or the object is protected: user \"other\" made it: ",
            ),
            (None, None, "the role of the NSX account does not allow it: "),
        ] {
            assert_eq!(denial(code, owner), expected, "{code:?} {owner:?}");
        }
    }
}
