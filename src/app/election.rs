//! Takes part in the leader election and, for a leader migration, in the election for the second Lease.

use super::Error;
use super::catalogue::{CONTROLLERS, Controller};
use super::settings::Settings;
use super::settings::leader_migration::{LeaderMigration, Placement};
use super::shutdown_order::{ShutdownStage, Stages};
use crate::kubernetes::client::{self, purpose};
use crate::kubernetes::events::Recorder;
use crate::kubernetes::leader_election::{LeaderElector, LeaseConfig, LeaseStatus, RenewalCheck, identity};
use crate::kubernetes::leadership::Leadership;
use crate::runtime::admin::{Checks, Health};
use crate::runtime::metrics::Metrics;
use tokio::sync::watch;

/// The leadership of each controller.
pub struct Elections {
    /// The leadership of the process: that of the main Lease.
    pub main: Leadership,
    /// The main Lease; `None` without an election.
    pub lease: Option<LeaseSource>,
    migration: Option<(LeaderMigration, Leadership)>,
}

/// A Lease, and its holder as this process knows it.
#[derive(Clone)]
pub struct LeaseSource {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    status: watch::Receiver<LeaseStatus>,
}

impl LeaseSource {
    /// Returns the source of a Lease that was read once.
    pub fn read_once(namespace: &str, name: &str, status: LeaseStatus) -> Self {
        let (_, status) = watch::channel(status);
        Self { namespace: namespace.to_owned(), name: name.to_owned(), status }
    }

    /// Returns the holder.
    pub fn status(&self) -> LeaseStatus {
        self.status.borrow().clone()
    }
}

/// The candidates for the Leases, which compete from [`Candidates::start`] on.
pub struct Candidates {
    main: LeaderElector,
    migration: Option<LeaderElector>,
    leadership: Leadership,
    checks: Vec<RenewalCheck>,
}

impl Elections {
    /// Returns the elections of a process that takes part in none and never leads.
    pub fn never() -> Self {
        Self { main: Leadership::never(), lease: None, migration: None }
    }

    /// Returns the leadership under which a controller works; `None` if another program runs the controller.
    pub fn leadership_of(&self, controller: &str) -> Option<&Leadership> {
        let Some((migration, second)) = &self.migration else { return Some(&self.main) };
        match migration.placement(controller) {
            Placement::Main => Some(&self.main),
            Placement::Migrated => Some(second),
            Placement::Unowned => None,
        }
    }
}

/// Returns the candidates, if there is an election, and the leadership of each controller.
pub fn prepare(
    settings: &Settings,
    config: &kube::Config,
    metrics: &Metrics,
) -> Result<(Option<Candidates>, Elections), Error> {
    let Some(election) = &settings.election else {
        return Ok((None, Elections { main: Leadership::always(), lease: None, migration: None }));
    };
    let lease = LeaseConfig {
        namespace: settings.lease.namespace.clone(),
        name: settings.lease.name.clone(),
        identity: identity(&hostname().unwrap_or_else(|| "unknown-host".to_owned())),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    };
    // Unguarded, since candidates write their Leases before they lead.
    let client = client::unguarded(config, purpose::LEADER_ELECTION)?;
    let (main, leadership) = LeaderElector::new(client.clone(), lease.clone())?;
    main.register(metrics.registry())?;
    let mut checks = vec![RenewalCheck::new(&lease, leadership.clone())];
    let source = LeaseSource { namespace: lease.namespace.clone(), name: lease.name.clone(), status: main.status() };
    let mut second = None;
    let mut elections = Elections { main: leadership.clone(), lease: Some(source), migration: None };
    if let Some(migration) = &election.migration {
        report(migration, &settings.lease.name);
        let lease = LeaseConfig { name: migration.leader_name.clone(), ..lease };
        let (elector, leadership) = LeaderElector::new(client, lease.clone())?;
        checks.push(RenewalCheck::new(&lease, leadership.clone()));
        second = Some(elector.counted_with(&main));
        elections.migration = Some((migration.clone(), leadership));
    }
    Ok((Some(Candidates { main, migration: second, leadership, checks }), elections))
}

