//! Tests with all forms of key, certificate, authority and token file that client-go accepts. The expected results are
//! the table "Trust and credentials of the API server's client" of `docs/compatibility.md`. The results of Go come from
//! `tls.X509KeyPair`, `CertPool.AppendCertsFromPEM` and `Certificate.Verify`.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/golden/credentials/", $name))
    };
}

const RSA: &str = golden!("rsa.crt");
const RSA_KEY: &str = golden!("rsa.key");
const CA: &str = golden!("ca.crt");

/// The error text of a form that works: none.
const WORKS: &str = "";

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from));
    text.replace(from, to)
}

/// Reads a kubeconfig with these values, in a folder with these files. Returns the configuration or the error text.
fn configured(cluster: &str, user: &str, files: &[(&str, &[u8])]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://a.example:6443', {cluster}}}}}]\nusers: [{{name: u, user: \
         {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    let config = crate::kubernetes::client::kubeconfig::read(&path).map_err(|problems| {
        let reported = problems.iter().fold(String::new(), |mut all, problem| {
            write!(all, "{problem}").unwrap();
            all
        });
        reported.replace(&folder.path().display().to_string(), "/x")
    })?;
    transport::builder(config.clone()).map(|_| config).map_err(|error| format!("not built: {error}"))
}

#[tokio::test]
async fn every_form_of_client_certificate_and_key() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let combined = format!("{RSA}{RSA_KEY}");
    let key_first = format!("{RSA_KEY}{RSA}");
    let own_only = |text: &str| replaced(text, "PRIVATE KEY", "RSA PRIVATE KEY");
    let openssl = "; to convert it: openssl pkey -in /x/k -out NEW";
    let no_key = "line 2: client-key: there is no private key in PEM form";
    let no_certificate = "line 2: client-certificate: there is no certificate in PEM form";
    let kinds = "expected RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519. To make one: openssl ecparam -name prime256v1 \
                 -genkey -noout -out NEW";
    let der = pem_content(RSA);
    let key_der = pem_content(RSA_KEY);
    for (form, certificate, key, expected) in [
        ("RSA, PKCS #8", RSA.as_bytes().to_vec(), RSA_KEY.to_owned(), WORKS.to_owned()),
        ("RSA, PKCS #1", RSA.into(), golden!("rsa-pkcs1.key").into(), WORKS.into()),
        ("P-256, PKCS #8", golden!("p256.crt").into(), golden!("p256.key").into(), WORKS.into()),
        ("P-256, SEC 1", golden!("p256.crt").into(), golden!("p256-sec1.key").into(), WORKS.into()),
        (
            "P-256, SEC 1 behind its parameters",
            golden!("p256-parameters.crt").into(),
            golden!("p256-parameters.key").into(),
            WORKS.into(),
        ),
        ("P-384", golden!("p384.crt").into(), golden!("p384.key").into(), WORKS.into()),
        ("Ed25519", golden!("ed25519.crt").into(), golden!("ed25519.key").into(), WORKS.into()),
        ("PKCS #8 with the label of PKCS #1", RSA.into(), own_only(RSA_KEY), WORKS.into()),
        (
            "PKCS #1 with the label of PKCS #8",
            RSA.into(),
            replaced(golden!("rsa-pkcs1.key"), "RSA PRIVATE KEY", "PRIVATE KEY"),
            WORKS.into(),
        ),
        ("version 1", golden!("rsa-version1.crt").into(), RSA_KEY.into(), WORKS.into()),
        ("chain", format!("{RSA}{CA}").into(), RSA_KEY.into(), WORKS.into()),
        ("both in one file", combined.clone().into(), combined, WORKS.into()),
        ("both in one file, key first", key_first.clone().into(), key_first, WORKS.into()),
        ("carriage returns", crlf(RSA).into(), crlf(RSA_KEY), WORKS.into()),
        ("no line break at the end", RSA.trim().into(), RSA_KEY.trim().into(), WORKS.into()),
        (
            "text around",
            format!("Bag Attributes\n    friendlyName: u\n{RSA}end\n").into(),
            format!("Key Attributes: <No Attributes>\n{RSA_KEY}"),
            WORKS.into(),
        ),
        ("blanks at the ends of lines", RSA.replace('\n', " \n").into(), RSA_KEY.replace('\n', " \n"), WORKS.into()),
        (
            "a broken block before",
            format!("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n{RSA}").into(),
            RSA_KEY.into(),
            WORKS.into(),
        ),
        (
            "chain in the other order",
            format!("{CA}{RSA}").into(),
            RSA_KEY.into(),
            "line 2: client-key: it is the key of certificate 2 of client-certificate: move that certificate to the \
             first place"
                .into(),
        ),
        (
            "key of another certificate",
            RSA.into(),
            golden!("p256.key").into(),
            "line 2: client-key: it is not the key of the certificate in client-certificate".into(),
        ),
        (
            "encrypted, PKCS #8",
            RSA.into(),
            golden!("rsa-encrypted.key").into(),
            "line 2: client-key: it is encrypted; to decrypt it: openssl pkey -in /x/k -out NEW".into(),
        ),
        (
            "encrypted, PKCS #1",
            RSA.into(),
            golden!("rsa-pkcs1-encrypted.key").into(),
            "line 2: client-key: it is encrypted; to decrypt it: openssl pkey -in /x/k -out NEW".into(),
        ),
        (
            "RSA of 1024 bits",
            golden!("rsa1024.crt").into(),
            golden!("rsa1024.key").into(),
            format!("line 2: client-key: RSA keys of 1024 bits are not supported; {kinds}"),
        ),
        (
            "P-521",
            golden!("p521.crt").into(),
            golden!("p521.key").into(),
            format!("line 2: client-key: keys on this curve are not supported; {kinds}"),
        ),
        (
            "P-256 without the public key",
            golden!("p256.crt").into(),
            golden!("p256-without-public.key").into(),
            format!("line 2: client-key: it cannot be used in this form{openssl}"),
        ),
        (
            "certificate in DER",
            der,
            RSA_KEY.into(),
            format!("{no_certificate}; to convert DER: openssl x509 -inform DER -in /x/c -out NEW"),
        ),
        (
            "trusted certificate",
            replaced(RSA, " CERTIFICATE", " TRUSTED CERTIFICATE").into(),
            RSA_KEY.into(),
            format!("{no_certificate}, but a TRUSTED CERTIFICATE; to convert it: openssl x509 -in /x/c -out NEW"),
        ),
        ("no certificate", b"hello".to_vec(), RSA_KEY.into(), no_certificate.into()),
        ("no key", RSA.into(), String::new(), no_key.into()),
        ("indented", RSA.into(), format!("  {}", RSA_KEY.replace('\n', "\n  ")), no_key.into()),
        ("byte order mark", RSA.into(), format!("\u{feff}{RSA_KEY}"), no_key.into()),
    ] {
        let files: [(&str, &[u8]); 2] = [("c", &certificate), ("k", key.as_bytes())];
        let in_files = checked("client-certificate: c, client-key: k", &files);
        assert_eq!(in_files, expected, "{form}");
        let inline = format!(
            "client-certificate-data: {}, client-key-data: {}",
            STANDARD.encode(&certificate),
            STANDARD.encode(&key)
        );
        let reported = configured("", &inline, &[]).err().unwrap_or_default();
        let expected = expected
            .replace("/x/k", "FILE")
            .replace("/x/c", "FILE")
            .replace("client-certificate", "client-certificate-data")
            .replace("client-key", "client-key-data");
        if key.is_empty() {
            assert_eq!(reported, "line 2: client-certificate-data: its client-key is missing", "{form}, inline");
        } else {
            assert_eq!(reported, expected, "{form}, inline");
        }
    }
    let files: [(&str, &[u8]); 2] = [("c", RSA.as_bytes()), ("k", &key_der)];
    let told = checked("client-certificate: c, client-key: k", &files);
    assert_eq!(told, format!("{no_key}; to convert DER: openssl pkey -inform DER -in /x/k -out NEW"));
    // A key without a certificate is ignored, as in client-go.
    assert_eq!(checked("client-key: k", &[("k", RSA_KEY.as_bytes())]), WORKS);
    // The program `base64` writes several lines.
    let inline = |text: &str| {
        let lines: Vec<_> = STANDARD.encode(text).as_bytes().chunks(76).map(<[u8]>::to_vec).collect();
        String::from_utf8(lines.join(&b' ')).unwrap()
    };
    let user = format!("client-certificate-data: '{}', client-key-data: '{}'", inline(RSA), inline(RSA_KEY));
    assert_eq!(configured("", &user, &[]).err().unwrap_or_default(), WORKS);
}

