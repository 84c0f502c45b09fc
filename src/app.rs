//! Composition root: builds and starts all parts of the program, waits for the stop signal, and stops all parts in
//! order. Only this module is allowed to use all other modules.

mod access;
mod admin;
pub mod catalogue;
mod controller_health;
mod controllers;
mod election;
pub mod files;
mod inquiries;
pub mod observer;
pub mod options;
mod pages;
pub mod reports;
mod selection;
pub mod settings;
mod shared_services;
mod shutdown_order;
mod startup_log;
pub mod subcommands;
mod vsphere;

use crate::cloud::CloudProvider;
use crate::controllers::UnsupportedController;
use crate::kubernetes::client::SettingsError;
use crate::kubernetes::leader_election::InvalidLease;
use crate::providers::BuildError;
use crate::providers::vsphere::config::Environment;
use crate::runtime::admin::CertificateError;
use crate::runtime::core_dumps;
use crate::runtime::logging::LogHandles;
use crate::runtime::shutdown::{self, SecondSignal};
use crate::runtime::tasks::TaskEnded;
use files::SystemFiles;
use inquiries::Inquiries;
use options::{Options, PROGRAM};
use settings::{ProviderSettings, SettingErrors, Settings};
use shared_services::SharedServices;
use shutdown_order::Stages;
use std::sync::Arc;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use vsphere::VsphereInquiry;

/// Number of worker threads of the async runtime. Tasks mostly wait and compute little.
const THREADS: usize = 2;

/// Error that ends the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags or the files that the flags name are invalid, or the secure port cannot be bound.
    #[error(transparent)]
    Settings(#[from] settings::SettingErrors),
    /// The operating system provides no threads or timers.
    #[error("cannot start the threads of the process")]
    Threads(#[source] std::io::Error),
    /// The process cannot listen for signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The credentials for the API server cannot be used.
    #[error("cannot use the API server")]
    ApiServer(#[from] SettingsError),
    /// The durations of the leader election are inconsistent.
    #[error("cannot take part in the leader election")]
    Election(#[from] InvalidLease),
    /// Another process has started to listen on the port after this process bound it.
    #[error("cannot listen on {address}, the address of --bind-address and --secure-port")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The server has no usable certificate.
    #[error("cannot serve probes and metrics")]
    Certificate(#[from] CertificateError),
    /// The API server forbids this process to read the CAs of client certificates.
    #[error("cannot set up authentication for the secure port")]
    Access(#[from] access::LookupForbidden),
    /// The provider has routes, and `--cluster-cidr` is empty.
    #[error(
        "--cluster-cidr is empty, and the cloud provider has routes: expected the networks of the pods, or \
         --configure-cloud-routes=false"
    )]
    NoClusterCidr,
    /// Entries of `vsphere.conf` cannot be used.
    #[error("cannot use the cloud config: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Vcenters(Vec<BuildError>),
    /// The provider lacks a capability that a controller needs.
    #[error("cannot start a controller")]
    Controller(#[from] UnsupportedController),
    /// Two metrics have the same name, which is a bug of this program.
    #[error("cannot register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// A task ended unexpectedly.
    #[error("the process cannot go on")]
    Task(#[from] TaskEnded),
    /// A second signal demanded an immediate exit.
    #[error("killed by a second signal before a clean shutdown")]
    SecondSignal(#[from] SecondSignal),
}

/// Runs the daemon until a signal stops it. An unreachable vCenter or API server does not stop the daemon.
///
/// # Errors
/// Invalid settings, or a failure that prevents the daemon from running.
pub fn run(options: &Options, log: LogHandles) -> Result<(), Error> {
    // Must run before any secret is read.
    if let Err(error) = core_dumps::turn_off() {
        tracing::warn!("core dumps of this process cannot be turned off, and would have its passwords: {error}");
    }
    let (settings, socket) = check_settings(options)?;
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let threads = threads.worker_threads(THREADS).enable_all().build().map_err(Error::Threads)?;
    // Fails only if a crypto provider is already installed. No other code of this program installs a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = threads.block_on(run_until_signal(settings, socket, log));
    threads.shutdown_background();
    outcome
}

/// Returns the settings and the bound secure port; no port if the secure port is off. Binds the port here, so that an
/// error of the port is reported with all other errors.
fn check_settings(options: &Options) -> Result<(Settings, Option<TcpSocket>), SettingErrors> {
    let socket = settings::secure_port(options).map(admin::bind).transpose();
    let settings = settings::resolve(options, &SystemFiles, &Environment::new(std::env::vars_os()));
    match (settings, socket) {
        (Ok(settings), Ok(socket)) => Ok((settings, socket)),
        (Ok(_), Err(error)) => Err(SettingErrors { errors: vec![error], warnings: options.unknown_variables.clone() }),
        (Err(mut mistakes), socket) => {
            mistakes.errors.extend(socket.err());
            Err(mistakes)
        }
    }
}

/// Runs the daemon. The first signal starts an orderly shutdown; a second signal ends the process immediately.
async fn run_until_signal(settings: Settings, socket: Option<TcpSocket>, log: LogHandles) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let second_signal = shutdown::watch_signals(stop.clone()).map_err(Error::Signals)?;
    tokio::select! {
        outcome = serve(settings, socket, log, stop) => outcome,
        signal = second_signal => Err(signal.into()),
    }
}

async fn serve(
    settings: Settings,
    socket: Option<TcpSocket>,
    log: LogHandles,
    stop: CancellationToken,
) -> Result<(), Error> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "{PROGRAM} starts");
    startup_log::log_settings(&settings);
    tracing::debug!(?settings, "settings");
    let mut stages = Stages::default();
    if let Err(error) = start(&settings, socket, log, &mut stages).await {
        // Releases the Lease if this process leads already. The next leader then need not wait for the expiry of the
        // Lease.
        stages.stop().await;
        return Err(error);
    }
    tracing::info!("{PROGRAM} has started");
    tokio::select! {
        () = stop.cancelled() => {
            stages.stop().await;
            tracing::info!("stopped");
            Ok(())
        }
        ended = stages.first_unexpected_end() => {
            stages.stop().await;
            Err(ended.into())
        }
    }
}

async fn start(
    settings: &Settings,
    socket: Option<TcpSocket>,
    log: LogHandles,
    stages: &mut Stages,
) -> Result<(), Error> {
    let mut parts = SharedServices::prepare(settings, stages).await?;
    if let Some(serving) = settings.serving.as_ref().zip(socket) {
        admin::start(serving, settings, &parts, log.verbosity, stages).await?;
    }
    // Competes for the Lease after the secure port works: a process that cannot serve must not become the leader.
    parts.compete(stages);
    let (provider, vsphere) = build_provider(settings, &parts, stages)?;
    let terms = controllers::start(settings, &parts, &provider, stages)?;
    inquiries::start(Inquiries::new(&parts, settings, terms, vsphere, log.recent), stages);
    Ok(())
}

fn build_provider(
    settings: &Settings,
    parts: &SharedServices,
    stages: &mut Stages,
) -> Result<(Arc<dyn CloudProvider>, VsphereInquiry), Error> {
    match &settings.provider {
        ProviderSettings::Vsphere(vsphere) => vsphere::build(vsphere, settings, parts, stages),
    }
}

#[cfg(test)]
mod tests;
