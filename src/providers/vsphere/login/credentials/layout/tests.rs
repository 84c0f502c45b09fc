//! Tests with the vectors S1–S24 of Secret layouts, except those that need a history, and properties of the reader.

use async_trait::async_trait;
use proptest::prelude::*;
use secrecy::{ExposeSecret, SecretString};

use super::*;

const IP: &str = "10.20.30.40";

struct Account;

#[async_trait]
impl ReadToken for Account {
    async fn read(&self) -> Result<SecretString, String> {
        Ok("account".into())
    }
}

fn read(entries: &[(&str, &str)]) -> StoredKeys {
    read_with(entries, &any_manager())
}

fn read_with(entries: &[(&str, &str)], managers: &SessionManagers) -> StoredKeys {
    StoredKeys::read(entries.iter().map(|(key, value)| (*key, Some(value.as_bytes()))), managers)
}

fn any_manager() -> SessionManagers {
    SessionManagers { account: Arc::new(Account), hosts: BTreeSet::new() }
}

/// Returns the login in one line: `user/password`, or the parts of another kind of login.
fn shown(login: &Login) -> String {
    match login {
        Login::Password { user, password } => format!("{user}/{}", password.expose_secret()),
        Login::Certificate { certificate, key } => format!("{} bytes/{}", certificate.len(), key.expose_secret()),
        Login::SharedSession { url, token: SessionToken::Given(token) } => format!("{url} {}", token.expose_secret()),
        Login::SharedSession { url, token: SessionToken::ServiceAccount(_) } => format!("{url} account"),
    }
}

struct Vector {
    id: &'static str,
    case: &'static str,
    keys: &'static [(&'static str, &'static str)],
    /// Server and login, or server and problem after an exclamation mark.
    servers: &'static [(&'static str, &'static str)],
    /// Texts of the problems, in order.
    problems: &'static [&'static str],
}

