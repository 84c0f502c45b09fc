//! Validation: turns the file as written into the configuration by defaults, inheritance and checks. Pure.
//!
//! Mirrors `validateConfig` of `config_ini_legacy.go` and `config_yaml.go`.

use std::path::{Path, PathBuf};

use super::distinct::{EntryRelation, entry_relations};
use super::fields::{RawFile, RawSection};
use super::optional_sections::PartName;
use super::problems::ProblemReport;
use super::sizes::Total;
use super::sources::{EntryOrigin, Sources};
use super::spelling::spelling_of;
use super::values::{
    checked_datacenters, checked_families, checked_networks, checked_port, checked_server, log_thumbprint,
    parse_thumbprints,
};
use super::{Config, Credentials, FileChecks, VcenterConfig, load_balancers, nsx, routes};
use crate::clients::http::Thumbprint;
use crate::providers::vsphere::config::address_rules::{AddressRule, AddressRules, IpFamily, name_parts};
use crate::providers::vsphere::vcenter::zone_tags::ZoneCategories;

const DEFAULT_PORT: u16 = 443;

/// Validates everything and fills in defaults. The result is valid only if the report has no error that invalidates the
/// whole file.
pub(super) fn merge(
    raw: &RawFile,
    environment: &RawFile,
    checks: &FileChecks<'_>,
    report: &mut ProblemReport,
) -> Config {
    // A broken line may define a vCenter, so the lack of vCenters is not reported then.
    let is_readable = report.is_readable;
    let mut reader = EntryReader::new(raw, environment, checks.is_directory, report);
    let (mut found, mut total) = (Vec::<(VcenterConfig, &RawSection)>::new(), Total::default());
    let mut refused_vcenters = environment.replaced.clone();
    for VcenterSection { origin: defined, mut section, fallback: instead } in entries(raw, environment) {
        let before = report.count();
        let mut vcenter = reader.read(defined, section, report);
        if let Some(vcenter) = vcenter.as_ref().filter(|_| section.part == Some(PartName::FurtherVcenters)) {
            for reason in (checks.trust_errors)(vcenter) {
                report.ca_file_error(section, reason);
            }
        }
        let is_wrong = reader.are_defaults_wrong || section.has_error() || report.count() > before;
        if is_wrong && section.part == Some(PartName::FurtherVcenters) {
            refused_vcenters.push(section.shown.clone());
            let Some((defined, of_file)) = instead else { continue };
            section = of_file;
            vcenter = reader.read(defined, section, report);
        }
        let Some(vcenter) = vcenter else { continue };
        if !total.has_capacity_for(&vcenter, report) {
            break;
        }
        found.push((vcenter, section));
    }
    log_thumbprint(&raw.global, reader.is_any_verified, report);
    reader.sources.warn_of_unused(&environment.global, report);
    let (vcenters, sections): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    warn_of_entry_relations(&vcenters, &sections, report);
    let is_mistaken = raw.global.has_error_at("server") || !raw.vcenters.is_empty();
    if vcenters.is_empty() && is_readable && !is_mistaken {
        let expected = "no vCenter is defined: expected server in the section Global, or an entry for a vCenter";
        report.error(None, expected);
    }
    let mut config = Config {
        vcenters,
        refused_vcenters,
        labels: labels(&raw.labels, &environment.labels, report),
        addresses: address_rules(&raw.nodes, &environment.nodes, report),
        nsx: nsx::check(&raw.nsxt, &environment.nsxt, report),
        load_balancers: load_balancers::check(raw, report),
        routes: routes::check(&raw.route, report),
    };
    check_dependents(&mut config, raw, report);
    config
}

/// Turns off load balancers and routes if there is no connection to NSX.
fn check_dependents(config: &mut Config, raw: &RawFile, report: &mut ProblemReport) {
    for (part, expected) in config.refuse_without_nsx() {
        let section = match part {
            PartName::LoadBalancers => raw.load_balancer_sections().next(),
            PartName::Nsx | PartName::Routes | PartName::FurtherVcenters => Some(&raw.route),
        };
        if let Some(section) = section {
            report.error_at(section, None, expected);
        }
    }
}

struct VcenterSection<'a> {
    origin: EntryOrigin,
    section: &'a RawSection,
    /// The entry of the file that a variable replaces. This entry is used if the variable's entry has errors.
    fallback: Option<(EntryOrigin, &'a RawSection)>,
}

