//! The container image of a `Dockerfile` as an OCI archive, without a container engine: `make image-archive`.
//!
//! It needs the binary and knows the last stage of the `Dockerfile`, so that files, labels, user and entry point are
//! declared there alone. `tests/daemon/image.rs` reads the archive and runs the binary with what it holds.

mod archive;
mod dockerfile;
mod reference;

pub use archive::{Archive, architecture};
pub use dockerfile::Stage;
pub use reference::Reference;

/// The binary, in the stage `build` of the Dockerfile.
pub const BINARY: &str = "/vsphere-cloud-controller-manager";
/// The certificates of public authorities, in the same stage and on Debian and its relatives.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
