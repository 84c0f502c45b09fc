//! Reasons shared by several controllers, in addition to those of `cloud`.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A Node waits for initialisation, but its VM is absent.
    InstanceAbsent,
    /// The provider gave no answer in time.
    ProviderTimeout,
    /// The API server refused to write the object.
    WriteRefused,
    /// Concurrent changes of the object made every write fail.
    WriteConflict,
    /// A bug in this program.
    Panic,
}
