//! The local socket of a daemon under many connections.

use std::collections::VecDeque;

use ccm::app::options::PROGRAM;
use ccm::runtime::local_socket;
use serde_json::{Value, json};
use support::process::Usage;
use support::{Daemon, Vcenter, eventually};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::ask;
use crate::admin::Admin;
use crate::cluster::{Cluster, LIMIT};

/// Number of connections, and of those that stay open at a time.
const CONNECTIONS: usize = 2000;
const OPEN: usize = 64;
/// Number of connections that the daemon serves at the same time.
const SERVED: usize = 8;
/// Maximum growth of the memory, in kB. Each place of the socket takes at most one request of 64 KiB.
const GROWTH: u64 = 16 * 1024;

/// Returns the address of the daemon's local socket.
async fn address(daemon: &Daemon) -> String {
    let process = i32::try_from(daemon.pid().unwrap()).unwrap();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names = sockets.lines().filter_map(|line| line.split_once('@')).map(|(_, name)| name);
    for name in names.filter(|name| name.starts_with("vsphere-cloud-controller-manager")) {
        let address = format!("\0{name}");
        let Ok(stream) = UnixStream::connect(&address).await else { continue };
        if stream.peer_cred().unwrap().pid() == Some(process) {
            return address;
        }
    }
    panic!("the daemon has no local socket: {}", daemon.output().tail(20));
}

#[tokio::test]
async fn two_thousand_connections_with_half_requests_stop_neither_nodes_nor_probes() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let admin = Admin::new();
    let mut daemon = cluster.start_for(&vcenter, &[&admin.flag()]).await;
    daemon.wait_for_line(" started", LIMIT).await;
    let address = address(&daemon).await;
    assert_eq!(admin.get("/livez", None, &mut daemon).await.0, 200);
    let process = daemon.pid().unwrap();
    let before = Usage::of(process).unwrap().resident;

    cluster.register(0..3).await;
    let mut open = VecDeque::new();
    for number in 0..CONNECTIONS {
        // The queue of the socket may be full.
        let Ok(mut stream) = UnixStream::connect(&address).await else { continue };
        // Half of a request. The daemon may have closed the connection already.
        let _ = stream.write_all(&[0, 0]).await;
        open.push_back(stream);
        if open.len() > OPEN {
            open.pop_front();
        }
        if number % 200 == 0 {
            assert_eq!(admin.get("/livez", None, &mut daemon).await.0, 200, "after {number} connections");
        }
    }
    cluster.wait_until_initialized(0..3, &daemon).await;
    let after = Usage::of(process).unwrap().resident;
    assert!(after < before + GROWTH, "{before} kB before, {after} kB after");
    drop(open);
    eventually("the daemon answers again", LIMIT, async || {
        let result = ask(&daemon, &["status"]).await;
        match result.code {
            Some(0) => Ok(()),
            code => Err(format!("{code:?}, {}{}", result.output, result.messages)),
        }
    })
    .await;
}

#[tokio::test]
async fn a_daemon_that_is_busy_or_stopped_is_exit_code_3_and_another_version_gets_no_answer() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let mut daemon = cluster.start_for(&vcenter, &[]).await;
    daemon.wait_for_line(" started", LIMIT).await;

    let request = json!({"version": "0.0.1 (abc)", "question": {"Weather": {}}}).to_string();
    let process = i32::try_from(daemon.pid().unwrap()).unwrap();
    let answer = local_socket::ask(PROGRAM, Some(process), request.as_bytes(), LIMIT).await.unwrap();
    let response: Value = serde_json::from_slice(&answer).unwrap();
    let reason = response["answer"]["Err"].as_str().unwrap();
    let own = response["version"].as_str().unwrap();
    assert!(own.starts_with(env!("CARGO_PKG_VERSION")) && reason.contains(&format!("{own:?}")), "{response}");
    assert!(reason.contains("the command has version \"0.0.1 (abc)\""), "{response}");

    let address = address(&daemon).await;
    // On a busy machine the command may come when the daemon has given up the half requests.
    eventually("a busy daemon says so", LIMIT, async || {
        let mut open = Vec::new();
        for _ in 0..SERVED {
            let mut stream = UnixStream::connect(&address).await.unwrap();
            stream.write_all(&[0, 0]).await.unwrap();
            open.push(stream);
        }
        let busy = ask(&daemon, &["status"]).await;
        let is_busy = busy.messages.contains("busy with other requests");
        if (busy.code, busy.output.as_str(), is_busy) == (Some(3), "", true) { Ok(()) } else { Err(busy.messages) }
    })
    .await;

    daemon.signal("STOP").await;
    let stopped = ask(&daemon, &["status", "--timeout=2s"]).await;
    daemon.signal("CONT").await;
    assert_eq!((stopped.code, stopped.output.as_str()), (Some(3), ""), "{}", stopped.messages);
    assert!(stopped.messages.contains("did not answer within 2s"), "{}", stopped.messages);
}
