//! The environment variables that supplement `vsphere.conf`. `app` reads them and passes them in.
//!
//! Mirrors `FromEnv` of `pkg/common/config/config.go` and `FromCPIEnv` of `pkg/cloudprovider/vsphere/config/config.go`.

mod service_links;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use zeroize::Zeroizing;

use super::fields::{Dialect, RawField, RawFile, RawSection, RawValue, SectionName};
use super::optional_sections::PartName;
use super::problems::ProblemReport;
use crate::base::go_flags::parse_bool;

/// Prefixes of variables to keep. Unknown variables are dropped, because they may contain a service account token or a
/// password of another program.
const PREFIXES: [&str; 2] = ["VSPHERE_", VCENTER_PREFIX];

/// Further variables to keep. A switch is on if the variable exists. Dual stack works without its switch.
const SWITCHES: [&str; 2] = ["ENABLE_ALPHA_DUAL_STACK", SKIP_NODE_DELETION];

const SKIP_NODE_DELETION: &str = "SKIP_NODE_DELETION";

/// Set by the kubelet in every container, so it shows that this process runs in a pod.
const API_SERVER: &str = "KUBERNETES_SERVICE_HOST";

/// Proxy variables for the connections to vCenter and NSX.
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"];

/// `VSPHERE_VCENTER_<id>` defines a vCenter.
const DEFINING_PREFIX: &str = "VSPHERE_VCENTER_";

/// `VCENTER_<id>_<what>` adds a setting to the vCenter of this id.
const VCENTER_PREFIX: &str = "VCENTER_";

/// The variable for the default port. It begins with [`DEFINING_PREFIX`], but defines no vCenter.
const PORT: &str = "VSPHERE_VCENTER_PORT";

/// Suffix that no vCenter id has. A variable with [`DEFINING_PREFIX`] and this suffix is misspelt, and its value is
/// probably a password.
const PASSWORD: &str = "PASSWORD";

const SECRET_NAME: &str = "VSPHERE_SECRET_NAME";
const SECRET_NAMESPACE: &str = "VSPHERE_SECRET_NAMESPACE";

const NO_TEXT: &str = "expected text in UTF-8";

/// Variables for every vCenter.
const SHARED: [(&str, &str); 5] = [
    ("VSPHERE_USER", "user"),
    ("VSPHERE_PASSWORD", "password"),
    (SECRET_NAME, "secret-name"),
    (SECRET_NAMESPACE, "secret-namespace"),
    ("VSPHERE_SECRETS_DIRECTORY", "secrets-directory"),
];

/// Variables for vCenters that are defined by variables.
const DEFAULTS: [(&str, &str); 4] = [
    (PORT, "port"),
    ("VSPHERE_DATACENTER", "datacenters"),
    ("VSPHERE_CAFILE", "ca-file"),
    ("VSPHERE_THUMBPRINT", "thumbprint"),
];

/// The environment variables that this program reads, by name. Their values are wiped from memory on drop, but the
/// environment of the process still contains them.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, Option<Zeroizing<String>>>,
    /// Services whose variables are ignored, each with one ignored variable that would otherwise have an effect.
    services: Vec<(String, String)>,
}

/// Prints only names, because values may be passwords.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.variables.keys()).finish()
    }
}

impl Environment {
    /// Keeps the variables (name and value) whose name or prefix this program reads, except those that the kubelet sets
    /// for Services.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let is_whole = |name: &str| {
            name == API_SERVER
                || SWITCHES.contains(&name)
                || PROXIES.contains(&name)
                || SectionName::Nsxt.variables().any(|(variable, _)| variable == name)
        };
        let known = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_whole(name);
        let named = variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let kept = named.filter(|(name, _)| known(name)).map(|(name, value)| {
            let bytes = Zeroizing::new(value.into_encoded_bytes());
            let text = std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.to_owned()));
            (name, text)
        });
        let mut variables = kept.collect();
        let services = service_links::take(&mut variables).into_iter();
        let services = services.filter_map(|(name, links)| Some((name, links.into_iter().find(|link| is_read(link))?)));
        Self { services: services.collect(), variables }
    }

    /// Returns the value of a proxy variable. A value that is not UTF-8 counts as unset.
    pub fn proxy(&self, name: &str) -> Option<String> {
        let value = self.variables.get(name).filter(|_| PROXIES.contains(&name))?;
        value.as_ref().map(|text| text.to_string())
    }

    /// Returns true if this process runs in a pod, where no kubeconfig is needed.
    pub fn is_of_pod(&self) -> bool {
        self.variables.contains_key(API_SERVER)
    }

    /// Returns true if `SKIP_NODE_DELETION` exists. As in the Go program, even the value `false` counts as set.
    pub fn skips_node_deletion(&self) -> bool {
        self.variables.contains_key(SKIP_NODE_DELETION)
    }
}

