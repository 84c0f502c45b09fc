//! Pure: what a failed call to NSX means for the controllers.

use std::time::Duration;

use crate::base::error_chain::chain;
use crate::clients::nsx::{self, Kind};
use crate::cloud::{Error, Reason};
use crate::providers::vsphere::reason;

/// A permission that is missing is rarely granted within minutes.
const NO_PERMISSION: Duration = Duration::from_secs(300);

/// The failure of a call. `doing` is what was being done and to what, and `owner` the user that made the object, if the call
/// was to change one that is or may be protected.
pub(in crate::providers::vsphere) fn failed(doing: &str, owner: Option<&str>, error: &nsx::Error) -> Error {
    let told = chain(error);
    let because =
        |reason: Reason, after, what: &str| Error::Failed { reason, message: format!("{doing}: {what}{told}"), after };
    match &error.kind {
        Kind::NotPermitted => Error::NotLeader,
        Kind::NoPermission => because(reason::NSXNoPermission, Some(NO_PERMISSION), &denial(error.code(), owner)),
        Kind::Rejected => because(reason::NSXLoginRejected, None, ""),
        Kind::MissingReference(_) => because(reason::NSXObjectMissing, None, ""),
        Kind::Busy | Kind::SessionOver | Kind::Unavailable => because(reason::NSXUnavailable, None, ""),
        Kind::Unknown => because(reason::NSXUnavailable, None, "whether it took effect is not known: "),
        Kind::BadRequest => Error::Invalid { reason: reason::NSXRefused, message: format!("{doing}: {told}") },
        Kind::NotFound | Kind::Referenced | Kind::MarkedForDeletion | Kind::Conflict => {
            because(reason::NSXRefused, None, "")
        }
    }
}

/// Why NSX does not permit a call, by the code of its refusal.
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
    use super::denial;

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
