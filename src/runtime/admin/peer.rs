//! What a request can know of the connection it came on.

use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::watched::Activity;

/// The other side of a connection.
pub(super) struct Peer {
    /// Who is on the other side.
    pub(super) address: SocketAddr,
    /// The chain that the client showed, leaf first.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Ends the connection once what is under way is answered, or a moment later.
    pub(super) enough: CancellationToken,
    /// What the connection is doing.
    pub(super) activity: Activity,
}
