//! Tests with invalid kubeconfigs. The error has the file, the line and the kind of error, but no text of the file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// The secret in the kubeconfig below.
const SECRET: &str = "hunter2Kq9";

const KUBECONFIG: &str = "apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: https://10.0.0.1:6443
contexts:
- name: x
  context:
    cluster: c
    user: u
current-context: x
users:
- name: u
  user:
    token: hunter2Kq9
";

/// Returns true if the text contains the secret: as it is, as base64, or as a list of byte values.
fn has_secret(text: &str) -> bool {
    let numbers = format!("{:?}", &SECRET.as_bytes()[..4]);
    let base64: String = STANDARD.encode(SECRET).chars().take(10).collect();
    [SECRET, &base64, numbers.trim_matches(['[', ']'])].iter().any(|form| text.contains(form))
}

/// Returns the error for the kubeconfig after one replacement, without the path of the file.
async fn told(folder: &std::path::Path, from: &str, to: &str) -> String {
    assert!(KUBECONFIG.contains(from), "{from:?}");
    let path = folder.join("kubeconfig");
    std::fs::write(&path, KUBECONFIG.replacen(from, to, 1)).unwrap();
    let shown = format!("cannot use the kubeconfig {}: ", path.display());
    let settings = Settings { kubeconfig: Some(path), ..Settings::default() };
    let error = match read_config(&settings).await {
        Ok(_) => return "no error".to_owned(),
        Err(error) => error,
    };
    let debug = format!("{error:?} {error:#?}");
    let text = chain(&error);
    assert!(!has_secret(&text) && !has_secret(&debug), "{to:?}: {text} {debug}");
    text.strip_prefix(&shown).unwrap_or_else(|| panic!("{to:?}: {text}")).to_owned()
}

#[tokio::test]
async fn authorities_that_are_not_needed_are_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), "no certificate").unwrap();
    let server = "server: https://10.0.0.1:6443";
    for cluster in [
        "insecure-skip-tls-verify: true\n    certificate-authority-data: \"\"",
        "insecure-skip-tls-verify: true\n    certificate-authority: ca.crt",
        "certificate-authority-data: \"\"",
    ] {
        assert_eq!(told(folder.path(), server, &format!("{server}\n    {cluster}")).await, "no error", "{cluster}");
    }
    let plain = "server: http://10.0.0.1:8080\n    certificate-authority: ca.crt";
    assert_eq!(told(folder.path(), server, plain).await, "no error");
    let proxied = told(folder.path(), server, &format!("{plain}\n    proxy-url: https://p.example")).await;
    assert!(proxied.ends_with("certificate-authority: there is no certificate in PEM form"), "{proxied}");
    let needed = told(folder.path(), server, &format!("{server}\n    certificate-authority: ca.crt")).await;
    assert!(needed.ends_with("certificate-authority: there is no certificate in PEM form"), "{needed}");
}

/// Returns a certificate and its key. The key is in one line, as after a copy from a form of a password manager.
fn pair_with_key_in_one_line() -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["u".to_owned()]).unwrap();
    let key = signing_key.serialize_pem().replacen("-----\n", &format!("----- {SECRET}"), 1).replace('\n', " ");
    (cert.pem(), key)
}

#[tokio::test]
async fn a_kubeconfig_may_be_written_in_every_form_of_yaml() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [
        ("token: hunter2Kq9", "token: 12345"),
        ("token: hunter2Kq9", "<<: {token: hunter2Kq9}\n    username:"),
        ("    token: hunter2Kq9\n", "    token: hunter2Kq9\n---\ncurrent-context: another\n"),
        ("kind: Config", "kind: Config\npreferences: {}\nextensions:\n- name: e\n  extension: {a: [1, true, ~]}"),
        ("    server:", "    insecure-skip-tls-verify: yes\n    server:"),
    ] {
        assert_eq!(told(folder.path(), from, to).await, "no error", "{to}");
    }
}

