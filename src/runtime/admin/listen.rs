//! The socket that the secure port listens on.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel has accepted and this process has not.
const BACKLOG: u32 = 1024;

/// Whether a socket for IPv6 also takes IPv4, unless told otherwise.
const ONLY_V6: &str = "/proc/sys/net/ipv6/bindv6only";

/// Listens. `0.0.0.0` and `::` are all addresses of both families, as in Go, where the machine has both.
///
/// `SO_REUSEADDR` is always set, as by Go and by tokio: a restart must not wait for connections that are gone.
/// `shares_port` is `SO_REUSEPORT`.
///
/// # Errors
/// Those of the operating system: the port is taken, or the address is not this machine's.
pub fn listen(address: SocketAddr, shares_port: bool) -> io::Result<TcpListener> {
    let takes_both = || std::fs::read_to_string(ONLY_V6).is_ok_and(|text| text.trim() == "0");
    if address.ip().is_unspecified() && address.is_ipv4() && takes_both() {
        let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match bound(all, shares_port) {
            // The machine has no IPv6.
            Err(error) if is_unsupported(&error) => {}
            outcome => return outcome,
        }
    }
    bound(address, shares_port)
}

fn is_unsupported(error: &io::Error) -> bool {
    // EAFNOSUPPORT by the library's name for it is not stable.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97)
}

fn bound(address: SocketAddr, shares_port: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    if shares_port {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = listen("0.0.0.0:0".parse().unwrap(), false).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            TcpStream::connect(("::1", port)).await.unwrap();
        } else {
            assert!(TcpSocket::new_v6().is_err() || !std::fs::read_to_string(ONLY_V6).unwrap().starts_with('0'));
        }
    }

    #[tokio::test]
    async fn a_port_is_shared_only_when_asked() {
        let first = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(listen(address, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        listen(address, true).unwrap();
    }
}
