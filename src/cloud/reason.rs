//! Reasons: stable words that explain, for example, why a Node is not deleted.
//!
//! Conditions, Events, metrics and the log use the same words. The macro `reasons!` declares the words: here for the
//! contract, and in a module `reason` of each provider and controller. A test checks `docs/reasons.md`.

use std::fmt;

/// A stable, low-cardinality word for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason(&'static str);

impl Reason {
    /// Creates a reason. Only the macro `reasons!` may call this function, so that every word is documented.
    pub(crate) const fn declare(word: &'static str) -> Self {
        Self(word)
    }

    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Compares a reason with a word, for tests and messages.
impl PartialEq<&str> for Reason {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

/// Declares reasons. The name of a constant is the word.
macro_rules! reasons {
    ($($(#[$doc:meta])* $word:ident,)*) => {$(
        $(#[$doc])*
        #[allow(non_upper_case_globals, reason = "the name is the word that users read")]
        pub const $word: $crate::cloud::Reason = $crate::cloud::Reason::declare(stringify!($word));
    )*};
}
pub(crate) use reasons;

reasons! {
    /// The answer is in progress; no action is needed.
    LookupPending,
    /// No VM matches the Node.
    VMNotFound,
    /// Several VMs have the Node's UUID, and no rule selects one.
    SeveralVMsMatch,
    /// A VM has the Node's name, and nothing else confirms the match.
    NameMatchRefused,
    /// The Node's VM already backs another Node.
    VMBacksAnotherNode,
    /// The Node has no provider ID, but needs one.
    NoProviderID,
    /// The provider ID belongs to another cloud.
    ForeignProviderID,
    /// The cloud account lacks a permission, or this program lacks a permission at the API server.
    NoPermission,
    /// The VM's power state is unknown.
    PowerStateUnknown,
    /// The cloud does not find the instance. The instance may still exist.
    InstanceNotFound,
    /// The provider does not implement the operation.
    NotImplemented,
    /// The API server does not answer.
    APIServerUnavailable,
    /// The cloud is unreachable, or limits the request rate.
    CloudUnavailable,
    /// The cloud failed without a more specific reason.
    CloudError,
    /// The Node is not deleted, because it waits for initialization.
    Uninitialized,
    /// The cloud cannot provide the load balancer that a Service requests.
    LoadBalancerNotPossible,
}
