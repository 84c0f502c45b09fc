//! Where a server listens, also after it was down.

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpSocket};

use crate::api_server::free_port;

/// A port of 127.0.0.1 that nobody else gets for as long as this lives. It refuses connections while nobody listens.
pub struct Place {
    port: u16,
    _socket: TcpSocket,
}

impl Place {
    /// A free one.
    pub fn take() -> Self {
        loop {
            let (port, socket) = (free_port(), TcpSocket::new_v4().unwrap());
            if socket.bind((Ipv4Addr::LOCALHOST, port).into()).is_ok() {
                // Only now: two who share from the beginning would both get it.
                socket.set_reuseport(true).unwrap();
                return Self { port, _socket: socket };
            }
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn listen(&self) -> TcpListener {
        let socket = TcpSocket::new_v4().unwrap();
        // Not the address: with that on both anybody could bind it while nobody listens.
        socket.set_reuseport(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, self.port).into()).unwrap();
        socket.listen(1024).unwrap()
    }
}
