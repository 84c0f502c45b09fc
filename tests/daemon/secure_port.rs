//! The secure port of the daemon's binary: certificates from files, and a flood of connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use support::process::Usage;
use support::{Vcenter, eventually, replace_file};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::admin::Admin;
use crate::cluster::{Cluster, LIMIT};

/// Maximum additional memory for a flood, in kB: 256 connections with 32 KiB of header, the TLS buffers, and the
/// allocator's reserve.
const MOST_MEMORY: u64 = 64 * 1024;

/// Writes a new certificate and its key to these files. Each file is replaced atomically.
fn exchange(certificate: &Path, key: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    for (path, content) in [(certificate, made.cert.pem()), (key, made.signing_key.serialize_pem())] {
        replace_file(path, &content);
    }
    CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()
}

fn connector(trusted: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Makes a probe as the kubelet does, on a new connection.
async fn probe(admin: &Admin, trusted: &CertificateDer<'static>) -> reqwest::Result<u16> {
    let root = reqwest::Certificate::from_der(trusted).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).timeout(LIMIT).build().unwrap();
    let answer = client.get(format!("https://127.0.0.1:{}/healthz", admin.port())).send().await?;
    Ok(answer.status().as_u16())
}

#[tokio::test]
async fn a_given_certificate_is_exchanged_and_a_flood_of_connections_is_limited() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let admin = Admin::new();
    let folder: PathBuf = cluster.folder().to_owned();
    let (certificate, key) = (folder.join("serving.crt"), folder.join("serving.key"));
    let first = exchange(&certificate, &key);
    let flags = [
        admin.flag(),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let mut daemon = cluster.start_for(&vcenter, &flags).await;
    daemon.wait_for_line("serving probes and metrics", LIMIT).await;
    assert_eq!(probe(&admin, &first).await.unwrap(), 200);

    let second = exchange(&certificate, &key);
    eventually("the exchanged certificate is served", LIMIT, async || {
        probe(&admin, &second).await.map_err(|error| format!("{error:?}"))
    })
    .await;

    let pid = daemon.pid().unwrap();
    let before = Usage::of(pid).unwrap();
    let connector = connector(&second);
    let half = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(30 * 1024));
    let mut held = Vec::new();
    for number in 0..2_000 {
        let tcp = TcpStream::connect(("127.0.0.1", admin.port())).await.unwrap();
        match number % 3 {
            0 => held.push(tcp),
            _ => {
                // The daemon closes this connection if it has no free one.
                let Ok(mut tls) = connector.connect("localhost".try_into().unwrap(), tcp).await else { continue };
                let _ = tls.write_all(half.as_bytes()).await;
                held.push(tls.into_inner().0);
            }
        }
    }
    let after = Usage::of(pid).unwrap();
    println!(
        "{} connections held: VmRSS {} kB before, {} kB after, at most {} kB",
        held.len(),
        before.resident,
        after.resident,
        after.peak
    );
    let more = after.peak.max(after.resident).saturating_sub(before.resident);
    assert!(more < MOST_MEMORY, "{more} kB more");
    daemon.wait_for_line("the secure port has no free connection", LIMIT).await;
    drop(held);
    eventually("a probe is answered after the flood", LIMIT, async || {
        probe(&admin, &second).await.map_err(|error| format!("{error:?}"))
    })
    .await;
    assert!(daemon.ended().is_none());
}