/// Returns the entries of the file, of `Global` and of variables. A variable replaces an entry with the same key.
fn entries<'a>(raw: &'a RawFile, environment: &'a RawFile) -> Vec<VcenterSection<'a>> {
    let entry = |defined, section| VcenterSection { origin: defined, section, fallback: None };
    let mut entries: Vec<_> = raw.vcenters.iter().map(|section| entry(EntryOrigin::InFile, section)).collect();
    if raw.global.text("server").is_some_and(|server| raw.vcenters.iter().all(|own| own.key != server)) {
        entries.push(entry(EntryOrigin::InGlobal, &raw.global));
    }
    for section in &environment.vcenters {
        match entries.iter_mut().find(|known| key_of(known.origin, known.section) == section.key) {
            Some(known) => {
                let instead = Some((known.origin, known.section));
                *known = VcenterSection { origin: EntryOrigin::ByVariable, section, fallback: instead };
            }
            None => entries.push(entry(EntryOrigin::ByVariable, section)),
        }
    }
    entries
}

struct EntryReader {
    sources: Sources,
    /// Values that entries of the file inherit.
    global: EntrySettings,
    /// Values that the entries defined by variables inherit.
    defaults: EntrySettings,
    /// Whether values inherited from variables have errors.
    are_defaults_wrong: bool,
    /// Whether any entry verifies the server's certificate.
    is_any_verified: bool,
}

impl EntryReader {
    fn new(
        raw: &RawFile,
        environment: &RawFile,
        is_directory: &dyn Fn(&Path) -> bool,
        report: &mut ProblemReport,
    ) -> Self {
        let sources = Sources::new(raw, environment, is_directory, report);
        let global = EntrySettings::read(&raw.global, report);
        let before = report.count();
        let defaults = EntrySettings::read(&environment.global, report).or(&global);
        let is_verified = environment.vcenters.iter().any(|section| section.flag("insecure-flag") != Some(true));
        log_thumbprint(&environment.global, is_verified, report);
        let are_defaults_wrong = environment.global.has_error() || report.count() > before;
        Self { sources, global, defaults, are_defaults_wrong, is_any_verified: false }
    }

    /// Reads one entry; `None` if the entry has no server.
    fn read(
        &mut self,
        defined: EntryOrigin,
        section: &RawSection,
        report: &mut ProblemReport,
    ) -> Option<VcenterConfig> {
        let inherited = if defined == EntryOrigin::ByVariable { &self.defaults } else { &self.global };
        let own =
            if defined == EntryOrigin::InGlobal { self.global.clone() } else { EntrySettings::read(section, report) };
        let is_insecure = own.is_insecure(inherited);
        self.is_any_verified |= !is_insecure;
        if defined != EntryOrigin::InGlobal {
            log_thumbprint(section, !is_insecure, report);
        }
        let named = || section.names_its_server().then(|| section.key.clone());
        let Some(server) = own.server.clone().or_else(named) else {
            if !section.has_error_at("server") {
                report.error_at(section, Some("server"), "expected the vCenter's host name or IP address");
            }
            return None;
        };
        let credentials = self.sources.credentials(defined, section, report);
        Some(vcenter(section, key_of(defined, section), server, own, inherited, credentials, report))
    }
}
/// Returns the key of an entry. For `Global`, the key is the server.
fn key_of(defined: EntryOrigin, section: &RawSection) -> &str {
    match defined {
        EntryOrigin::InGlobal => section.text("server").unwrap_or_default(),
        EntryOrigin::InFile | EntryOrigin::ByVariable => &section.key,
    }
}

/// Warns of entries that are the same vCenter, and of other entries with the same server.
fn warn_of_entry_relations(vcenters: &[VcenterConfig], sections: &[&RawSection], report: &mut ProblemReport) {
    for (section, kinship) in sections.iter().zip(entry_relations(vcenters)) {
        let shown = |head: usize| sections.get(head).map_or("another entry", |section| &section.shown);
        let odd = match kinship {
            EntryRelation::First => continue,
            EntryRelation::Same(head) => {
                format!("the same vCenter as {}: one session serves both, for the datacenters of both", shown(head))
            }
            EntryRelation::Apart(head, difference) => {
                let shown = shown(head);
                format!("the same server as {shown} with other {difference}: each has a session of its own")
            }
        };
        report.warn_at(section, Some("server"), odd);
    }
}

/// Settings common to `Global` and entries, each validated independently.
#[derive(Clone)]
struct EntrySettings {
    server: Option<String>,
    port: Option<u16>,
    insecure: Option<bool>,
    ca_files: Vec<PathBuf>,
    /// Location of `ca-file` for messages: its line and key, or the environment variable. `None` without CA files.
    ca_place: Option<String>,
    thumbprints: Vec<Thumbprint>,
    datacenters: Vec<String>,
    ip_families: Vec<IpFamily>,
}

