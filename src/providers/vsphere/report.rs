//! What each vCenter's session and inventory have come to, for metrics and health. Read without waiting.

use std::time::Duration;

use super::Provider;
use super::vcenter::Vcenter;
use super::vcenter::session::Facts;
use super::vcenter::snapshot::Freshness;

/// One vCenter at this moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Host and port.
    pub server: String,
    /// How long ago what is known was last true: nothing when changes arrive as they happen; none if nothing was ever
    /// read.
    pub lag: Option<Duration>,
    /// Why credentials that are offered now are not the ones in use, if vCenter refused them.
    pub refused_offer: Option<String>,
    /// Virtual machines that back nodes, or may.
    pub virtual_machines: usize,
    /// Hosts, clusters, pools, folders and datacenters above them.
    pub ancestors: usize,
    /// The session in use, and its logins.
    pub session: Facts,
}

impl Provider {
    /// A report of each vCenter that is configured, in the order of the configuration.
    pub fn reports(&self) -> Vec<Report> {
        let setup = std::sync::Arc::clone(&self.setup.borrow());
        setup.sources.values().map(|source| report(&source.vcenter)).collect()
    }
}

fn report(vcenter: &Vcenter) -> Report {
    let snapshot = vcenter.snapshot();
    let lag = match &snapshot.freshness {
        Freshness::Live => Some(Duration::ZERO),
        Freshness::Stale { since, .. } => Some(since.elapsed()),
        Freshness::Never | Freshness::Unreachable(_) => None,
    };
    Report {
        server: vcenter.server().to_owned(),
        lag,
        refused_offer: snapshot.offer_trouble.clone(),
        virtual_machines: snapshot.vms.len(),
        ancestors: snapshot.entities.len(),
        session: vcenter.session().facts(),
    }
}