/// Converts the variables for vCenters, labels, Nodes and NSX to the form of a file. `file` determines which variables
/// have an effect. The vCenters are in the order of the variable names, with that of `VSPHERE_VCENTER` last.
pub(super) fn read(environment: &Environment, file: &RawFile, report: &mut ProblemReport) -> RawFile {
    let is_file_empty = file.vcenters.is_empty() && file.global.text("server").is_none();
    // If the file has no vCenter, an error in a variable may leave no vCenter at all. So in this case
    // such an error invalidates the whole configuration.
    let part = (!is_file_empty).then_some(PartName::FurtherVcenters);
    let mut reader = VariableReader { environment, part, report };
    reader.warn_of_service_links();
    let (mut vcenters, replaced) = reader.vcenters();
    if is_file_empty && reader.is_no_text("VSPHERE_VCENTER") {
        reader.report.error_of_variable(part, "VSPHERE_VCENTER", NO_TEXT);
    } else if is_file_empty && let Some(server) = reader.text("VSPHERE_VCENTER") {
        if vcenters.iter().all(|known: &RawSection| known.key != server) {
            vcenters.push(defined("VSPHERE_VCENTER", server, part));
        }
    } else {
        reader.no_effect(&["VSPHERE_VCENTER"], "no effect: vCenters are defined already");
    }
    let mut global = reader.shared(!vcenters.is_empty());
    if vcenters.is_empty() {
        let names = DEFAULTS.map(|(name, _)| name);
        reader.no_effect(&names, "no effect: it is for vCenters that are defined by variables, and there are none");
    } else {
        reader.fill(&mut global, &DEFAULTS);
    }
    reader.no_effect(&["VSPHERE_INSECURE"], "no effect: expected insecure-flag in the file or VCENTER_<id>_INSECURE");
    let (labels, nodes) = (reader.section(SectionName::Labels), reader.section(SectionName::Nodes));
    let nsxt = reader.nsxt(file.nsxt.line.is_some());
    reader.warn_of_orphans();
    RawFile { global, labels, nodes, nsxt, vcenters, replaced, ..RawFile::new(Dialect::Environment) }
}

struct VariableReader<'a, 'b> {
    environment: &'a Environment,
    /// The part that an error in a vCenter of variables turns off; `None` if the error invalidates the whole file.
    part: Option<PartName>,
    report: &'b mut ProblemReport,
}

