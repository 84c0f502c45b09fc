//! Builds the container image of a `Dockerfile` as an OCI archive without a container engine: `make image-archive`.
//!
//! It reads the last stage of the `Dockerfile`, so that files, labels, user and entry point are declared only there.
//! `tests/daemon/image.rs` reads the archive and runs its binary.

mod archive;
mod dockerfile;
mod reference;

pub use archive::{Archive, architecture};
pub use dockerfile::Stage;
pub use reference::Reference;

/// Path of the binary in the stage `build` of the Dockerfile.
pub const BINARY: &str = "/vsphere-cloud-controller-manager";
/// Path of the public CA certificates in that stage, and on Debian and its derivatives.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
