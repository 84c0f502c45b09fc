//! The file as written, in either dialect: its sections and keys with their values.

use zeroize::Zeroizing;

use super::optional_sections::PartName;
use crate::providers::vsphere::config::address_rules::equal_fold;
pub(super) use crate::providers::vsphere::vcenter::spelling::Dialect;

/// Returns the dialect of a text.
///
/// The Go program tries YAML and then INI. Valid INI begins with a section header, and no text that begins with `[` is
/// a YAML mapping. So the first significant character leads to the same result, and errors refer to the dialect in use.
/// A first line with `=` and without `:` is INI without a section header.
pub fn dialect_of(text: &str) -> Dialect {
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let Some(line) = first.map(|line| line.trim_start_matches('\u{feff}')) else { return Dialect::Ini };
    let is_variable = line.starts_with(char::is_alphanumeric) && line.contains('=') && !line.contains(':');
    let is_ini = line.starts_with('[') || is_variable;
    if is_ini { Dialect::Ini } else { Dialect::Yaml }
}

/// Converts `insecure-flag` to `insecureFlag`.
fn camel(kebab: &str) -> String {
    let mut parts = kebab.split('-');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut chars = part.chars();
        name.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        name.extend(chars);
    }
    name
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    Flag,
    /// An integer; 0 means "not set" in YAML.
    Number,
    /// A list in YAML; comma-separated text in INI.
    List,
    /// A mapping of texts in YAML; a JSON object in INI.
    Map,
}

/// A key of a section: its INI form, its type, and the environment variable that sets it, if any. The variable of a
/// vCenter is the part after `VCENTER_<id>`.
pub(super) type KeySpec = (&'static str, ValueKind, Option<&'static str>);

const VCENTER_KEYS: &[KeySpec] = &[
    ("secret-namespace", ValueKind::Text, Some("_SECRET_NAMESPACE")),
    ("secret-name", ValueKind::Text, Some("_SECRET_NAME")),
    ("user", ValueKind::Text, Some("_USERNAME")),
    ("password", ValueKind::Text, Some("_PASSWORD")),
    ("server", ValueKind::Text, Some("_SERVER")),
    ("port", ValueKind::Number, Some("_PORT")),
    ("datacenters", ValueKind::List, Some("_DATACENTERS")),
    ("ca-file", ValueKind::Text, Some("_CAFILE")),
    ("thumbprint", ValueKind::Text, Some("_THUMBPRINT")),
    ("insecure-flag", ValueKind::Flag, Some("_INSECURE")),
    // Has no effect.
    ("soap-roundtrip-count", ValueKind::Number, Some("_ROUNDTRIP")),
    ("ip-family", ValueKind::List, Some("_IP_FAMILY")),
];

/// Keys of Global in addition to those of a vCenter.
const GLOBAL_KEYS: &[KeySpec] = &[
    ("secrets-directory", ValueKind::Text, None),
    ("api-disable", ValueKind::Flag, None),
    ("api-binding", ValueKind::Text, None),
];

const LABEL_KEYS: &[KeySpec] =
    &[("region", ValueKind::Text, Some("VSPHERE_LABEL_REGION")), ("zone", ValueKind::Text, Some("VSPHERE_LABEL_ZONE"))];

const NODE_KEYS: &[KeySpec] = &[
    ("internal-network-subnet-cidr", ValueKind::Text, Some("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR")),
    ("external-network-subnet-cidr", ValueKind::Text, Some("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR")),
    ("internal-vm-network-name", ValueKind::Text, Some("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME")),
    ("external-vm-network-name", ValueKind::Text, Some("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME")),
    ("exclude-internal-network-subnet-cidr", ValueKind::Text, None),
    ("exclude-external-network-subnet-cidr", ValueKind::Text, None),
];

