//! The reasons that several controllers give, beside those of the contract.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The machine of a node that waits to be initialised is gone.
    InstanceAbsent,
    /// The provider gave no answer in time.
    ProviderTimeout,
    /// The API server refused to write the object.
    WriteRefused,
    /// Others changed the object between each read and write.
    WriteConflict,
    /// A mistake in this program.
    Panic,
}