const VECTORS: &[Vector] = &[
    Vector {
        id: "S1",
        case: "one server",
        keys: &[("10.20.30.40.username", "u"), ("10.20.30.40.password", "p")],
        servers: &[(IP, "u/p")],
        problems: &[],
    },
    Vector {
        id: "S2",
        case: "one newline at the end is cut off",
        keys: &[("10.20.30.40.username", "u\n"), ("10.20.30.40.password", "p\n")],
        servers: &[(IP, "u/p")],
        problems: &[],
    },
    Vector {
        id: "S3",
        case: "differs: one mistyped key makes its server unusable, not the Secret",
        keys: &[
            ("10.20.30.40.usernam", "u"),
            ("10.20.30.40.password", "p"),
            ("vc.username", "a"),
            ("vc.password", "b"),
        ],
        servers: &[(IP, "!its user name is missing"), ("vc", "a/b")],
        problems: &["\"10.20.30.40.usernam\" is not known; expected <server>.username"],
    },
    Vector {
        id: "S4",
        case: "no user name",
        keys: &[("10.20.30.40.password", "p")],
        servers: &[(IP, "!its user name is missing")],
        problems: &[],
    },
    Vector {
        id: "S4",
        case: "no password",
        keys: &[("10.20.30.40.username", "u")],
        servers: &[(IP, "!its password is missing")],
        problems: &[],
    },
    Vector {
        id: "S4",
        case: "an empty password",
        keys: &[("10.20.30.40.username", "u"), ("10.20.30.40.password", "\n")],
        servers: &[(IP, "!its password is missing")],
        problems: &[],
    },
    Vector {
        id: "S5",
        case: "a session manager, asked with the service account's token",
        keys: &[("10.20.30.40.vc-session-manager-url", "https://m/s")],
        servers: &[(IP, "https://m/s account")],
        problems: &[],
    },
    Vector {
        id: "S6",
        case: "a token for no session manager",
        keys: &[("10.20.30.40.vc-session-manager-token", "t")],
        servers: &[(IP, "!its user name and password are missing")],
        problems: &[],
    },
    Vector {
        id: "S7",
        case: "a session manager and its token",
        keys: &[
            ("10.20.30.40.vc-session-manager-url", "https://m/s\n"),
            ("10.20.30.40.vc-session-manager-token", "t\n"),
        ],
        servers: &[(IP, "https://m/s t")],
        problems: &[],
    },
    Vector {
        id: "S7",
        case: "a session manager wins over a pair, and over half of one",
        keys: &[
            ("a.username", "u"),
            ("a.password", "p"),
            ("a.vc-session-manager-url", "https://m/a"),
            ("b.username", "u"),
            ("b.vc-session-manager-url", "https://m/b"),
        ],
        servers: &[("a", "https://m/a account"), ("b", "https://m/b account")],
        problems: &[],
    },
    Vector {
        id: "S8",
        case: "differs: a server without a part, and nothing else",
        keys: &[("10.20.30.40", "u")],
        servers: &[],
        problems: &["\"10.20.30.40\" is not known"],
    },
    Vector {
        id: "S9",
        case: "two indexes",
        keys: &[
            ("server_0", "fd01::1"),
            ("username_0", "u0"),
            ("password_0", "p0"),
            ("server_foo", IP),
            ("username_foo", "u1"),
            ("password_foo", "p1"),
        ],
        servers: &[(IP, "u1/p1"), ("fd01::1", "u0/p0")],
        problems: &[],
    },
    Vector {
        id: "S10",
        case: "an index without password",
        keys: &[("server_0", "fd01::1"), ("username_0", "u")],
        servers: &[("fd01::1", "!its password is missing")],
        problems: &[],
    },
    Vector {
        id: "S10",
        case: "an index without user name",
        keys: &[("server_0", "fd01::1"), ("password_0", "p")],
        servers: &[("fd01::1", "!its user name is missing")],
        problems: &[],
    },
    Vector {
        id: "S11",
        case: "differs: an index without server does not count, the complete one does",
        keys: &[("server_0", "fd01::1"), ("username_0", "u"), ("password_0", "p"), ("password_1", "x")],
        servers: &[("fd01::1", "u/p")],
        problems: &["\"server_1\" is missing"],
    },
    Vector {
        id: "S11",
        case: "differs: the same with a user name alone",
        keys: &[("server_0", "fd01::1"), ("username_0", "u"), ("password_0", "p"), ("username_1", "x")],
        servers: &[("fd01::1", "u/p")],
        problems: &["\"server_1\" is missing"],
    },
    Vector {
        id: "S12",
        case: "differs: empty indexes are unknown keys, one problem each",
        keys: &[("server_", "fd01::1"), ("username_", "u"), ("password_", "p")],
        servers: &[],
        problems: &["\"server_\" is not known", "\"username_\" is not known", "\"password_\" is not known"],
    },
    Vector {
        id: "S13",
        case: "both layouts side by side",
        keys: &[
            ("10.20.30.40.username", "u"),
            ("10.20.30.40.password", "p"),
            ("server_0", "fd01::1"),
            ("username_0", "u0"),
            ("password_0", "p0"),
        ],
        servers: &[(IP, "u/p"), ("fd01::1", "u0/p0")],
        problems: &[],
    },
    Vector { id: "S14", case: "nothing", keys: &[], servers: &[], problems: &[] },
    Vector {
        id: "S15",
        case: "differs: parts without server are unknown keys",
        keys: &[("username", "u"), ("password", "p")],
        servers: &[],
        problems: &["\"username\" is not known", "\"password\" is not known"],
    },
    Vector {
        id: "S16",
        case: "differs: a foreign key is told, and the rest counts at once",
        keys: &[("vc.username", "u"), ("vc.password", "p"), ("extra", "x")],
        servers: &[("vc", "u/p")],
        problems: &["\"extra\" is not known"],
    },
    Vector {
        id: "S17",
        case: "differs: only one newline is cut off, and what stays is told",
        keys: &[("vc.username", "u\n\n"), ("vc.password", "p\r\n")],
        servers: &[("vc", "u\n/p\r")],
        problems: &[
            "the value of \"vc.username\" ends in a line break",
            "the value of \"vc.password\" ends in a line break",
        ],
    },
    Vector {
        id: "S18",
        case: "differs: indexed values lose a newline, too",
        keys: &[("server_0", "fd01::1\n"), ("username_0", "u\n"), ("password_0", "p\n")],
        servers: &[("fd01::1", "u/p")],
        problems: &[],
    },
    Vector {
        id: "S19",
        case: "differs: an index may be called like a part",
        keys: &[
            ("server_password", "a"),
            ("username_password", "u"),
            ("password_password", "p"),
            ("server_username", "b"),
            ("username_username", "u2"),
            ("password_username", "p2"),
        ],
        servers: &[("a", "u/p"), ("b", "u2/p2")],
        problems: &[],
    },
    Vector {
        id: "S20",
        case: "differs: the hint says that case counts",
        keys: &[("VC.Username", "u"), ("VC.password", "p")],
        servers: &[("VC", "!its user name is missing")],
        problems: &["\"VC.Username\" is not known (upper and lower case count)"],
    },
    Vector {
        id: "S24",
        case: "a pair for one server, a session manager for the other",
        keys: &[
            ("0.0.0.0.username", "u"),
            ("0.0.0.0.password", "p"),
            ("0.0.1.1.vc-session-manager-url", "https://m/s"),
            ("0.0.1.1.vc-session-manager-token", "t"),
        ],
        servers: &[("0.0.0.0", "u/p"), ("0.0.1.1", "https://m/s t")],
        problems: &[],
    },
    Vector {
        id: "W27",
        case: "a part needs its dot",
        keys: &[("foo-password", "p"), ("foousername", "u"), (".password", "p")],
        servers: &[],
        problems: &["\"foo-password\" is not known", "\"foousername\" is not known", "\".password\" is not known"],
    },
    Vector {
        id: "W27",
        case: "a server may be called like a part",
        keys: &[("a.password.example.com.username", "u"), ("a.password.example.com.password", "p")],
        servers: &[("a.password.example.com", "u/p")],
        problems: &[],
    },
    Vector {
        id: "W27",
        case: "a server in both layouts",
        keys: &[
            ("vc.username", "u"),
            ("vc.password", "p"),
            ("server_0", "vc"),
            ("username_0", "u0"),
            ("password_0", "p0"),
        ],
        servers: &[("vc", "u0/p0")],
        problems: &["server \"vc\" is there in both layouts; the indexed one is used"],
    },
    Vector {
        id: "W27",
        case: "a server in both layouts, one of them incomplete",
        keys: &[("vc.username", "u"), ("vc.password", "p"), ("server_0", "vc"), ("username_0", "u0")],
        servers: &[("vc", "u/p")],
        problems: &["server \"vc\" is there in both layouts; the other one"],
    },
    Vector {
        id: "W27",
        case: "one server under two indexes that agree, and one where they do not",
        keys: &[
            ("server_0", "a"),
            ("username_0", "u"),
            ("password_0", "p"),
            ("server_1", "a"),
            ("username_1", "u"),
            ("password_1", "p"),
            ("server_2", "b"),
            ("username_2", "u"),
            ("password_2", "p"),
            ("server_3", "b"),
            ("username_3", "u"),
            ("password_3", "q"),
        ],
        servers: &[("a", "u/p"), ("b", "!the indexes \"2\" and \"3\" have different values for it")],
        problems: &[],
    },
    Vector {
        id: "W27",
        case: "an index whose server is empty",
        keys: &[("server_0", " \n"), ("username_0", "u"), ("password_0", "p")],
        servers: &[],
        problems: &["\"server_0\" is missing or empty"],
    },
];