#[tokio::test]
async fn a_broken_kubeconfig_is_told_with_its_line_and_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(told(folder.path(), "kind", "kind").await, "no error");
    let (certificate, key) = pair_with_key_in_one_line();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tls.crt", &certificate);
    write("tls.key", key.split_once("-----END").unwrap().0);
    let (certificate, broken) = (STANDARD.encode(&certificate), STANDARD.encode(&key));
    let inline = format!("client-certificate-data: {certificate}\n    client-key-data: {broken}");
    let no_type = "not a kubeconfig: a value of another type than expected, or a key given twice";
    let no_key = "there is no private key in PEM form";
    let no_file = "the file cannot be read: No such file or directory (os error 2)";
    let no_url = "server: expected a URL such as https://10.0.0.1:6443";
    for (from, to, expected) in [
        ("    token: ", "\ttoken: ", "line 16: not valid YAML".to_owned()),
        ("hunter2Kq9", "@hunter2Kq9", "line 16: not valid YAML".to_owned()),
        ("hunter2Kq9", "hunter2Kq9: hunter2Kq9", "line 16: not valid YAML".to_owned()),
        ("hunter2Kq9", "*hunter2Kq9", "line 16: not valid YAML".to_owned()),
        ("hunter2Kq9", "[hunter2Kq9]", format!("line 16: {no_type}")),
        ("current-context: x", "current-context: {hunter2Kq9: 1}", format!("line 12: {no_type}")),
        ("kind: Config", "clusters: hunter2Kq9", format!("line 2: {no_type}")),
        ("kind: Config", "kind: Config\nkind: hunter2Kq9", format!("line 3: {no_type}")),
        ("current-context: x", "other: x", "current-context is not set".to_owned()),
        (
            "current-context: x",
            "current-context: hunter2Kq9",
            "line 12: current-context: there is no context of this name".to_owned(),
        ),
        (
            "cluster: c",
            "cluster: hunter2Kq9",
            "line 10: cluster of the current context: there is no cluster of this name".to_owned(),
        ),
        ("https://10.0.0.1:6443", "hunter2Kq9", format!("line 6: {no_url}")),
        ("https://10.0.0.1:6443", "https://", format!("line 6: {no_url}")),
        (
            "https://10",
            "https://u:hunter2Kq9@10",
            "line 6: server: expected a URL without a user; use a token or a client certificate".to_owned(),
        ),
        (
            "    server:",
            "    proxy-url: ftp://u:hunter2Kq9@p\n    server:",
            "line 6: proxy-url: its scheme is not http, https or socks5; expected http, https or socks5 and a host"
                .to_owned(),
        ),
        (
            "    server:",
            "    certificate-authority-data: hunter2Kq9!\n    server:",
            "line 6: certificate-authority-data: it is not valid base64".to_owned(),
        ),
        (
            "    server:",
            "    certificate-authority: hunter2Kq9\n    server:",
            format!("line 6: certificate-authority: {no_file}"),
        ),
        (
            "    server:",
            "    certificate-authority: kubeconfig\n    server:",
            "line 6: certificate-authority: there is no certificate in PEM form".to_owned(),
        ),
        (
            "token: hunter2Kq9",
            "token: |\n      hunter2Kq9\n      hunter2Kq9",
            "line 16: token: the token has characters that cannot be sent, such as a line break or a blank".to_owned(),
        ),
        ("token: ", "tokenFile: ", format!("line 16: tokenFile: {no_file}")),
        ("token: ", "client-key: ", format!("line 16: client-key: {no_file}")),
        (
            "token: hunter2Kq9",
            "client-key-data: hunter2Kq9!",
            "line 16: client-key-data: it is not valid base64".to_owned(),
        ),
        (
            "token: hunter2Kq9",
            "client-certificate: tls.crt",
            "line 16: client-certificate: its client-key is missing".to_owned(),
        ),
        (
            "token: hunter2Kq9",
            "client-certificate: tls.crt\n    client-key: tls.key",
            format!("line 17: client-key: {no_key}"),
        ),
        ("token: hunter2Kq9", &inline, format!("line 17: client-key-data: {no_key}")),
        (
            "token: hunter2Kq9",
            "client-certificate: tls.crt\n    client-key: tls.crt",
            format!("line 17: client-key: {no_key}"),
        ),
        (
            "    token: hunter2Kq9\n",
            "    token: hunter2Kq9\n---\nother: [hunter2Kq9\n",
            "line 18: not valid YAML".to_owned(),
        ),
    ] {
        assert_eq!(told(folder.path(), from, to).await, expected, "{to}");
    }
}

#[tokio::test]
async fn several_problems_of_a_kubeconfig_are_told_together() {
    let folder = tempfile::tempdir().unwrap();
    let text = told(folder.path(), "    server: https://10.0.0.1:6443", "    server: /\n    proxy-url: p").await;
    assert!(text.starts_with("line 6: server: ") && text.contains("; line 7: proxy-url: "), "{text}");
}

/// The output of a program may contain secrets, so no error may contain the output.
#[tokio::test]
async fn a_program_that_supplies_no_credentials_is_told_without_its_output() {
    let folder = tempfile::tempdir().unwrap();
    for (script, expected) in [
        ("echo hunter2Kq9; echo hunter2Kq9 >&2; exit 3", "exec: the program failed: exit status: 3"),
        ("echo 'status: [hunter2Kq9'", "exec: the output of the program is not an ExecCredential with a status"),
        (
            "echo '{\"status\": {\"token\": \"a\", \"expirationTimestamp\": \"hunter2Kq9\"}}'",
            "exec: expirationTimestamp is not a time such as 2030-01-01T00:00:00Z",
        ),
    ] {
        let path = folder.path().join("kubeconfig");
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
            "env": [{"name": "TOKEN", "value": SECRET}], "interactiveMode": "Never",
        });
        std::fs::write(&path, KUBECONFIG.replacen("token: hunter2Kq9", &format!("exec: {exec}"), 1)).unwrap();
        let config = read_config(&Settings { kubeconfig: Some(path), ..Settings::default() }).await.unwrap();
        let nodes: Api<Node> = Api::all(unguarded(&config, purpose::PROCESS).unwrap());
        let error = limited("get node a", CALL_LIMIT, nodes.get("a")).await.unwrap_err();
        let text = chain(&error);
        assert!(!has_secret(&text) && !has_secret(&format!("{error:?}")), "{script}: {error:?}");
        let start = "get node a: API server https://10.0.0.1:6443: ";
        assert_eq!(text.strip_prefix(start), Some(expected), "{script}: {text}");
    }
}
