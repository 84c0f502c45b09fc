//! From what is written to what is true: defaults, inheritance, checks. Pure.
//!
//! Mirrors `validateConfig` of `config_ini_legacy.go` and `config_yaml.go`.

use std::path::PathBuf;

use secrecy::SecretString;

use super::super::addresses::{AddressRule, AddressRules, IpFamily};
use super::super::zones::ZoneCategories;
use super::distinct::{Kinship, kinships};
use super::fields::{Dialect, RawFile, RawSection};
use super::problems::Report;
use super::values::{checked_families, checked_networks, checked_port, checked_server, checked_thumbprint};
use super::{Config, Credentials, Vcenter};

const DEFAULT_PORT: u16 = 443;

/// Checks everything and fills in the defaults. The result counts only when the report has no mistakes.
pub(super) fn merge(raw: &RawFile, report: &mut Report) -> Config {
    // What a broken line may have said is not reported as missing.
    let is_readable = report.is_readable();
    let global = Settings::read(&raw.global, report);
    let stored = global_source(&raw.global, &global, report);
    let (mut vcenters, mut sections) = (Vec::new(), Vec::new());
    for section in &raw.vcenters {
        let own = Settings::read(section, report);
        let server = own.server.clone().or_else(|| (section.dialect == Dialect::Ini).then(|| section.key.clone()));
        match server {
            Some(server) => {
                vcenters.push(vcenter(section, server, own, &global, stored.as_ref(), is_readable, report));
                sections.push(section);
            }
            None if section.is_mistake("server") => {}
            None => report.mistake_at(section, Some("server"), "expected the vCenter's host name or IP address"),
        }
    }
    if let Some(server) = global.server.clone().filter(|server| raw.vcenters.iter().all(|own| own.key != *server)) {
        let own = global.clone();
        let mut added = vcenter(&raw.global, server.clone(), own, &global, stored.as_ref(), is_readable, report);
        added.key = server;
        vcenters.push(added);
        sections.push(&raw.global);
    }
    warn_of_kinships(&vcenters, &sections, report);
    let is_mistaken = raw.global.is_mistake("server");
    if vcenters.is_empty() && raw.vcenters.is_empty() && is_readable && !is_mistaken {
        let expected = "no vCenter is defined: expected server in the section Global, or an entry for a vCenter";
        report.mistake(None, expected);
    }
    Config { vcenters, labels: labels(&raw.labels, report), addresses: address_rules(&raw.nodes, report) }
}

/// Tells which entries are one vCenter, and which are not although their server is the same.
fn warn_of_kinships(vcenters: &[Vcenter], sections: &[&RawSection], report: &mut Report) {
    for (section, kinship) in sections.iter().zip(kinships(vcenters)) {
        let shown = |head: usize| sections.get(head).map_or("another entry", |section| &section.shown);
        let odd = match kinship {
            Kinship::First => continue,
            Kinship::Same(head) => {
                format!("the same vCenter as {}: one session serves both, for the datacenters of both", shown(head))
            }
            Kinship::Apart(head, difference) => {
                let shown = shown(head);
                format!("the same server as {shown} with other {difference}: each has a session of its own")
            }
        };
        report.warn_at(section, Some("server"), odd);
    }
}

/// What Global and an entry have in common, each value checked on its own. Deliberately without `Debug`.
#[derive(Clone)]
struct Settings {
    server: Option<String>,
    port: Option<u16>,
    insecure: Option<bool>,
    ca_files: Vec<PathBuf>,
    thumbprint: Option<String>,
    datacenters: Vec<String>,
    ip_families: Vec<IpFamily>,
    user: Option<String>,
    password: Option<String>,
    secret: Option<Credentials>,
}

impl Settings {
    fn read(section: &RawSection, report: &mut Report) -> Self {
        let owned = |name: &str| section.text(name).map(str::to_owned);
        let strings = |name: &str| section.items(name).unwrap_or_default().into_iter().map(str::to_owned).collect();
        Self {
            server: checked_server(section, report),
            port: checked_port(section, report),
            insecure: section.flag("insecure-flag"),
            ca_files: section
                .text("ca-file")
                .map(|paths| paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect())
                .unwrap_or_default(),
            thumbprint: checked_thumbprint(section, report),
            datacenters: strings("datacenters"),
            ip_families: checked_families(section, report),
            user: owned("user"),
            password: owned("password"),
            secret: secret(section, report),
        }
    }
}

