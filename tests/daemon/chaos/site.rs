//! The two vCenters and NSX, and the configuration files of the replicas.

use std::path::{Path, PathBuf};

use ccm::kubernetes::login_ledger::record_name;
use support::{FakeNsx, FakeVcenter, replace_file};

use super::MACHINES;
use super::fault::{REPLICAS, VCENTERS};
use super::{nsx, services};
use crate::cluster::Cluster;
use crate::services::{nsx_section, section};

/// The vCenters, NSX and the files of a campaign.
pub struct Site {
    /// The vCenters by number.
    pub fakes: Vec<FakeVcenter>,
    /// Password of each vCenter in the configuration.
    pub passwords: Vec<String>,
    /// Next content of the CA file of each vCenter.
    pub certificates: Vec<String>,
    /// Whether the configuration is invalid.
    pub is_broken: bool,
    /// Number of the vCenter that the configuration lacks.
    pub without: Option<usize>,
    /// The NSX manager.
    pub nsx: FakeNsx,
    /// The accounts at NSX: one of each replica, and one of fresh daemons. Accounts of replicas have the names of the
    /// replicas' users at the API server.
    pub accounts: Vec<String>,
    /// NSX password of each account in the configuration.
    pub nsx_passwords: Vec<String>,
    /// Password of the replicas at NSX since the last change.
    pub next_nsx_password: String,
    /// Configuration file of each account.
    configs: Vec<PathBuf>,
    authorities: Vec<PathBuf>,
    nsx_authority: PathBuf,
}

impl Site {
    /// Starts the fakes. Each vCenter has its part of the machines.
    pub async fn start(cluster: &Cluster, users: &[String]) -> Self {
        let mut fakes = Vec::new();
        for number in 0..VCENTERS {
            let first = number * MACHINES / VCENTERS;
            fakes.push(FakeVcenter::start(cluster.model(first..(number + 1) * MACHINES / VCENTERS)).await);
        }
        let folder = cluster.folder();
        let accounts: Vec<String> = users.iter().cloned().chain([format!("fresh-{}", cluster.pool())]).collect();
        let nsx = FakeNsx::start(nsx::model(&accounts, cluster.pool())).await;
        let nsx_authority = folder.join("chaos-nsx-ca.pem");
        replace_file(&nsx_authority, nsx.ca_pem());
        let site = Self {
            passwords: fakes.iter().map(FakeVcenter::password).collect(),
            certificates: fakes.iter().map(|fake| fake.ca_pem().to_owned()).collect(),
            authorities: (1..=VCENTERS).map(|number| folder.join(format!("chaos-ca-{number}.pem"))).collect(),
            configs: (0..accounts.len()).map(|number| folder.join(format!("chaos-{number}.conf"))).collect(),
            next_nsx_password: nsx::PASSWORD.to_owned(),
            nsx_passwords: vec![nsx::PASSWORD.to_owned(); accounts.len()],
            nsx,
            accounts,
            nsx_authority,
            is_broken: false,
            without: None,
            fakes,
        };
        (0..VCENTERS).for_each(|number| site.write_authority(number));
        site.write();
        site
    }

    /// Returns the configuration file of this replica.
    pub fn config(&self, replica: usize) -> &Path {
        &self.configs[replica]
    }

    /// Returns the configuration file of fresh daemons.
    pub fn fresh_config(&self) -> &Path {
        &self.configs[REPLICAS]
    }

    /// Replaces the CA file of this vCenter.
    pub fn write_authority(&self, number: usize) {
        replace_file(&self.authorities[number], &self.certificates[number]);
    }

    /// Replaces the configuration of each replica.
    pub fn write(&self) {
        let numbers = (0..VCENTERS).filter(|number| self.without != Some(*number));
        let text = Cluster::zoned(&numbers.map(|number| self.section(number)).collect::<Vec<_>>());
        let broken = if self.is_broken { "[Global\nserver = = \"\n" } else { "" };
        for (number, config) in self.configs.iter().enumerate() {
            replace_file(config, &format!("{text}{}{broken}", self.nsx_sections(number)));
        }
    }

    /// Returns the name of the Lease with the logins of this account at NSX.
    pub fn nsx_record(&self, account: &str) -> String {
        record_name("nsx", &format!("127.0.0.1:{}", self.nsx.port()), account)
    }

    fn nsx_sections(&self, account: usize) -> String {
        format!(
            "{}[Route]\nrouter-path = \"{}\"\n{}",
            nsx_section(&self.nsx, &self.nsx_authority, &self.accounts[account], &self.nsx_passwords[account]),
            nsx::ROUTER,
            section(services::POOL, "LARGE"),
        )
    }

    fn section(&self, number: usize) -> String {
        let fake = &self.fakes[number];
        format!(
            "[VirtualCenter \"vc-{}\"]\nserver = \"{}\"\nport = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\n\
             ca-file = \"{}\"\ndatacenters = \"dc-1\"\n",
            number + 1,
            fake.host(),
            fake.port(),
            fake.user(),
            self.passwords[number],
            self.authorities[number].display()
        )
    }
}