impl<'a> VariableReader<'a, '_> {
    /// Returns the value of a variable, if the value is non-empty UTF-8.
    fn text(&self, name: &str) -> Option<&'a str> {
        let value = self.environment.variables.get(name)?;
        value.as_deref().map(String::as_str).filter(|text| !text.is_empty())
    }

    fn is_no_text(&self, name: &str) -> bool {
        self.environment.variables.get(name).is_some_and(Option::is_none)
    }

    fn no_effect(&mut self, names: &[&str], odd: &str) {
        for name in names {
            if self.text(name).is_some() || self.is_no_text(name) {
                self.report.warn_of_variable(name, odd);
            }
        }
    }

    fn section(&mut self, which: SectionName) -> RawSection {
        let mut section = RawSection::new(which, Dialect::Environment);
        self.fill(&mut section, &which.variables().collect::<Vec<_>>());
        section
    }

    /// Reads the variables for every vCenter. A value that is not UTF-8 is an error of the vCenters that variables
    /// define. If the file has vCenters and variables define none, such a value only causes a warning.
    fn shared(&mut self, has_vcenters: bool) -> RawSection {
        let mut section = RawSection::new(SectionName::Global, Dialect::Environment);
        section.part = self.part;
        let is_ignored = |name: &str| self.part.is_some() && !has_vcenters && self.is_no_text(name);
        let (ignored, table): (Vec<_>, Vec<_>) = SHARED.into_iter().partition(|(name, _)| is_ignored(name));
        for (name, _) in ignored {
            self.report.warn_of_variable(name, format!("no effect: {NO_TEXT}"));
        }
        self.fill(&mut section, &table);
        // If one of the two is unreadable, both are unset: a name from a variable and a namespace from the file (or the
        // reverse) would identify another Secret.
        if [SECRET_NAME, SECRET_NAMESPACE].into_iter().any(|name| self.is_no_text(name)) {
            let keys = ["secret-name", "secret-namespace"];
            section.fields.extend(keys.map(|name| RawField { name, line: None, value: RawValue::Unset }));
        }
        section
    }

    fn fill(&mut self, section: &mut RawSection, table: &[(&str, &'static str)]) {
        for (variable, key) in table {
            section.variables.push((key, (*variable).to_owned()));
            if let Some(text) = self.text(variable) {
                let value = parse_value(key, text).unwrap_or_else(|expected| {
                    self.report.error_of_variable(section.part, variable, expected);
                    RawValue::Mistake
                });
                section.fields.push(RawField { name: key, line: None, value });
            } else if self.is_no_text(variable) {
                self.report.error_of_variable(section.part, variable, NO_TEXT);
                section.fields.push(RawField { name: key, line: None, value: RawValue::Mistake });
            }
        }
    }

    /// Reads the variables of NSX. As in the Go program, variables do not create the section `NSXT`.
    fn nsxt(&mut self, has_section: bool) -> RawSection {
        if has_section {
            return self.section(SectionName::Nsxt);
        }
        let variables: Vec<_> = SectionName::Nsxt.variables().map(|(variable, _)| variable).collect();
        self.no_effect(&variables, "no effect: there is no section NSXT in the file");
        RawSection::new(SectionName::Nsxt, Dialect::Environment)
    }

    fn warn_of_service_links(&mut self) {
        for (service, variable) in &self.environment.services {
            let odd = format!(
                "ignored, with the others that Kubernetes sets for the Service {service}: set enableServiceLinks: false in the pod"
            );
            self.report.warn_of_variable(variable, odd);
        }
    }

    /// Returns the vCenters that variables define, and the value of [`RawFile::replaced`].
    fn vcenters(&mut self) -> (Vec<RawSection>, Vec<String>) {
        let (mut vcenters, mut replaced) = (Vec::<RawSection>::new(), Vec::new());
        for variable in self.environment.variables.keys() {
            let Some(id) = variable.strip_prefix(DEFINING_PREFIX).filter(|_| variable != PORT) else { continue };
            // A value that is not UTF-8 still defines a vCenter.
            let is_no_text = self.is_no_text(variable);
            let Some(key) = self.text(variable).or_else(|| is_no_text.then_some(variable.as_str())) else { continue };
            if id.ends_with(PASSWORD) {
                // The value is probably a password. As a server name it would reach name servers, logs and metrics.
                self.report.warn_of_variable(variable, "no effect: expected VSPHERE_PASSWORD or VCENTER_<id>_PASSWORD");
                continue;
            }
            let mut section = defined(variable, key, self.part);
            if is_no_text {
                self.report.error_of_variable(self.part, variable, NO_TEXT);
                section.fields.push(RawField { name: "server", line: None, value: RawValue::Mistake });
            }
            let ends = SectionName::Vcenter.variables();
            let names: Vec<_> = ends.map(|(end, key)| (format!("{VCENTER_PREFIX}{id}{end}"), key)).collect();
            let table: Vec<_> = names.iter().map(|(name, key)| (name.as_str(), *key)).collect();
            self.fill(&mut section, &table);
            match vcenters.iter_mut().find(|known| known.key == section.key) {
                Some(known) => {
                    self.report.warn_of_variable(variable, "replaces the vCenter of another variable with this value");
                    let before = std::mem::replace(known, section);
                    if before.has_error() {
                        replaced.push(before.shown);
                    }
                }
                None => vcenters.push(section),
            }
        }
        (vcenters, replaced)
    }

    /// Warns of variables for a vCenter that no variable defines.
    fn warn_of_orphans(&mut self) {
        for variable in self.environment.variables.keys() {
            let Some(rest) = variable.strip_prefix(VCENTER_PREFIX) else { continue };
            let mut ends = SectionName::Vcenter.variables();
            let Some(id) = ends.find_map(|(end, _)| rest.strip_suffix(end)) else { continue };
            let defining = format!("{DEFINING_PREFIX}{id}");
            if !id.is_empty() && defining != PORT && !self.environment.variables.contains_key(&defining) {
                self.report.warn_of_variable(variable, format!("no effect: expected the variable {defining} as well"));
            }
        }
    }
}

fn defined(variable: &str, key: &str, part: Option<PartName>) -> RawSection {
    let mut section = RawSection::named(SectionName::Vcenter, key.to_owned(), None, Dialect::Environment);
    section.part = part;
    section.shown = variable.to_owned();
    section
}

/// Returns true if a variable of this name may define a vCenter or add a setting to one vCenter.
fn is_read(name: &str) -> bool {
    let is_end = |rest: &str| SectionName::Vcenter.variables().any(|(end, _)| rest.ends_with(end));
    name.starts_with(DEFINING_PREFIX) || name.strip_prefix(VCENTER_PREFIX).is_some_and(is_end)
}

fn parse_value(key: &str, text: &str) -> Result<RawValue, &'static str> {
    match key {
        "port" => text.trim().parse().map(RawValue::Number).map_err(|_| "expected a port from 1 to 65535"),
        "insecure-flag" => parse_bool(text).map(RawValue::Flag).ok_or("expected true or false"),
        "soap-roundtrip-count" => Ok(RawValue::Unset),
        _ => Ok(RawValue::Text(Zeroizing::new(text.to_owned()))),
    }
}

/// The names of all variables, with `<id>` for the operator's choice.
#[cfg(test)]
pub(super) fn variables() -> Vec<String> {
    let of_sections =
        [SectionName::Labels, SectionName::Nodes, SectionName::Nsxt].into_iter().flat_map(SectionName::variables);
    let fixed = SHARED.into_iter().chain(DEFAULTS).chain(of_sections).map(|(name, _)| name.to_owned());
    let chosen = SectionName::Vcenter.variables().map(|(end, _)| format!("{VCENTER_PREFIX}<id>{end}"));
    let others = ["VSPHERE_VCENTER", "VSPHERE_INSECURE", "VSPHERE_ROUNDTRIP_COUNT", "VSPHERE_VCENTER_<id>"];
    fixed.chain(chosen).chain(others.into_iter().chain(SWITCHES).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