/// The variables take precedence over the file.
const NSXT_KEYS: &[KeySpec] = &[
    ("host", ValueKind::Text, Some("NSXT_MANAGER_HOST")),
    ("user", ValueKind::Text, Some("NSXT_USERNAME")),
    ("password", ValueKind::Text, Some("NSXT_PASSWORD")),
    ("insecure-flag", ValueKind::Flag, Some("NSXT_ALLOW_UNVERIFIED_SSL")),
    ("remote-auth", ValueKind::Flag, None),
    ("vmc-access-token", ValueKind::Text, None),
    ("vmc-auth-host", ValueKind::Text, None),
    ("client-auth-cert-file", ValueKind::Text, Some("NSXT_CLIENT_AUTH_CERT_FILE")),
    ("client-auth-key-file", ValueKind::Text, Some("NSXT_CLIENT_AUTH_KEY_FILE")),
    ("ca-file", ValueKind::Text, Some("NSXT_CA_FILE")),
    ("secret-name", ValueKind::Text, Some("NSXT_SECRET_NAME")),
    ("secret-namespace", ValueKind::Text, Some("NSXT_SECRET_NAMESPACE")),
];

/// Keys of a class, and also of the section of load balancers.
const CLASS_KEYS: &[KeySpec] = &[
    ("ip-pool-name", ValueKind::Text, None),
    ("ip-pool-id", ValueKind::Text, None),
    ("tcp-app-profile-name", ValueKind::Text, None),
    ("tcp-app-profile-path", ValueKind::Text, None),
    ("udp-app-profile-name", ValueKind::Text, None),
    ("udp-app-profile-path", ValueKind::Text, None),
];

const LOAD_BALANCER_KEYS: &[KeySpec] = &[
    ("size", ValueKind::Text, None),
    ("lb-service-id", ValueKind::Text, None),
    ("tier1-gateway-path", ValueKind::Text, None),
    ("snat-disabled", ValueKind::Flag, None),
    ("tags", ValueKind::Map, None),
];

const ROUTE_KEYS: &[KeySpec] = &[("router-path", ValueKind::Text, None)];

pub(super) fn known_keys() -> impl Iterator<Item = &'static str> {
    SectionName::ALL.into_iter().flat_map(|which| which.kind().keys).flatten().map(|(key, ..)| *key)
}

/// Names and keys of a kind of section.
struct SectionKind {
    ini: &'static str,
    yaml: &'static str,
    /// The part that an error in the section turns off; `None` if the error invalidates the whole file.
    part: Option<PartName>,
    keys: [&'static [KeySpec]; 2],
}

fn kind(ini: &'static str, yaml: &'static str, part: Option<PartName>, keys: [&'static [KeySpec]; 2]) -> SectionKind {
    SectionKind { ini, yaml, part, keys }
}

/// The kinds of sections. A vCenter and a class of load balancers may have several sections, each with a name. Any
/// other section exists once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionName {
    Global,
    Labels,
    Nodes,
    Nsxt,
    LoadBalancer,
    Route,
    Vcenter,
    Class,
}

impl SectionName {
    pub const ALL: [Self; 8] = [
        Self::Global,
        Self::Labels,
        Self::Nodes,
        Self::Nsxt,
        Self::LoadBalancer,
        Self::Route,
        Self::Vcenter,
        Self::Class,
    ];

    /// Maximum number of sections of one kind per file.
    pub const MAX_SECTIONS: usize = 1000;

    fn kind(self) -> SectionKind {
        let lb = Some(PartName::LoadBalancers);
        match self {
            Self::Global => kind("Global", "global", None, [VCENTER_KEYS, GLOBAL_KEYS]),
            Self::Labels => kind("Labels", "labels", None, [LABEL_KEYS, &[]]),
            Self::Nodes => kind("Nodes", "nodes", None, [NODE_KEYS, &[]]),
            Self::Nsxt => kind("NSXT", "nsxt", Some(PartName::Nsx), [NSXT_KEYS, &[]]),
            Self::LoadBalancer => kind("LoadBalancer", "loadBalancer", lb, [LOAD_BALANCER_KEYS, CLASS_KEYS]),
            Self::Route => kind("Route", "route", Some(PartName::Routes), [ROUTE_KEYS, &[]]),
            Self::Vcenter => kind("VirtualCenter", "vcenter", None, [VCENTER_KEYS, &[]]),
            Self::Class => kind("LoadBalancerClass", "loadBalancerClass", lb, [CLASS_KEYS, &[]]),
        }
    }

    pub fn ini(self) -> &'static str {
        self.kind().ini
    }