// vectors: S1–S20, S24
#[test]
fn secrets_are_read_as_their_vectors_say() {
    for Vector { id, case, keys, servers, problems } in VECTORS {
        let stored = read(keys);
        let found: Vec<_> = stored
            .servers
            .iter()
            .map(|(server, login)| match login {
                Ok(login) => (server.as_str(), shown(login)),
                Err(reason) => (server.as_str(), format!("!{reason}")),
            })
            .collect();
        assert_eq!(found.len(), servers.len(), "{id} {case}: {found:?}");
        for ((server, login), (expected_server, expected)) in found.iter().zip(*servers) {
            assert_eq!(server, expected_server, "{id} {case}");
            match expected.starts_with('!') {
                true => assert!(login.starts_with(expected), "{id} {case}: {login}"),
                false => assert_eq!(login, expected, "{id} {case}"),
            }
        }
        assert_eq!(stored.problems.len(), problems.len(), "{id} {case}: {:?}", stored.problems);
        for (reported, expected) in stored.problems.iter().zip(*problems) {
            assert!(reported.starts_with(expected), "{id} {case}: {reported}");
        }
        assert_eq!(stored.is_empty(), servers.is_empty(), "{id} {case}");
    }
}

#[test]
fn a_certificate_as_user_name_is_a_login_of_its_own_kind() {
    let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let stored = read(&[
        ("vc.username", certificate),
        ("vc.password", "key"),
        ("b.username", "-----BEGIN X"),
        ("b.password", "p"),
    ]);
    assert_eq!(shown(stored.servers["vc"].as_ref().unwrap()), format!("{} bytes/key", certificate.len() - 1));
    assert_eq!(stored.servers["b"].as_ref().unwrap_err(), "its user name begins like a PEM certificate and is none");
    assert_eq!(stored.problems, [""; 0]);
}

