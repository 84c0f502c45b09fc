//! A Unix socket for requests from programs beside the running process, such as a command in the same container.
//! Requests and answers are bytes; the caller defines the meaning.
//!
//! The name of the socket is abstract, so that it needs no writable file system. Abstract names belong to the network
//! namespace: in the host network each process of the host can connect to the socket, and can listen on a similar name.
//! Therefore each end checks the credentials of the other process before it reads or sends a byte: the effective user
//! has to be the same, and the process has to be visible in the own PID namespace. A process in the PID namespace of
//! the host sees the processes of all containers, so there only the user separates them.
//!
//! A name consists of the program, the PID namespace and a random part. Two processes that see each other are in the
//! same PID namespace, so a client tries the names of its own PID namespace only, and tries all of them.

mod client;
pub mod frame;
mod name;
mod peer;
mod server;

use std::io;

use tokio::net::UnixStream;

pub use client::{AskError, ask};
use peer::PeerRefusal;
pub use server::{RequestHandler, SocketListener, bind, serve};

/// Link to the PID namespace of this process. A process may read it also if it is not dumpable.
const OWN_PID_NAMESPACE: &str = "/proc/self/ns/pid";

/// Checks the process at the other end of a connection.
type PeerCheck = dyn Fn(&UnixStream) -> Result<(), PeerRefusal> + Send + Sync;

/// Returns the check with the effective user of this process.
fn own_peer_check() -> Box<PeerCheck> {
    peer_check(rustix::process::geteuid().as_raw())
}

fn peer_check(own_user: u32) -> Box<PeerCheck> {
    Box::new(move |stream| {
        let credentials = stream.peer_cred().map_err(|_| PeerRefusal::NoCredentials)?;
        peer::check(own_user, credentials.uid(), credentials.pid())
    })
}

/// Returns the common beginning of the names of this program in the PID namespace of this process.
fn own_prefix(program: &str) -> io::Result<String> {
    let link = std::fs::read_link(OWN_PID_NAMESPACE)?;
    let namespace = link.to_str().and_then(name::parse_namespace).ok_or_else(|| {
        let text = format!("{OWN_PID_NAMESPACE} is {}, expected pid:[NUMBER]", link.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(name::prefix(program, namespace))
}

#[cfg(test)]
mod tests;