    pub fn yaml(self) -> &'static str {
        self.kind().yaml
    }

    pub fn part(self) -> Option<PartName> {
        self.kind().part
    }

    /// Returns the environment variables, each with the key that it sets.
    pub fn variables(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.kind().keys.into_iter().flatten().filter_map(|(key, _, variable)| Some(((*variable)?, *key)))
    }

    /// Returns the name in messages, without the name of an entry.
    pub fn shown(self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Ini => format!("[{}]", self.ini()),
            Dialect::Yaml | Dialect::Environment => self.yaml().to_owned(),
        }
    }

    pub fn too_many(self) -> &'static str {
        if self == Self::Class { "expected at most 1000 classes" } else { "expected at most 1000 vCenters" }
    }
}

/// The sections of one kind.
pub(super) enum SectionsMut<'a> {
    Single(&'a mut RawSection),
    Named(&'a mut Vec<RawSection>),
}

/// The whole file. No raw type implements `Debug`, because raw types contain passwords.
pub(super) struct RawFile {
    pub global: RawSection,
    pub labels: RawSection,
    pub nodes: RawSection,
    pub nsxt: RawSection,
    pub load_balancer: RawSection,
    pub route: RawSection,
    /// The vCenters, in file order, with unique keys.
    pub vcenters: Vec<RawSection>,
    /// vCenter entries that have errors and are replaced by another entry with the same key, each as its name in
    /// messages.
    pub replaced: Vec<String>,
    /// The classes of load balancers, in file order, with unique keys.
    pub classes: Vec<RawSection>,
}

impl RawFile {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            global: RawSection::new(SectionName::Global, dialect),
            labels: RawSection::new(SectionName::Labels, dialect),
            nodes: RawSection::new(SectionName::Nodes, dialect),
            nsxt: RawSection::new(SectionName::Nsxt, dialect),
            load_balancer: RawSection::new(SectionName::LoadBalancer, dialect),
            route: RawSection::new(SectionName::Route, dialect),
            vcenters: Vec::new(),
            replaced: Vec::new(),
            classes: Vec::new(),
        }
    }

    pub fn sections_mut(&mut self, which: SectionName) -> SectionsMut<'_> {
        match which {
            SectionName::Global => SectionsMut::Single(&mut self.global),
            SectionName::Labels => SectionsMut::Single(&mut self.labels),
            SectionName::Nodes => SectionsMut::Single(&mut self.nodes),
            SectionName::Nsxt => SectionsMut::Single(&mut self.nsxt),
            SectionName::LoadBalancer => SectionsMut::Single(&mut self.load_balancer),
            SectionName::Route => SectionsMut::Single(&mut self.route),
            SectionName::Vcenter => SectionsMut::Named(&mut self.vcenters),
            SectionName::Class => SectionsMut::Named(&mut self.classes),
        }
    }

    /// Returns the section `LoadBalancer`, if it is in the file, and the classes.
    pub fn load_balancer_sections(&self) -> impl Iterator<Item = &RawSection> {
        std::iter::once(&self.load_balancer).filter(|section| section.line.is_some()).chain(&self.classes)
    }

    /// Returns all sections, including those that are not in the file.
    pub fn sections(&self) -> impl Iterator<Item = &RawSection> {
        let plain = [&self.global, &self.labels, &self.nodes, &self.nsxt, &self.load_balancer, &self.route];
        plain.into_iter().chain(&self.vcenters).chain(&self.classes)
    }
}

