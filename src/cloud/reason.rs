//! Reasons: why a node is not as it should be, why nothing is known of its instance, why it is not deleted.
//!
//! A reason is declared where it arises, with the macro `reasons!`, in a module `reason`: here those of the contract, in each
//! provider and controller its own beside those it inherits. The same word stands in conditions, Events, metrics and the
//! log. `docs/reasons.md` has a section for each, which a test holds against all declarations.

use std::fmt;

/// A stable, low-cardinality word, as users read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason(&'static str);

impl Reason {
    /// For `reasons!` only, so that every word is documented.
    pub(crate) const fn declare(word: &'static str) -> Self {
        Self(word)
    }

    /// The word as users read it.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// For tests and messages that have the word.
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
    /// The answer is on its way; nobody has to do anything.
    LookupPending,
    /// No virtual machine belongs to the node.
    VMNotFound,
    /// Several virtual machines have the node's UUID, and none of the rules tells which it is.
    SeveralVMsMatch,
    /// A virtual machine has the node's name, and nothing else speaks for it.
    NameMatchRefused,
    /// The node's virtual machine already backs another node.
    VMBacksAnotherNode,
    /// The node has no provider ID where one is needed.
    NoProviderID,
    /// The provider ID belongs to another cloud.
    ForeignProviderID,
    /// The account, or this program at the API server, may not read something.
    NoPermission,
    /// Nobody hears of the machine's power state at the moment.
    PowerStateUnknown,
    /// The cloud has no such instance, and proves nothing by it.
    InstanceNotFound,
    /// The provider does not answer such questions.
    NotImplemented,
    /// The API server does not answer.
    APIServerUnavailable,
    /// The cloud cannot be reached, or asks for patience.
    CloudUnavailable,
    /// The cloud failed in a way that has no word of its own.
    CloudError,
    /// Not deleted: the node waits to be initialised.
    Uninitialized,
    /// The cloud cannot serve what a Service asks for.
    LoadBalancerNotPossible,
}