impl EntrySettings {
    fn read(section: &RawSection, report: &mut ProblemReport) -> Self {
        let paths = section.text("ca-file").unwrap_or_default();
        let ca_files: Vec<_> = paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        Self {
            server: checked_server(section, report),
            port: checked_port(section, report),
            insecure: section.flag("insecure-flag"),
            ca_place: (!ca_files.is_empty()).then(|| report.place_of(section, "ca-file")),
            ca_files,
            // Invalid thumbprints are reported later: they are errors only if a certificate is verified.
            thumbprints: parse_thumbprints(section).unwrap_or_default(),
            datacenters: checked_datacenters(section, report),
            ip_families: checked_families(section, report),
        }
    }

    /// Returns true if the certificate of an entry with these settings is not verified.
    fn is_insecure(&self, inherited: &Self) -> bool {
        self.insecure == Some(true) || inherited.insecure == Some(true)
    }

    /// Fills in missing settings from `Global`. The result has no server and no `insecure`, so an entry defined by a
    /// variable does not inherit `insecure` from `Global`: only its own variable turns off verification.
    fn or(self, global: &Self) -> Self {
        fn either<T: Clone>(own: Vec<T>, global: &[T]) -> Vec<T> {
            if own.is_empty() { global.to_vec() } else { own }
        }
        Self {
            server: None,
            port: self.port.or(global.port),
            insecure: None,
            ca_files: either(self.ca_files, &global.ca_files),
            ca_place: self.ca_place.or_else(|| global.ca_place.clone()),
            thumbprints: either(self.thumbprints, &global.thumbprints),
            datacenters: either(self.datacenters, &global.datacenters),
            ip_families: either(self.ip_families, &global.ip_families),
        }
    }
}

fn vcenter(
    section: &RawSection,
    key: &str,
    server: String,
    own: EntrySettings,
    global: &EntrySettings,
    (credentials, fallback_credentials): (Credentials, Option<Credentials>),
    report: &mut ProblemReport,
) -> VcenterConfig {
    if own.insecure == Some(false) && global.insecure == Some(true) {
        report.warn_at(section, Some("insecure-flag"), "no effect: the flag is set in the section Global");
    }
    let insecure = own.is_insecure(global);
    let EntrySettings { port, ca_files, ca_place, thumbprints, datacenters, mut ip_families, .. } = own.or(global);
    report.record_ca_file(key, ca_place);
    if ip_families.is_empty() {
        ip_families.push(IpFamily::V4);
    }
    VcenterConfig {
        key: key.to_owned(),
        spelling: spelling_of(section),
        server,
        port: port.unwrap_or(DEFAULT_PORT),
        insecure,
        ca_files,
        thumbprints,
        datacenters,
        ip_families,
        credentials,
        fallback_credentials,
    }
}

/// Reads the tag categories. Zones need both categories.
fn labels(file: &RawSection, variables: &RawSection, report: &mut ProblemReport) -> Option<ZoneCategories> {
    let (zone, region) = (over(file, variables, "zone"), over(file, variables, "region"));
    match (zone.text("zone"), region.text("region")) {
        (Some(zone), Some(region)) => Some(ZoneCategories { zone: zone.to_owned(), region: region.to_owned() }),
        (None, None) => None,
        (given, _) => {
            let (section, key) = if given.is_some() { (zone, "zone") } else { (region, "region") };
            report.warn_at(section, Some(key), "no effect: zones are on only when both zone and region are set");
            None
        }
    }
}

/// Returns the section that has the key. A variable takes precedence over the file.
fn over<'a>(file: &'a RawSection, variables: &'a RawSection, key: &str) -> &'a RawSection {
    if variables.text(key).is_some() { variables } else { file }
}

fn address_rules(file: &RawSection, variables: &RawSection, report: &mut ProblemReport) -> AddressRules {
    let mut networks = |key: &str| checked_networks(over(file, variables, key), key, report);
    let mut rule = |kind: &str| AddressRule {
        networks: networks(&format!("{kind}-network-subnet-cidr")),
        network_name: {
            let key = format!("{kind}-vm-network-name");
            over(file, variables, &key).text(&key).map(str::to_owned)
        },
        excluded: networks(&format!("exclude-{kind}-network-subnet-cidr")),
    };
    let rules = AddressRules { internal: rule("internal"), external: rule("external") };
    for key in ["internal-vm-network-name", "external-vm-network-name"] {
        let section = over(file, variables, key);
        let parts = name_parts(section.text(key).unwrap_or_default()).len();
        if parts > 0 {
            let odd = format!(
                "a name with commas: for each VM, a network of this whole name is searched first, then its {parts} \
                 part(s) between commas, in this order"
            );
            report.warn_at(section, Some(key), odd);
        }
    }
    rules
}