pub(super) struct RawSection {
    pub dialect: Dialect,
    /// The part that an error in this section turns off; `None` if the error invalidates the whole file.
    pub part: Option<PartName>,
    /// The name of the entry; empty for sections that exist once.
    pub key: String,
    /// The name in messages.
    pub shown: String,
    /// The first line, if the section is in the file.
    pub line: Option<usize>,
    /// The fields in order; a later one takes precedence.
    pub fields: Vec<RawField>,
    /// The variables that set the keys, if the section comes from variables.
    pub variables: Vec<(&'static str, String)>,
    keys: [&'static [KeySpec]; 2],
}

pub(super) struct RawField {
    pub name: &'static str,
    pub line: Option<usize>,
    pub value: RawValue,
}

pub(super) enum RawValue {
    /// YAML `null`, which counts as a missing key.
    Unset,
    Text(Zeroizing<String>),
    Flag(bool),
    Number(u64),
    List(Vec<Zeroizing<String>>),
    Map(Vec<(String, Zeroizing<String>)>),
    /// An error that was already reported.
    Mistake,
}

impl RawSection {
    pub fn new(which: SectionName, dialect: Dialect) -> Self {
        let SectionKind { part, keys, .. } = which.kind();
        let (key, shown) = (String::new(), which.shown(dialect));
        Self { dialect, part, key, shown, line: None, fields: Vec::new(), variables: Vec::new(), keys }
    }

    pub fn named(which: SectionName, key: String, line: Option<usize>, dialect: Dialect) -> Self {
        // A name written as a URL may contain user and password.
        let name = key.rsplit_once('@').map_or(key.clone(), |(_, host)| format!("…@{host}"));
        let shown = match dialect {
            Dialect::Ini if name.is_empty() => which.shown(dialect),
            Dialect::Ini => format!("[{} {name:?}]", which.ini()),
            Dialect::Yaml | Dialect::Environment => format!("{}.{name}", which.yaml()),
        };
        Self { key, shown, line, ..Self::new(which, dialect) }
    }

    /// Returns the name that messages use for a key; `kebab` is its INI form. For a vCenter that a variable defines
    /// without a key `server`, the name of `server` is that variable.
    pub fn shown_key(&self, kebab: &str) -> String {
        let is_own_name = kebab == "server" && self.text(kebab).is_none();
        match self.dialect {
            Dialect::Ini => kebab.to_owned(),
            Dialect::Yaml => camel(kebab),
            Dialect::Environment => {
                let variable = self.variables.iter().find(|(key, _)| *key == kebab && !is_own_name);
                variable.map_or(&self.shown, |(_, variable)| variable).clone()
            }
        }
    }

    /// Returns true if an entry without `server` uses its key as the server.
    pub fn names_its_server(&self) -> bool {
        self.dialect != Dialect::Yaml
    }

    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.into_iter().flatten().map(|(kebab, ..)| *kebab)
    }

    /// Finds a key by its spelling in this dialect: case-insensitive in INI, case-sensitive in YAML. Always `None` for
    /// environment variables.
    pub fn find_key(&self, written: &str) -> Option<KeySpec> {
        self.keys.iter().copied().flatten().copied().find(|(kebab, ..)| match self.dialect {
            Dialect::Ini => equal_fold(kebab, written),
            Dialect::Yaml => camel(kebab) == written,
            Dialect::Environment => false,
        })
    }

    fn value(&self, name: &str) -> Option<&RawValue> {
        self.fields.iter().rev().find(|field| field.name == name).map(|field| &field.value)
    }

    pub fn line_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().rev().find(|field| field.name == name).and_then(|field| field.line)
    }

    /// Returns the text of a key, if the text is not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(RawValue::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name) {
            Some(RawValue::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(RawValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the trimmed, non-empty items of a list or a comma-separated text; `None` if the key is missing or its
    /// value is empty.
    pub fn items(&self, name: &str) -> Option<Vec<&str>> {
        let written: Vec<&str> = match self.value(name) {
            Some(RawValue::List(items)) => items.iter().map(|item| item.as_str()).collect(),
            Some(RawValue::Text(text)) if !text.is_empty() => vec![text],
            _ => return None,
        };
        if written.is_empty() {
            return None;
        }
        let items = written.into_iter().flat_map(|text| text.split(',')).map(str::trim);
        Some(items.filter(|item| !item.is_empty()).collect())
    }

    pub fn entries(&self, name: &str) -> &[(String, Zeroizing<String>)] {
        match self.value(name) {
            Some(RawValue::Map(entries)) => entries,
            _ => &[],
        }
    }

    /// Returns true if an error in any value of the section was already reported.
    pub fn has_error(&self) -> bool {
        self.fields.iter().any(|field| matches!(field.value, RawValue::Mistake))
    }

    pub fn has_error_at(&self, name: &str) -> bool {
        matches!(self.value(name), Some(RawValue::Mistake))
    }
}
