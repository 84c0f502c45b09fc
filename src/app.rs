//! The composition root: builds everything, starts it, waits, stops it. The only module that sees all others.

mod access;
mod admin;
pub mod catalogue;
mod controller_health;
mod controllers;
mod election;
pub mod files;
pub mod options;
mod pages;
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
use crate::runtime::logging::Verbosity;
use crate::runtime::shutdown::{self, SecondSignal};
use crate::runtime::tasks::TaskEnded;
use files::SystemFiles;
use options::{Options, PROGRAM};
use settings::{Mistakes, ProviderSettings, Settings};
use shared_services::Parts;
use shutdown_order::Stages;
use std::sync::Arc;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;

/// Threads that run all tasks: most of the time there is nothing to do, and never much to compute.
const THREADS: usize = 2;

/// Why the daemon stopped other than in order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags, or the files they name, are wrong.
    #[error(transparent)]
    Settings(#[from] settings::Mistakes),
    /// The operating system gives no threads or timers.
    #[error("cannot start the threads of the process")]
    Threads(#[source] std::io::Error),
    /// The operating system lets the process listen for no signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The API server's credentials cannot be used.
    #[error("cannot use the API server")]
    ApiServer(#[from] SettingsError),
    /// The times of the election do not fit.
    #[error("cannot take part in the leader election")]
    Election(#[from] InvalidLease),
    /// Another process began to listen there since the port was taken.
    #[error("cannot listen on {address}, the address of --bind-address and --secure-port")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// There is no certificate to serve with.
    #[error("cannot serve probes and metrics")]
    Certificate(#[from] CertificateError),
    /// The API server lets this process not read whom to believe.
    #[error("cannot set up authentication for the secure port")]
    Access(#[from] access::LookupForbidden),
    /// The provider has routes, and `--cluster-cidr` is empty.
    #[error(
        "--cluster-cidr is empty, and the cloud provider has routes: expected the networks of the pods, or \
         --configure-cloud-routes=false"
    )]
    NoClusterCidr,
    /// Entries of `vsphere.conf` that cannot be used.
    #[error("cannot use the cloud config: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Vcenters(Vec<BuildError>),
    /// The provider cannot do what a controller needs.
    #[error("cannot start a controller")]
    Controller(#[from] UnsupportedController),
    /// Two series of one name: a mistake in this program.
    #[error("cannot register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// A task ended although it should not.
    #[error("the process cannot go on")]
    Task(#[from] TaskEnded),
    /// Told to leave at once.
    #[error("killed by a second signal before a clean shutdown")]
    SecondSignal(#[from] SecondSignal),
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Wrong settings, or anything else that keeps it from running on. An unreachable vCenter or API server is no such
/// thing.
pub fn run(options: &Options, verbosity: Verbosity) -> Result<(), Error> {
    // Before anything secret is read.
    if let Err(error) = core_dumps::turn_off() {
        tracing::warn!("core dumps of this process cannot be turned off, and would have its passwords: {error}");
    }
    let (settings, socket) = settle(options)?;
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let threads = threads.worker_threads(THREADS).enable_all().build().map_err(Error::Threads)?;
    // Only fails when there is one already, which is this one then.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = threads.block_on(until_told(settings, socket, verbosity));
    threads.shutdown_background();
    outcome
}

/// The settings, and the socket of the secure port. That is taken here, so that a port in use is reported with all other
/// mistakes, before anything is contacted.
fn settle(options: &Options) -> Result<(Settings, Option<TcpSocket>), Mistakes> {
    let socket = settings::secure_port(options).map(admin::bind).transpose();
    let settings = settings::settle(options, &SystemFiles, &Environment::new(std::env::vars_os()));
    match (settings, socket) {
        (Ok(settings), Ok(socket)) => Ok((settings, socket)),
        (Ok(_), Err(mistake)) => Err(Mistakes { found: vec![mistake], warnings: options.unknown_variables.clone() }),
        (Err(mut mistakes), socket) => {
            mistakes.found.extend(socket.err());
            Err(mistakes)
        }
    }
}

/// The first signal stops in order, the second one leaves at once.
async fn until_told(settings: Settings, socket: Option<TcpSocket>, verbosity: Verbosity) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let second_signal = shutdown::watch_signals(stop.clone()).map_err(Error::Signals)?;
    tokio::select! {
        outcome = serve(settings, socket, verbosity, stop) => outcome,
        signal = second_signal => Err(signal.into()),
    }
}

/// The start-up story, and the end.
async fn serve(
    settings: Settings,
    socket: Option<TcpSocket>,
    verbosity: Verbosity,
    stop: CancellationToken,
) -> Result<(), Error> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "{PROGRAM} starts");
    startup_log::announce(&settings);
    tracing::debug!(?settings, "settings");
    let mut stages = Stages::default();
    if let Err(error) = start(&settings, socket, verbosity, &mut stages).await {
        // The Lease may be held already: the next process is not to wait for its end.
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
    verbosity: Verbosity,
    stages: &mut Stages,
) -> Result<(), Error> {
    let mut parts = Parts::prepare(settings, stages).await?;
    if let Some(serving) = settings.serving.as_ref().zip(socket) {
        admin::start(serving, settings, &parts, verbosity, stages).await?;
    }
    // Not before: who cannot serve, or may not know who asks, is no candidate.
    parts.compete(stages);
    let provider = build_provider(settings, &parts, stages)?;
    controllers::start(settings, &parts, &provider, stages)
}

/// Builds the chosen cloud provider and starts its background work.
fn build_provider(settings: &Settings, parts: &Parts, stages: &mut Stages) -> Result<Arc<dyn CloudProvider>, Error> {
    match &settings.provider {
        ProviderSettings::Vsphere(vsphere) => vsphere::build(vsphere, settings, parts, stages),
    }
}

#[cfg(test)]
mod tests;