/// One entry with what it inherits from Global.
fn vcenter(
    section: &RawSection,
    server: String,
    own: Settings,
    global: &Settings,
    stored: Option<&Credentials>,
    is_readable: bool,
    report: &mut Report,
) -> Vcenter {
    let (credentials, fallback_credentials) = credentials(section, &own, global, stored, is_readable, report);
    if own.insecure == Some(false) && global.insecure == Some(true) {
        report.warn_at(section, Some("insecure-flag"), "no effect: the flag is set in the section Global");
    }
    let inherit = |own: Vec<String>, global: &[String]| if own.is_empty() { global.to_vec() } else { own };
    let mut ip_families = if own.ip_families.is_empty() { global.ip_families.clone() } else { own.ip_families };
    if ip_families.is_empty() {
        ip_families.push(IpFamily::V4);
    }
    Vcenter {
        key: section.key.clone(),
        server,
        port: own.port.or(global.port).unwrap_or(DEFAULT_PORT),
        insecure: own.insecure == Some(true) || global.insecure == Some(true),
        ca_files: if own.ca_files.is_empty() { global.ca_files.clone() } else { own.ca_files },
        thumbprints: own.thumbprint.or_else(|| global.thumbprint.clone()).into_iter().collect(),
        datacenters: inherit(own.datacenters, &global.datacenters),
        ip_families,
        credentials,
        fallback_credentials,
    }
}

/// The pair of the entry first, then its Secret, then the Secret or directory of Global; Global's user and password
/// only where there is neither.
fn credentials(
    section: &RawSection,
    own: &Settings,
    global: &Settings,
    stored: Option<&Credentials>,
    is_readable: bool,
    report: &mut Report,
) -> (Credentials, Option<Credentials>) {
    let inline = |user: String, password: String| Credentials::Inline { user, password: SecretString::from(password) };
    if let Some(stored) = own.secret.as_ref().or(stored) {
        return match (&own.user, &own.password) {
            (Some(user), Some(password)) => (inline(user.clone(), password.clone()), Some(stored.clone())),
            (None, None) => (stored.clone(), None),
            (user, _) => {
                let given = if user.is_some() { "user" } else { "password" };
                report.warn_at(
                    section,
                    Some(given),
                    "ignored: user and password belong together, and a secret is used",
                );
                (stored.clone(), None)
            }
        };
    }
    let user = own.user.clone().or_else(|| global.user.clone());
    let password = own.password.clone().or_else(|| global.password.clone());
    for (name, value) in [("user", &user), ("password", &password)] {
        if value.is_none() && is_readable && !section.is_mistake(name) {
            let expected = format!("missing: expected a {name} here or in the section Global, or a secret");
            report.mistake_at(section, Some(name), expected);
        }
    }
    (inline(user.unwrap_or_default(), password.unwrap_or_default()), None)
}

/// The source that all entries share: Global's Secret or directory, if it is exactly one of the two.
fn global_source(section: &RawSection, global: &Settings, report: &mut Report) -> Option<Credentials> {
    let directory = section.text("secrets-directory").map(|path| Credentials::Directory(PathBuf::from(path)));
    let is_named = section.text("secret-name").is_some() || section.text("secret-namespace").is_some();
    match (&global.secret, directory) {
        (Some(secret), None) => Some(secret.clone()),
        (None, Some(directory)) if !is_named => Some(directory),
        (_, Some(_)) => {
            let odd = "ignored: a secret is named as well, so neither is used for other entries";
            report.warn_at(section, Some("secrets-directory"), odd);
            None
        }
        (None, None) => None,
    }
}

/// Name and namespace belong together; one alone counts as none.
fn secret(section: &RawSection, report: &mut Report) -> Option<Credentials> {
    match (section.text("secret-namespace"), section.text("secret-name")) {
        (Some(namespace), Some(name)) => {
            Some(Credentials::Secret { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        (None, None) => None,
        (namespace, _) => {
            let given = if namespace.is_some() { "secret-namespace" } else { "secret-name" };
            report.warn_at(section, Some(given), "ignored: name and namespace of the secret belong together");
            None
        }
    }
}

/// Zones are on only with both categories.
fn labels(section: &RawSection, report: &mut Report) -> Option<ZoneCategories> {
    match (section.text("zone"), section.text("region")) {
        (Some(zone), Some(region)) => Some(ZoneCategories { zone: zone.to_owned(), region: region.to_owned() }),
        (None, None) => None,
        (zone, _) => {
            let given = if zone.is_some() { "zone" } else { "region" };
            report.warn_at(section, Some(given), "no effect: zones are on only when both zone and region are set");
            None
        }
    }
}

fn address_rules(section: &RawSection, report: &mut Report) -> AddressRules {
    let mut rule = |kind: &str| AddressRule {
        networks: checked_networks(section, &format!("{kind}-network-subnet-cidr"), report),
        network_name: section.text(&format!("{kind}-vm-network-name")).map(str::to_owned),
        excluded: checked_networks(section, &format!("exclude-{kind}-network-subnet-cidr"), report),
    };
    AddressRules { internal: rule("internal"), external: rule("external") }
}