impl Candidates {
    /// Starts the tasks that compete for the Leases, and that release the Leases in the shutdown stage of the election.
    pub fn start(self, recorder: &Recorder, checks: &Checks, stages: &mut Stages) {
        let renewals = self.checks;
        checks.add_health("leaderElection", move || {
            renewals.iter().find_map(RenewalCheck::failure).map_or(Health::Ok, Health::Failed)
        });
        let stop = stages.stop_signal(ShutdownStage::Election);
        if let Some(second) = self.migration {
            let second = second.with_recorder(recorder.clone());
            stages.spawn(ShutdownStage::Election, "leader-migration", second.run_under(self.leadership, stop.clone()));
        }
        stages.spawn(ShutdownStage::Election, "leader-election", self.main.with_recorder(recorder.clone()).run(stop));
    }
}

/// Logs the Lease of each controller, or that another program runs the controller. Warns about older names.
fn report(migration: &LeaderMigration, main: &str) {
    for controller in CONTROLLERS {
        let (lease, name) = (&migration.leader_name, controller.name);
        match migration.placement(name) {
            Placement::Main => tracing::info!("leader migration: {name} works under the lease {main}"),
            Placement::Migrated => tracing::info!("leader migration: {name} works under the lease {lease}"),
            Placement::Unowned => tracing::info!("leader migration: {name} does not run here, but in another program"),
        }
        if let Some(other) = misnamed(migration, controller) {
            tracing::warn!(
                "leader migration: {other} is no controller's name; write {name} to have it work under the lease {lease}"
            );
        }
    }
}

/// Returns the older name under which a controller is listed instead of the current name. Older names have no effect.
fn misnamed<'a>(migration: &'a LeaderMigration, controller: &Controller) -> Option<&'a str> {
    let is_listed = |name: &str| migration.controller_leaders.iter().any(|leader| leader.name == name);
    let mut names = migration.controller_leaders.iter().map(|leader| leader.name.as_str());
    match is_listed(controller.name) {
        true => None,
        // Includes `client_name`, since two older names are names of service accounts only.
        false => names.find(|name| [controller.alias, controller.client_name].contains(name)),
    }
}

/// Returns the name of this host or Pod; `None` if it cannot be read.
pub(super) fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::catalogue::{NODE, NODE_LIFECYCLE};
    use crate::app::settings::leader_migration::ControllerLeader;

    #[test]
    fn each_controller_works_under_its_own_lease_or_not_at_all() {
        let leader = |name: &str, component: &str| ControllerLeader { name: name.into(), component: component.into() };
        let leaders = vec![leader(NODE_LIFECYCLE, "*"), leader(NODE, "kube-controller-manager")];
        let migration = LeaderMigration { controller_leaders: leaders, ..LeaderMigration::default() };
        let migration = Some((migration, Leadership::never()));
        let elections = Elections { main: Leadership::always(), lease: None, migration };
        let leads = |name: &str| elections.leadership_of(name).map(Leadership::is_leader);
        assert_eq!(leads("service-lb-controller"), Some(true), "the main one");
        assert_eq!(leads(NODE_LIFECYCLE), Some(false), "the second one");
        assert_eq!(leads(NODE), None, "another program's");
        let alone = Elections { main: Leadership::always(), lease: None, migration: None };
        assert_eq!(alone.leadership_of(NODE_LIFECYCLE).map(Leadership::is_leader), Some(true));
    }

    #[test]
    fn older_names_of_controllers_are_told() {
        let migration = LeaderMigration::default();
        let reported: Vec<_> = CONTROLLERS.iter().map(|controller| misnamed(&migration, controller)).collect();
        assert_eq!(reported, [None, None, Some("route-controller"), Some("service-controller")], "O-59");
    }
}
