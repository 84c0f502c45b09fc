//! The two vCenters, and the files that lead the replicas there.

use std::path::{Path, PathBuf};

use support::{FakeVcenter, replace_file};

use super::MACHINES;
use super::fault::VCENTERS;
use crate::cluster::Cluster;

/// See the file's header.
pub struct Site {
    /// In their order.
    pub fakes: Vec<FakeVcenter>,
    /// What the configuration says of each.
    pub passwords: Vec<String>,
    /// What stands in the CA file of each when it is replaced.
    pub certificates: Vec<String>,
    /// Whether the configuration cannot be read.
    pub is_broken: bool,
    /// Which one is missing in the configuration.
    pub without: Option<usize>,
    config: PathBuf,
    authorities: Vec<PathBuf>,
}

impl Site {
    /// Each has its part of the machines.
    pub async fn start(cluster: &Cluster) -> Self {
        let mut fakes = Vec::new();
        for number in 0..VCENTERS {
            let first = number * MACHINES / VCENTERS;
            fakes.push(FakeVcenter::start(cluster.model(first..(number + 1) * MACHINES / VCENTERS)).await);
        }
        let folder = cluster.folder();
        let site = Self {
            passwords: fakes.iter().map(FakeVcenter::password).collect(),
            certificates: fakes.iter().map(|fake| fake.ca_pem().to_owned()).collect(),
            authorities: (1..=VCENTERS).map(|number| folder.join(format!("chaos-ca-{number}.pem"))).collect(),
            config: folder.join("chaos.conf"),
            is_broken: false,
            without: None,
            fakes,
        };
        (0..VCENTERS).for_each(|number| site.write_authority(number));
        site.write();
        site
    }

    /// The file of all replicas.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Puts the CA file of this vCenter in its place.
    pub fn write_authority(&self, number: usize) {
        replace_file(&self.authorities[number], &self.certificates[number]);
    }

    /// Puts the configuration in its place.
    pub fn write(&self) {
        let numbers = (0..VCENTERS).filter(|number| self.without != Some(*number));
        let text = Cluster::zoned(&numbers.map(|number| self.section(number)).collect::<Vec<_>>());
        let broken = if self.is_broken { "[Global\nserver = = \"\n" } else { "" };
        replace_file(&self.config, &format!("{text}{broken}"));
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
