//! A proxy that connects its clients to one port of this machine, whatever host they ask for.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with a request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// It connects.
    Open,
    /// It answers with this status line.
    Refuse(&'static str),
    /// It gives no answer.
    Hang,
    /// It closes the connection.
    Close,
}

/// The proxy; it ends with this value.
pub struct ConnectProxy {
    port: u16,
    state: Arc<Mutex<State>>,
    /// Sent to when the connections that are open are forgotten.
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

    /// The port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The request lines of all clients so far.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    /// From now on nothing passes over the connections that are open, from either side; they stay open. Later ones work.
    pub fn forget(&self) {
        self.forgotten.send_replace(());
    }

    /// What it does with requests from now on. Connections that are open stay.
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
            // Until the client has closed; the server sees nothing of it meanwhile.
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