#[test]
fn only_hosts_that_are_permitted_are_asked_for_a_session() {
    let hosts = ["m", "10.0.0.1", "fd00::1"].map(str::to_owned).into();
    let managers = SessionManagers { account: Arc::new(Account), hosts };
    let reported = "its vc-session-manager-url names a host that is not among --session-manager-hosts";
    for (url, is_permitted) in [
        ("https://m/s", true),
        ("https://M:8443", true),
        ("https://10.0.0.1/s", true),
        ("https://[fd00:0::1]/s", true),
        ("https://m.example.com/s", false),
        ("https://evil.example?m", false),
        ("https://m@evil.example/", false),
        ("m", false),
    ] {
        for token in ["", "t"] {
            let entries = [("vc.vc-session-manager-url", url), ("vc.vc-session-manager-token", token)];
            let stored = read_with(&entries, &managers);
            assert_eq!(stored.servers["vc"].is_ok(), is_permitted, "{url}");
            assert!(is_permitted || stored.servers["vc"].as_ref().is_err_and(|reason| reason == reported), "{url}");
            assert!(read(&entries).servers["vc"].is_ok(), "{url}: none named is any");
        }
    }
}

#[test]
fn bytes_that_are_no_text_do_not_count_and_are_told_by_their_key() {
    let entries: [(&str, Option<&[u8]>); 2] = [("vc.username", Some(b"u")), ("vc.password", Some(b"\xff\xfe"))];
    let stored = StoredKeys::read(entries, &any_manager());
    assert_eq!(stored.servers["vc"].as_ref().unwrap_err(), "its password is missing or empty");
    assert_eq!(stored.problems, ["the value of \"vc.password\" is not text in UTF-8 and does not count"]);
}

#[test]
fn a_long_key_is_cut_in_messages() {
    let stored = read(&[(&"é".repeat(300), "x")]);
    assert!(stored.problems[0].chars().count() < 300, "{:?}", stored.problems);
}

/// Returns user name and password, or the problem after an exclamation mark. The other problems follow.
fn basic_auth(entries: &[(&str, &[u8])]) -> Vec<String> {
    let mut stored = StoredKeys::read_basic_auth(entries.iter().copied());
    let login = match stored.servers.remove(ANY_SERVER).unwrap() {
        Ok(login) => shown(&login),
        Err(reason) => format!("!{reason}"),
    };
    assert!(stored.servers.is_empty(), "there is one login");
    [vec![login], stored.problems].concat()
}