/// Returns the error text for a user with these values.
fn checked(user: &str, files: &[(&str, &[u8])]) -> String {
    configured("", user, files).err().unwrap_or_default()
}

/// Returns the authorization header of this user's first request.
async fn header(user: &AuthInfo) -> Option<String> {
    let proof = credentials::Credentials::of(user).ok()?.proof().await.unwrap();
    Some(proof.header.as_ref()?.to_str().unwrap().to_owned())
}

fn pem_content(pem: &str) -> Vec<u8> {
    crate::base::pem::blocks(pem.as_bytes())[0].content.to_vec()
}

#[tokio::test]
async fn every_form_of_token() {
    let invalid = "the token has characters that cannot be sent, such as a line break or a blank";
    for (form, content, expected) in [
        ("a token", "t-1", WORKS.to_owned()),
        ("line break at the end", "t-1\n", WORKS.to_owned()),
        ("carriage return at the end", "t-1\r\n", WORKS.to_owned()),
        ("blanks and line breaks at both ends", " \n\tt-1 \n\n", WORKS.to_owned()),
        ("byte order mark", "\u{feff}t-1\n", WORKS.to_owned()),
        ("line break inside", "t-1\nt-2\n", format!("line 2: tokenFile: {invalid}")),
        ("blank inside", "Bearer t-1", format!("line 2: tokenFile: {invalid}")),
        ("control character", "t-\u{7}", format!("line 2: tokenFile: {invalid}")),
        ("empty", "", "line 2: tokenFile: the token is empty".to_owned()),
        ("line break alone", "\n", "line 2: tokenFile: the token is empty".to_owned()),
    ] {
        assert_eq!(checked("tokenFile: t", &[("t", content.as_bytes())]), expected, "{form}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, content).unwrap();
        // `tokenFile` takes precedence over `token`. While the file cannot be used, `token` is used, as in client-go.
        let mut user = AuthInfo {
            token: Some("other".to_owned().into()),
            token_file: Some(path.display().to_string()),
            ..AuthInfo::default()
        };
        let sent = if expected.is_empty() { "Bearer t-1" } else { "Bearer other" };
        assert_eq!(header(&user).await.as_deref(), Some(sent), "{form}");
        user.token = None;
        assert_eq!(header(&user).await.is_some(), expected.is_empty(), "{form}, without a token");
    }
    for (form, user, expected) in [
        ("a token beside a file that cannot be read", "token: t-1, tokenFile: none", WORKS.to_owned()),
        (
            "a token that cannot be sent beside a file that cannot be read",
            "token: \"t\\n1\", tokenFile: none",
            format!("line 2: token: {invalid}"),
        ),
        ("a line break at the end", "token: \"t-1\\n\"", WORKS.to_owned()),
        ("a line break inside", "token: \"t-1\\nt-2\"", format!("line 2: token: {invalid}")),
        ("name and password", "username: u, password: \"p\\nq\"", WORKS.to_owned()),
        ("oidc", "auth-provider: {name: oidc, config: {id-token: \"t-1\\n\"}}", WORKS.to_owned()),
        (
            "oidc without a token",
            "auth-provider: {name: oidc, config: {}}",
            "line 2: auth-provider: oidc has no id-token".to_owned(),
        ),
        (
            "another provider",
            "auth-provider: {name: gcp, config: {cmd-path: /bin/false}}",
            "line 2: auth-provider: expected oidc; for other providers use exec with the program of the provider"
                .to_owned(),
        ),
        (
            "exec without a command",
            "exec: {apiVersion: client.authentication.k8s.io/v1}",
            "line 2: exec: the command is missing".to_owned(),
        ),
        (
            "exec of an old version",
            "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}",
            "line 2: exec: apiVersion: expected client.authentication.k8s.io/v1 or \
             client.authentication.k8s.io/v1beta1"
                .to_owned(),
        ),
        (
            "exec that needs a terminal",
            "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}",
            "line 2: exec: interactiveMode: Always cannot work, since this process has no terminal".to_owned(),
        ),
    ] {
        assert_eq!(configured("", user, &[]).err().unwrap_or_default(), expected, "{form}");
    }
}

/// Checks the result of each form of output of an `exec` program.
#[tokio::test]
async fn every_form_of_what_a_program_supplies() {
    let (certificate, key) =
        (serde_json::to_string(golden!("p256.crt")).unwrap(), serde_json::to_string(golden!("p256-sec1.key")).unwrap());
    let no_credential = "exec: the output of the program is not an ExecCredential with a status".to_owned();
    for (form, status, header, error) in [
        ("a token", r#"{"token": "t-1"}"#.to_owned(), Some("Bearer t-1"), String::new()),
        ("a line break at its end", r#"{"token": "t-1\n"}"#.into(), Some("Bearer t-1"), String::new()),
        (
            "a line break inside",
            r#"{"token": "t\n1"}"#.into(),
            None,
            "exec: the token has characters that cannot be sent, such as a line break or a blank".into(),
        ),
        ("YAML", "{token: t-1, expirationTimestamp: 2099-01-01T00:00:00Z}".into(), Some("Bearer t-1"), String::new()),
        (
            "a certificate",
            format!(r#"{{"clientCertificateData": {certificate}, "clientKeyData": {key}}}"#),
            None,
            String::new(),
        ),
        (
            "a certificate without its key",
            format!(r#"{{"clientCertificateData": {certificate}}}"#),
            None,
            "exec: clientCertificateData and clientKeyData: one of them is missing".into(),
        ),
        (
            "a certificate and another key",
            format!(
                r#"{{"clientCertificateData": {certificate}, "clientKeyData": {}}}"#,
                serde_json::to_string(RSA_KEY).unwrap()
            ),
            None,
            "exec: clientKeyData: it is not the key of the certificate in clientCertificateData".into(),
        ),
        ("nothing", "{}".into(), None, "exec: the program returned neither a token nor a client certificate".into()),
        (
            "no status",
            "null".into(),
            None,
            "exec: the program returned neither a token nor a client certificate".into(),
        ),
        ("a list", "[1]".into(), None, no_credential.clone()),
        (
            "a wrong time",
            r#"{"token": "t-1", "expirationTimestamp": "hunter2"}"#.into(),
            None,
            "exec: expirationTimestamp is not a time such as 2030-01-01T00:00:00Z".into(),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        std::fs::write(&path, format!(r#"{{"kind": "ExecCredential", "status": {status}}}"#)).unwrap();
        let program = serde_json::from_value(serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/cat", "args": [path],
        }));
        let user = AuthInfo { exec: Some(program.unwrap()), ..AuthInfo::default() };
        let credentials = credentials::Credentials::of(&user).unwrap();
        match credentials.proof().await {
            Ok(proof) => {
                assert_eq!(error, "", "{form}");
                assert_eq!(proof.header.as_ref().map(|header| header.to_str().unwrap()), header, "{form}");
                assert_eq!(proof.identity.is_some(), form == "a certificate");
            }
            Err(reported) => assert_eq!(reported.to_string(), error, "{form}"),
        }
    }
}

/// If the user of a kubeconfig has both, the client certificate is used, as in client-go.
#[tokio::test]
async fn a_program_does_not_run_beside_a_client_certificate() {
    let program = serde_json::from_value(serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false",
    }));
    let mut user = AuthInfo { exec: Some(program.unwrap()), ..AuthInfo::default() };
    assert!(credentials::Credentials::of(&user).unwrap().proof().await.is_err(), "the program fails");
    user.client_certificate = Some("c".to_owned());
    assert_eq!(header(&user).await, None);
}

/// A server certificate with its key.
struct Leaf {
    pem: String,
    der: CertificateDer<'static>,
    key: KeyPair,
}

fn parameters(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut parameters =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or("ca"));
    change(&mut parameters);
    parameters
}

fn self_signed(parameters: &CertificateParams) -> Leaf {
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    Leaf { pem: certificate.pem(), der: certificate.der().clone(), key }
}

fn issued(parameters: &CertificateParams, authority: &Issuer<'_, KeyPair>) -> Leaf {
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, authority).unwrap();
    Leaf { pem: certificate.pem(), der: certificate.der().clone(), key }
}

/// Performs a TLS handshake between a client with `config` and a server with this certificate.
async fn shake(
    config: &Config,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    name: &str,
) -> Result<(), String> {
    shake_with(&TlsConnector::from(Arc::new(verifier::client_config(config, None).unwrap())), chain, key, name).await
}

async fn shake_with(
    connector: &TlsConnector,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    name: &str,
) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(chain, key).map_err(|error| error.to_string())?;
    let (near, far) = tokio::io::duplex(1 << 16);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (client, _) = tokio::join!(connector.connect(name, near), TlsAcceptor::from(Arc::new(server)).accept(far));
    client.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn every_form_of_authority() {
    let authority = |name: &str, change: fn(&mut CertificateParams)| {
        let key = KeyPair::generate().unwrap();
        let mut own = parameters(&[], |own| own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        own.distinguished_name.push(DnType::CommonName, name);
        change(&mut own);
        let pem = own.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(own, key))
    };
    let (good, issuer) = authority("one", |_| {});
    let (same_name, _) = authority("one", |_| {});
    let (other, _) = authority("other", |_| {});
    let (expired, expired_issuer) = authority("old", |old| old.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let plain = parameters(&["a.example"], |_| {});
    let server = issued(&plain, &issuer);
    let own = self_signed(&plain);
    let of_own = issued(&plain, &Issuer::new(plain.clone(), KeyPair::from_pem(&own.key.serialize_pem()).unwrap()));
    let own_authority =
        self_signed(&parameters(&["a.example"], |own| own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)));
    let authority_as_server =
        issued(&parameters(&["a.example"], |own| own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)), &issuer);
    let late = issued(&parameters(&["a.example"], |own| own.not_after = rcgen::date_time_ymd(2020, 1, 1)), &issuer);
    let early = issued(&parameters(&["a.example"], |own| own.not_before = rcgen::date_time_ymd(2090, 1, 1)), &issuer);
    let for_clients = issued(
        &parameters(&["a.example"], |own| own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        &issuer,
    );
    let nameless = issued(&parameters(&[], |_| {}), &issuer);
    let of_expired = issued(&plain, &expired_issuer);
    let of_version_1 = Leaf {
        pem: golden!("p256-of-version1.crt").to_owned(),
        der: CertificateDer::from(pem_content(golden!("p256-of-version1.crt"))),
        key: KeyPair::from_pem(golden!("p256.key")).unwrap(),
    };
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let missing = "line 1: certificate-authority: there is no certificate in PEM form";
    let unknown = "which is not in certificate-authority of the kubeconfig";
    for (form, bundle, leaf, name, expected) in [
        ("its authority", good.clone(), &server, "a.example", WORKS.to_owned()),
        ("a bundle", format!("{other}{good}"), &server, "a.example", WORKS.into()),
        ("comments", format!("# the cluster\n{good}# end"), &server, "a.example", WORKS.into()),
        ("carriage returns", good.replace('\n', "\r\n"), &server, "a.example", WORKS.into()),
        ("an authority of this name with an old key", format!("{same_name}{good}"), &server, "a.example", WORKS.into()),
        ("an expired one beside it", format!("{expired}{good}"), &server, "a.example", WORKS.into()),
        (
            "a block that is no certificate beside it",
            format!("{no_certificate}{good}"),
            &server,
            "a.example",
            WORKS.into(),
        ),
        ("a broken block beside it", format!("{broken}{good}"), &server, "a.example", WORKS.into()),
        (
            "half a block behind it",
            format!("{good}-----BEGIN CERTIFICATE-----\nMIIB"),
            &server,
            "a.example",
            WORKS.into(),
        ),
        ("a private key beside it", format!("{RSA_KEY}{good}"), &server, "a.example", WORKS.into()),
        ("of version 1", golden!("ca-version1.crt").into(), &of_version_1, "a", WORKS.into()),
        ("an expired one alone", expired.clone(), &of_expired, "a.example", WORKS.into()),
        ("the server's own, issued by another", server.pem.clone(), &server, "a.example", WORKS.into()),
        ("the server's own, self-signed", own.pem.clone(), &own, "a.example", WORKS.into()),
        (
            "the server's own, self-signed, CA:TRUE",
            own_authority.pem.clone(),
            &own_authority,
            "a.example",
            WORKS.into(),
        ),
        ("the server's own beside another", format!("{other}{}", server.pem), &server, "a.example", WORKS.into()),
        (
            "the server's own, CA:TRUE, issued by another",
            authority_as_server.pem.clone(),
            &authority_as_server,
            "a.example",
            WORKS.into(),
        ),
        ("the server's own for another name", server.pem.clone(), &server, "b.example", "b.example".into()),
        ("the server's own, expired", late.pem.clone(), &late, "a.example", "Expired".into()),
        ("the server's own, not yet valid", early.pem.clone(), &early, "a.example", "NotValidYet".into()),
        ("the server's own, for clients", for_clients.pem.clone(), &for_clients, "a.example", "InvalidPurpose".into()),
        ("the server's own, without a name", nameless.pem.clone(), &nameless, "a.example", "not valid for".into()),
        ("another server's own, whose key has issued it", own.pem.clone(), &of_own, "a.example", unknown.into()),
        ("another authority", other.clone(), &server, "a.example", unknown.into()),
        ("another server's own", own.pem.clone(), &server, "a.example", unknown.into()),
        ("its authority, expired certificate", good.clone(), &late, "a.example", "expired".into()),
        (
            "its authority, CA:TRUE",
            good.clone(),
            &authority_as_server,
            "a.example",
            "add it there, or issue one for the server".into(),
        ),
        ("no certificate", no_certificate.into(), &server, "a.example", missing.into()),
        ("text", "hello".into(), &server, "a.example", missing.into()),
        ("a key alone", RSA_KEY.into(), &server, "a.example", missing.into()),
        (
            "trusted certificate",
            good.replace(" CERTIFICATE", " TRUSTED CERTIFICATE"),
            &server,
            "a.example",
            format!("{missing}, but a TRUSTED CERTIFICATE; to convert it: openssl x509 -in /x/ca -out NEW"),
        ),
    ] {
        let outcome = match configured("certificate-authority: ca", "", &[("ca", bundle.as_bytes())]) {
            Ok(config) => {
                let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
                shake(&config, vec![leaf.der.clone()], key, name).await
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => assert_eq!(expected, WORKS, "{form}"),
            Err(reported) => assert!(
                !expected.is_empty() && reported.to_lowercase().contains(&expected.to_lowercase()),
                "{form}: {reported}"
            ),
        }
    }
    let told = configured("certificate-authority: ca", "", &[("ca", &pem_content(&good))]).err().unwrap_or_default();
    assert_eq!(told, format!("{missing}; to convert DER: openssl x509 -inform DER -in /x/ca -out NEW"));
    // Without authorities in the kubeconfig, those of the system are used, as in client-go.
    assert_eq!(configured("certificate-authority: ca", "", &[("ca", b"\n")]).map(|config| config.root_cert), Ok(None));
    // Without verification, no authority is needed.
    let unchecked = configured("insecure-skip-tls-verify: true", "", &[]).unwrap();
    let key = PrivateKeyDer::try_from(late.key.serialize_der()).unwrap();
    assert_eq!(shake(&unchecked, vec![late.der.clone()], key, "b.example").await, Ok(()));
    for (name, expected) in [
        ("b.example", ""),
        ("10.0.0.1", ""),
        ("''", ""),
        ("'not a name'", "line 1: tls-server-name: expected a host name or an IP address"),
    ] {
        let told = configured(&format!("tls-server-name: {name}"), "", &[]).err().unwrap_or_default();
        assert_eq!(told, expected, "{name}");
    }
}

/// A verifier that accepts any client certificate. An API server accepts certificates of version 1, which the TLS
/// library cannot verify.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Checks that the server receives the certificate of version 1.
#[tokio::test]
async fn a_client_certificate_of_version_1_is_sent() {
    let own = self_signed(&parameters(&["a.example"], |_| {}));
    let mut config = Config::new("https://a.example".parse().unwrap());
    config.root_cert = Some(verifier::read_bundle(own.pem.as_bytes()));
    config.auth_info.client_certificate_data = Some(STANDARD.encode(golden!("rsa-version1.crt")));
    config.auth_info.client_key_data = Some(STANDARD.encode(RSA_KEY).into());
    let identity = identity::of(&config.auth_info, &|_| unreachable!("no file is named")).unwrap().map(Arc::new);
    let tls = verifier::client_config(&config, identity.as_ref()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
    let server = server.with_client_cert_verifier(Arc::new(AnyClient)).with_single_cert(vec![own.der], key).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let name = ServerName::try_from("a.example").unwrap();
    let connector = TlsConnector::from(Arc::new(tls));
    let (client, accepted) =
        tokio::join!(connector.connect(name, near), TlsAcceptor::from(Arc::new(server)).accept(far));
    client.unwrap();
    let sent = accepted.unwrap().get_ref().1.peer_certificates().unwrap()[0].to_vec();
    assert_eq!(sent, pem_content(golden!("rsa-version1.crt")));
}

/// The CA file of a pod is read for each connection. If it is invalid, the client keeps the authorities that it has.
#[tokio::test]
async fn the_authorities_of_a_pod_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    let (one, two) =
        (self_signed(&parameters(&["a.example"], |_| {})), self_signed(&parameters(&["a.example"], |_| {})));
    let mut config = Config::new("https://a.example".parse().unwrap());
    config.root_cert = Some(verifier::read_bundle(one.pem.as_bytes()));
    config.root_cert_file = Some(path.clone());
    let is_trusted = async |leaf: &Leaf| {
        let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
        shake(&config, vec![leaf.der.clone()], key, "a.example").await.is_ok()
    };
    for (content, expected) in
        [(&one.pem, (true, false)), (&two.pem, (false, true)), (&String::from("half"), (true, false))]
    {
        std::fs::write(&path, content).unwrap();
        assert_eq!((is_trusted(&one).await, is_trusted(&two).await), expected);
    }
    // If the CA file is invalid at start, the authorities of the system are used until the file is valid.
    let mut config = config.clone();
    config.root_cert = None;
    let connector = TlsConnector::from(Arc::new(verifier::client_config(&config, None).unwrap()));
    for (content, expected) in [("half", false), (&one.pem, true), ("half", true)] {
        std::fs::write(&path, content).unwrap();
        let key = PrivateKeyDer::try_from(one.key.serialize_der()).unwrap();
        assert_eq!(
            shake_with(&connector, vec![one.der.clone()], key, "a.example").await.is_ok(),
            expected,
            "{content}"
        );
    }
}

/// A proxy that is reached by TLS gets the proxy password in the CONNECT request, so its certificate is verified even
/// if the server uses plain HTTP.
#[tokio::test]
async fn the_certificate_of_a_proxy_is_checked_whatever_the_server_speaks() {
    let own = self_signed(&parameters(&["p.example"], |_| {}));
    let listed = || Some(verifier::read_bundle(own.pem.as_bytes()));
    for (server, authorities, is_accepted) in [
        ("http://a.example", None, false),
        ("https://a.example", None, false),
        ("http://a.example", listed(), true),
        ("https://a.example", listed(), true),
    ] {
        let mut config = Config::new(server.parse().unwrap());
        config.proxy_url = Some("https://p.example".parse().unwrap());
        config.root_cert = authorities;
        let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
        let outcome = shake(&config, vec![own.der.clone()], key, "p.example").await;
        assert_eq!(outcome.is_ok(), is_accepted, "{server}: {outcome:?}");
    }
}

/// A resumed TLS session would skip the verification, so a client would connect to a server that it does not trust
/// any more.
#[tokio::test]
async fn each_connection_is_judged_by_the_authorities_of_the_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    let (own, other) =
        (self_signed(&parameters(&["a.example"], |_| {})), self_signed(&parameters(&["a.example"], |_| {})));
    let mut config = Config::new("https://a.example".parse().unwrap());
    config.root_cert = Some(verifier::read_bundle(own.pem.as_bytes()));
    config.root_cert_file = Some(path.clone());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![own.der], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let connector = TlsConnector::from(Arc::new(verifier::client_config(&config, None).unwrap()));
    for (content, is_trusted) in [(&own.pem, true), (&own.pem, true), (&other.pem, false)] {
        std::fs::write(&path, content).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let serve = async {
            // The ticket for session resumption arrives before this byte.
            if let Ok(mut stream) = acceptor.accept(far).await {
                let _ = stream.write_all(b"x").await;
            }
        };
        let connect = async {
            let mut stream = connector.connect(ServerName::try_from("a.example").unwrap(), near).await?;
            stream.read_u8().await
        };
        let (read, ()) = tokio::join!(connect, serve);
        assert_eq!(read.is_ok(), is_trusted, "{read:?}");
    }
}
