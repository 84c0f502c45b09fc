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
        Kind::NoPermission => {
            let of_whom = match owner.filter(|owner| !owner.is_empty()) {
                Some(owner) => format!(", or the object is protected: user {owner:?} made it"),
                None => String::new(),
            };
            let what = format!("the role of the NSX account does not allow it{of_whom}: ");
            because(reason::NSXNoPermission, Some(NO_PERMISSION), &what)
        }
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