#[test]
fn user_name_and_password_for_nsx_are_taken_as_they_are_and_both_are_needed() {
    let missing = "is missing or empty";
    let broken = "ends in a line break, which is kept as part of it";
    for (case, entries, expected) in [
        ("both", &[("username", &b"u"[..]), ("password", b"p")][..], vec!["u/p".to_owned()]),
        ("blanks are kept", &[("username", b" u "), ("password", b" ")], vec![" u / ".into()]),
        (
            "a line break is kept, and reported",
            &[("username", b"u"), ("password", b"p\n")],
            vec!["u/p\n".into(), format!("the value of \"password\" {broken}")],
        ),
        (
            "keys of vCenters are no concern of it",
            &[("username", b"u"), ("vc.username", b"x"), ("password", b"p"), ("Password", b"y")],
            vec!["u/p".into()],
        ),
        ("no password", &[("username", b"u")], vec![format!("!its key \"password\" {missing}")]),
        ("an empty user", &[("username", b""), ("password", b"p")], vec![format!("!its key \"username\" {missing}")]),
        ("nothing", &[], vec!["!its keys \"username\" and \"password\" are missing or empty".into()]),
        (
            "no text",
            &[("username", b"u"), ("password", b"\xff")],
            vec!["!the value of its key \"password\" is not text in UTF-8".into()],
        ),
        (
            "a key instead of a name",
            &[("username", b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"), ("password", b"p")],
            vec![
                "!its user name is a PEM text; expected is the name of an NSX user".into(),
                format!("the value of \"username\" {broken}"),
            ],
        ),
    ] {
        assert_eq!(basic_auth(entries), expected, "{case}");
    }
}

proptest! {
    #[test]
    fn any_values_for_nsx_can_be_read_and_none_is_told(
        user in proptest::collection::vec(any::<u8>(), 0..6),
        password in proptest::collection::vec(any::<u8>(), 0..6),
        secret in "ZZ[Q-Y]{6}",
    ) {
        let hidden = [user, password].map(|value| [secret.as_bytes(), &value].concat());
        let stored = StoredKeys::read_basic_auth([("username", hidden[0].as_slice()), ("password", hidden[1].as_slice())]);
        let reason = stored.servers.values().filter_map(|login| login.as_ref().err()).collect::<Vec<_>>();
        let reported = format!("{:?} {reason:?}", stored.problems);
        prop_assert!(!reported.contains(&secret), "{reported}");
    }

    #[test]
    fn any_keys_and_values_can_be_read_and_no_value_is_told(
        entries in proptest::collection::vec(
            ("(server_|username_|password_)?[a-z0é.]{0,3}(\\.username|\\.password|\\.vc-session-manager-url|\\.Password)?",
             proptest::collection::vec(any::<u8>(), 0..6)),
            0..12,
        ),
        secret in "ZZ[Q-Y]{6}",
    ) {
        let hidden: Vec<Vec<u8>> = entries.iter().map(|(_, value)| [secret.as_bytes(), value].concat()).collect();
        // The name of a server is not secret.
        let entries: Vec<(&str, Option<&[u8]>)> = entries
            .iter()
            .zip(&hidden)
            .map(|((key, value), hidden)| (key.as_str(), Some(if key.starts_with("server_") { value.as_slice() } else { hidden })))
            .collect();
        let stored = StoredKeys::read(entries.iter().copied(), &any_manager());
        for login in stored.servers.values().flatten() {
            match login {
                Login::Password { user, password } => prop_assert!(!user.is_empty() && !password.expose_secret().is_empty()),
                Login::Certificate { .. } => prop_assert!(false, "there is no certificate"),
                Login::SharedSession { url, .. } => prop_assert!(!url.is_empty()),
            }
        }
        let reported = format!("{:?} {:?}", stored.problems, stored.servers.values().filter_map(|login| login.as_ref().err()).collect::<Vec<_>>());
        prop_assert!(!reported.contains(&secret), "{reported}");
        // The result does not depend on the order of the keys.
        let again = StoredKeys::read(entries.iter().rev().copied(), &any_manager());
        let mut distinct: Vec<_> = entries.iter().map(|(key, _)| key).collect();
        distinct.sort();
        distinct.dedup();
        if distinct.len() == entries.len() {
            prop_assert!(stored.servers == again.servers);
        }
    }
}
