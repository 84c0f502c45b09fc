//! Starts the server of the secure port.

use super::settings::{SecurePort, SettingError, Settings};
use super::shared_services::SharedServices;
use super::shutdown_order::{ShutdownStage, Stages};
use super::{Error, access, pages};
use crate::runtime::admin::{self, Admin, Certificates, listen, serve, server_config};
use crate::runtime::logging::Verbosity;
use std::sync::Arc;
use tokio::net::TcpSocket;

/// Binds the secure port. Only [`start`] accepts connections: with `--permit-port-sharing`, a process that cannot
/// answer yet would take connections from another process. Fails if the port is in use or the address is not local.
pub fn bind(port: SecurePort) -> Result<TcpSocket, SettingError> {
    let SecurePort { address, is_shared } = port;
    admin::bind(address, is_shared).map_err(|error| SettingError {
        place: format!("--secure-port={}", address.port()),
        reason: format!("cannot listen on {address}, the address of --bind-address and --secure-port: {error}"),
    })
}

/// Serves probes, metrics and the other pages on the secure port.
pub async fn start(
    (serving, socket): (&admin::Settings, TcpSocket),
    settings: &Settings,
    parts: &SharedServices,
    verbosity: Verbosity,
    stages: &mut Stages,
) -> Result<(), Error> {
    for remark in &serving.warnings {
        tracing::warn!("{remark}");
    }
    let (certificates, keeper) = Certificates::load(&serving.certificate, &serving.by_name, &names(serving))?;
    warn_of_suites(serving, certificates.key_kind());
    let tls = server_config(&serving.tls, serving.http2, certificates).map_err(admin::CertificateError::from)?;
    let (authenticator, authorizer) = access::prepare(settings, parts, stages).await?;
    let admin = Admin {
        checks: parts.checks.clone(),
        metrics: parts.metrics.clone(),
        pages: pages::all(settings),
        verbosity: serving.debug.then_some(verbosity),
        authenticator,
        authorizer,
    };
    let address = serving.address;
    let listener = listen(socket).map_err(|source| Error::Listen { address, source })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving probes and metrics");
    }
    stages.spawn(ShutdownStage::Services, "certificates", keeper.run(stages.stop_signal(ShutdownStage::Services)));
    let stop = stages.stop_signal(ShutdownStage::Services);
    let served = serve(listener, tls, Arc::new(admin), serving.streams, stop);
    stages.spawn(ShutdownStage::Services, "admin-server", served);
    Ok(())
}

/// Returns the names in a self-made certificate: the address to listen on, or none if that address is unspecified.
fn names(serving: &admin::Settings) -> Vec<String> {
    let address = serving.address.ip();
    if address.is_unspecified() { Vec::new() } else { vec![address.to_string()] }
}

/// Warns if no configured suite of TLS 1.2 is for the kind of the certificate's key, RSA or ECDSA.
fn warn_of_suites(serving: &admin::Settings, kind: &str) {
    let suites = &serving.tls.cipher_suites;
    let word = format!("_{kind}_");
    let is_usable = suites.iter().any(|suite| suite.as_str().is_some_and(|name| name.contains(&word)));
    if !suites.is_empty() && !is_usable && !serving.tls.only_13 {
        tracing::warn!(
            "--tls-cipher-suites has no suite with {kind} in its name, which is the kind of key of the certificate: \
             only clients that speak TLS 1.3 can connect"
        );
    }
}
