//! The one list of reasons: why a node is not as it should be, why nothing is known of its machine, why it is not
//! deleted.
//!
//! The same word stands in conditions, Events, metrics and the log. `docs/reasons.md` has a section for each, which a
//! test holds against this list.

use std::fmt;

/// Declares the words once: the variant is the word.
macro_rules! reasons {
    ($($(#[$doc:meta])* $word:ident,)*) => {
        /// A stable, low-cardinality word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $word,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Reason] = &[$(Reason::$word,)*];

            /// The word as users read it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$word => stringify!($word),)*
                }
            }
        }
    };
}

reasons! {
    /// The answer is on its way; nobody has to do anything.
    LookupPending,
    /// No virtual machine belongs to the node.
    VMNotFound,
    /// Several virtual machines have the node's UUID, and none of the rules tells which it is.
    SeveralVMsMatch,
    /// A virtual machine was found that the account may not read.
    VMNotReadable,
    /// A virtual machine has the node's name, and nothing else speaks for it.
    NameMatchRefused,
    /// The node's virtual machine already backs another node.
    VMBacksAnotherNode,
    /// The provider ID names another machine than the one the node runs on.
    ProviderIDMismatch,
    /// The provider ID is not `vsphere://` followed by a UUID.
    MalformedProviderID,
    /// The provider ID belongs to another cloud.
    ForeignProviderID,
    /// The node has no provider ID where one is needed.
    NoProviderID,
    /// A vCenter does not answer.
    VCenterUnavailable,
    /// A vCenter refuses the credentials.
    CredentialsRejected,
    /// The node's machine is on a vCenter that is not configured any more.
    VCenterNotConfigured,
    /// The account may not read something.
    NoPermission,
    /// The guest has reported nothing: VMware Tools do not run, or have not reported yet.
    ToolsNotRunning,
    /// The virtual machine is powered off, so that its guest reports nothing.
    VMPoweredOff,
    /// The guest reports no network interface.
    NoGuestNics,
    /// No interface is on one of the configured networks.
    NoNetworkMatches,
    /// The guest reports no address that others could reach.
    NoUsableAddress,
    /// A configured address family has no address that the rules allow.
    NoAddressOfFamily,
    /// The cloud reports no `InternalIP` or `ExternalIP`.
    NoAddresses,
    /// The annotation with the kubelet's `--node-ip` cannot be read.
    ProvidedNodeIPNotValid,
    /// The machine does not have the kubelet's `--node-ip`.
    ProvidedNodeIPNotOnVM,
    /// A tag of a configured category is missing.
    NoZoneTags,
    /// The tags could not be read.
    ZoneUnknown,
    /// A tag's name is no label value.
    InvalidTagName,
    /// The machine of a node that waits to be initialised is gone.
    InstanceAbsent,
    /// Nobody hears of the machine's power state at the moment.
    PowerStateUnknown,
    /// The provider gave no answer in time.
    ProviderTimeout,
    /// The cloud has no such instance, and proves nothing by it.
    InstanceNotFound,
    /// The provider does not answer such questions.
    NotImplemented,
    /// The cloud cannot be reached, or asks for patience.
    CloudUnavailable,
    /// The cloud failed in a way that has no word of its own.
    CloudError,
    /// The API server refused to write the Node.
    WriteRefused,
    /// The Node changed again and again while it was being written.
    WriteConflict,
    /// The API server does not answer.
    APIServerUnavailable,
    /// A mistake in this program.
    Panic,
    /// The zone or region of the machine is not that of the Node's labels, which stay.
    ZoneLabelsDiffer,
    /// The instance type of the machine is not that of the Node's labels, which stay.
    InstanceTypeDiffers,
    /// Not deleted: the node waits to be initialised.
    Uninitialized,
    /// Not deleted: this program never saw the node's machine.
    NeverSeen,
    /// Not deleted: the host of the machine is gone with it, and the machine may run on there.
    HostGone,
    /// Not deleted: vCenter does not hear from the machine's last host, on which it may run on.
    HostNotConnected,
    /// Not deleted: what the machine lay in cannot be read.
    LocationUnknown,
    /// Not deleted yet: the grace period runs.
    DeletionGracePeriod,
    /// Not deleted yet: as many nodes as may be were deleted lately.
    DeletionLimitReached,
    /// Not deleted yet: many machines are gone at once.
    DeletionMassHold,
    /// Not deleted: a majority of the control plane would be gone.
    DeletionControlPlaneMajority,
    /// Not deleted: `--node-deletion=dry-run`.
    DeletionDryRun,
    /// Not deleted: `--node-deletion=off`, or `SKIP_NODE_DELETION`.
    DeletionOff,
    /// The API server refused to delete the Node.
    DeletionRefused,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_kubernetes_conditions() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            assert!(word.starts_with(|char: char| char.is_ascii_uppercase()), "{word}");
            assert!(word.chars().all(|char| char.is_ascii_alphanumeric()) && word.len() <= 64, "{word}");
        }
    }
}
