//! Mutants of the checks of the local socket, and of the answers of commands.

use crate::{Mutant, Tests};

const PEER: &str = "src/runtime/local_socket/peer.rs";
const SERVER: &str = "src/runtime/local_socket/server.rs";
const CLIENT: &str = "src/runtime/local_socket/client.rs";
const SOCKET: &str = "src/runtime/local_socket.rs";

const INQUIRIES: &str = "src/app/inquiries.rs";
const MASKING: &str = "src/app/inquiries/protocol/masking.rs";

const UNIT: Tests = &[&["--lib", "--", "runtime::local_socket"]];
/// A daemon that is asked by commands.
const DAEMON: Tests = &[&["--test", "daemon", "--", "secrets::no_secret"]];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "local-socket-server-checks-no-peer",
            SERVER,
            ("= (self.check_peer)(&stream)", "= Ok::<(), super::peer::PeerRefusal>(())"),
            UNIT,
        ),
        Mutant::new(
            "local-socket-client-checks-no-peer",
            CLIENT,
            ("match check_peer(&stream) {", "let _ = check_peer;\n        match Ok::<(), PeerRefusal>(()) {"),
            UNIT,
        ),
        Mutant::new("local-socket-any-user", PEER, ("if user != own_user {", "if false {"), UNIT),
        Mutant::new("local-socket-any-namespace", PEER, ("process <= 0", "process < 0"), UNIT),
        Mutant::new(
            "local-socket-no-credentials",
            SOCKET,
            ("peer::check(own_user, credentials.uid()", "peer::check(own_user, own_user"),
            UNIT,
        ),
        Mutant::new(
            "local-socket-first-name-only",
            CLIENT,
            (
                "Err(PeerRefusal::NoCredentials | PeerRefusal::OtherNamespace | PeerRefusal::OtherProcess) => {}",
                "Err(_) => break,",
            ),
            UNIT,
        ),
        Mutant::new(
            "local-socket-any-number-of-connections",
            SERVER,
            ("Semaphore::new(MAX_CONNECTIONS)", "Semaphore::new(100 * MAX_CONNECTIONS)"),
            UNIT,
        ),
        Mutant::new(
            "commands-mask-one-user",
            MASKING,
            ("users.iter().filter(|user| !user.is_empty());", "users.iter().take(1);"),
            &[&["--lib", "--", "app::inquiries"]],
        ),
        Mutant::new(
            "commands-mask-is-not-called",
            INQUIRIES,
            ("if masks_users { self.vsphere.users() }", "if false { self.vsphere.users() }"),
            DAEMON,
        ),
    ]
}
