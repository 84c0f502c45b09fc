//! Reasons: why a Node is not in its desired state, why its instance is unknown, why it is not deleted.
//!
//! The macro `reasons!` declares them in a module `reason`: here those of the contract, and in each provider and
//! controller its own. Conditions, Events, metrics and the log use the same word. `docs/reasons.md` has one section per
//! reason; a test compares it with the declarations.

use std::fmt;

/// A stable, low-cardinality word for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason(&'static str);

impl Reason {
    /// Creates a reason. Only for the macro `reasons!`, so that every word is documented.
    pub(crate) const fn declare(word: &'static str) -> Self {
        Self(word)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Compares with a word, for tests and messages.
impl PartialEq<&str> for Reason {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

/// Declares reasons: the name of the constant is the word.
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
    /// A VM has the Node's name, and nothing else confirms it.
    NameMatchRefused,
    /// The Node's VM already backs another Node.
    VMBacksAnotherNode,
    /// The Node has no provider ID where one is needed.
    NoProviderID,
    /// The provider ID belongs to another cloud.
    ForeignProviderID,
    /// The account, or this program at the API server, lacks a permission.
    NoPermission,
    /// The VM's power state is not known now.
    PowerStateUnknown,
    /// The cloud finds no such instance, which is no proof that it does not exist.
    InstanceNotFound,
    /// The provider does not implement the operation.
    NotImplemented,
    /// The API server does not answer.
    APIServerUnavailable,
    /// The cloud is unreachable, or throttles.
    CloudUnavailable,
    /// The cloud failed without a more specific reason.
    CloudError,
    /// Not deleted: the Node waits for initialization.
    Uninitialized,
    /// The cloud cannot provide what a Service requests.
    LoadBalancerNotPossible,
}
