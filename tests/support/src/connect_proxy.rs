//! A proxy that connects its clients to one port of this machine, whatever host they request.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The reaction of the proxy to a request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// Connects.
    Open,
    /// Answers with this status line.
    Refuse(&'static str),
    /// Never answers.
    Hang,
    /// Closes the connection.
    Close,
}

/// The proxy. It ends when this value is dropped.
pub struct ConnectProxy {
    port: u16,
    state: Arc<Mutex<State>>,
    /// Signals that open connections must stop passing data.
    forgotten: watch::Sender<()>,
    listener: JoinHandle<()>,
}

struct State {
    tunnel: Tunnel,
    asked: Vec<String>,
}

impl ConnectProxy {
    /// Starts a proxy that connects to this port of the loopback address.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { tunnel: Tunnel::Open, asked: Vec::new() }));
        let shared = Arc::clone(&state);
        let (forgotten, is_forgotten) = watch::channel(());
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, target, Arc::clone(&shared), is_forgotten.clone()));
            }
        });
        Self { port, state, forgotten, listener }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the request lines of all clients so far.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Stops passing data over open connections, in both directions. They stay open. Later ones work.
    pub fn forget(&self) {
        self.forgotten.send_replace(());
    }

    /// Sets the reaction to later requests. Open connections stay.
    pub fn set(&self, tunnel: Tunnel) {
        self.state.lock().unwrap().tunnel = tunnel;
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    target: u16,
    state: Arc<Mutex<State>>,
    mut forgotten: watch::Receiver<()>,
) -> Option<()> {
    forgotten.mark_unchanged();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let tunnel = {
        let mut state = state.lock().unwrap();
        state.asked.push(String::from_utf8_lossy(&head).lines().next()?.to_owned());
        state.tunnel
    };
    match tunnel {
        Tunnel::Open => {
            let mut server = TcpStream::connect(("127.0.0.1", target)).await.ok()?;
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
            tokio::select! {
                passed = tokio::io::copy_bidirectional(&mut client, &mut server) => return passed.ok().map(|_| ()),
                changed = forgotten.changed() => changed.ok()?,
            }
            // Waits until the client closes. The server receives nothing.
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await.ok().map(|_| ())
        }
        Tunnel::Refuse(status_line) => {
            let answer = format!("{status_line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            client.write_all(answer.as_bytes()).await.ok()
        }
        Tunnel::Hang => client.read_u8().await.ok().map(|_| ()),
        Tunnel::Close => Some(()),
    }
}
