//! The port of a server, which stays reserved while the server is down.

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpSocket};

use crate::api_server::free_port;

/// A port of 127.0.0.1 that is reserved for as long as this lives. It refuses connections while there is no listener.
pub struct Place {
    port: u16,
    _socket: TcpSocket,
}

impl Place {
    /// Reserves a free port.
    pub fn take() -> Self {
        loop {
            let (port, socket) = (free_port(), TcpSocket::new_v4().unwrap());
            if socket.bind((Ipv4Addr::LOCALHOST, port).into()).is_ok() {
                // Set only after the bind. Otherwise two sockets could bind the same port.
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
        // `SO_REUSEADDR` is not set: with it on both sockets any process could bind the port while there is no
        // listener.
        socket.set_reuseport(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, self.port).into()).unwrap();
        socket.listen(1024).unwrap()
    }
}
