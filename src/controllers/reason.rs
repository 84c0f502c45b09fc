//! Reasons shared by several controllers, in addition to the reasons of `cloud`.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The VM of the Node is absent.
    InstanceAbsent,
    /// The provider gave no answer in time.
    ProviderTimeout,
    /// The API server refused to read or write the object.
    WriteRefused,
    /// Concurrent changes of the object made every write fail.
    WriteConflict,
    /// A bug in this program.
    Panic,
}
