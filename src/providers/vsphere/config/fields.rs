//! The file as written, from either dialect: which sections and keys there are, and what stands there.

use zeroize::Zeroizing;

use super::super::addresses::equal_fold;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `[Section]` and `kebab-case = value`.
    Ini,
    /// `section:` and `camelCase: value`.
    Yaml,
    /// No file: variables, each with a name of its own.
    Environment,
}

impl Dialect {
    /// The dialect a text is evidently written in.
    ///
    /// The Go program tries YAML and then INI. Valid INI begins with a header, and no text that begins with `[` is YAML
    /// with a mapping at the top; so the first character that counts decides the same, and the mistakes that are told
    /// are those of the dialect the text is in. A first line with `=` and no `:` is INI without its header.
    pub fn of(text: &str) -> Self {
        let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        let Some(line) = first.map(|line| line.trim_start_matches('\u{feff}')) else { return Self::Ini };
        let is_variable = line.starts_with(char::is_alphanumeric) && line.contains('=') && !line.contains(':');
        let is_ini = line.starts_with('[') || is_variable;
        if is_ini { Self::Ini } else { Self::Yaml }
    }
}

/// `insecure-flag` becomes `insecureFlag`.
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

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    /// A whole number; 0 means "not set" in YAML.
    Number,
    /// A list in YAML; text with commas in INI.
    List,
}

/// A key of a section: its INI form and what it takes.
pub(super) type Key = (&'static str, Kind);

/// What one vCenter takes.
pub(super) const VCENTER_KEYS: &[Key] = &[
    ("user", Kind::Text),
    ("password", Kind::Text),
    ("server", Kind::Text),
    ("port", Kind::Number),
    ("insecure-flag", Kind::Flag),
    ("datacenters", Kind::List),
    ("soap-roundtrip-count", Kind::Number),
    ("ca-file", Kind::Text),
    ("thumbprint", Kind::Text),
    ("secret-name", Kind::Text),
    ("secret-namespace", Kind::Text),
    ("ip-family", Kind::List),
];

/// What Global takes besides the keys of a vCenter.
const GLOBAL_KEYS: &[Key] =
    &[("secrets-directory", Kind::Text), ("api-disable", Kind::Flag), ("api-binding", Kind::Text)];

const LABEL_KEYS: &[Key] = &[("zone", Kind::Text), ("region", Kind::Text)];

const NODE_KEYS: &[Key] = &[
    ("internal-network-subnet-cidr", Kind::Text),
    ("external-network-subnet-cidr", Kind::Text),
    ("internal-vm-network-name", Kind::Text),
    ("external-vm-network-name", Kind::Text),
    ("exclude-internal-network-subnet-cidr", Kind::Text),
    ("exclude-external-network-subnet-cidr", Kind::Text),
];

/// The keys of all sections.
pub(super) fn known_keys() -> impl Iterator<Item = &'static str> {
    [VCENTER_KEYS, GLOBAL_KEYS, LABEL_KEYS, NODE_KEYS].into_iter().flatten().map(|(key, _)| *key)
}

/// The most vCenters of one file; beyond that it is no configuration.
pub(super) const MAX_VCENTERS: usize = 1000;

pub(super) const TOO_MANY: &str = "expected at most 1000 vCenters";

/// The sections of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Global,
    Labels,
    Nodes,
}

impl Plain {
    pub const ALL: [Self; 3] = [Self::Global, Self::Labels, Self::Nodes];

    /// The name in INI; in YAML it is lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Global => "Global",
            Self::Labels => "Labels",
            Self::Nodes => "Nodes",
        }
    }
}

/// A section of the Go program for a part that is not here.
#[derive(Clone, Copy)]
pub(super) struct OtherSection {
    pub ini: &'static str,
    pub yaml: &'static str,
    /// What this program does not do.
    pub not_done: &'static str,
}

const NO_LOAD_BALANCERS: &str = "no load balancers are created, changed or deleted: a Service of type LoadBalancer gets no address, and one that the \
     upstream program has served keeps its finalizer when it is deleted";

pub(super) const OTHER_SECTIONS: [OtherSection; 4] = [
    OtherSection { ini: "LoadBalancer", yaml: "loadBalancer", not_done: NO_LOAD_BALANCERS },
    OtherSection { ini: "LoadBalancerClass", yaml: "loadBalancerClass", not_done: NO_LOAD_BALANCERS },
    OtherSection {
        ini: "NSXT",
        yaml: "nsxt",
        not_done: "nothing in NSX-T is managed, neither load balancers nor routes",
    },
    OtherSection { ini: "Route", yaml: "route", not_done: "no routes are created in NSX-T for the pods of new nodes" },
];

/// The section of this name, in any case, if it is one of [`OTHER_SECTIONS`].
pub(super) fn find_other_section(name: &str) -> Option<OtherSection> {
    OTHER_SECTIONS.into_iter().find(|other| equal_fold(other.ini, name))
}

/// The whole file. Deliberately without `Debug`, as all raw types: they hold passwords.
pub(super) struct RawFile {
    pub global: RawSection,
    pub labels: RawSection,
    pub nodes: RawSection,
    /// In the order of the file, the keys unique.
    pub vcenters: Vec<RawSection>,
}

impl RawFile {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            global: RawSection::plain(Plain::Global, dialect),
            labels: RawSection::plain(Plain::Labels, dialect),
            nodes: RawSection::plain(Plain::Nodes, dialect),
            vcenters: Vec::new(),
        }
    }

    pub fn plain_mut(&mut self, which: Plain) -> &mut RawSection {
        match which {
            Plain::Global => &mut self.global,
            Plain::Labels => &mut self.labels,
            Plain::Nodes => &mut self.nodes,
        }
    }
}

/// One section.
pub(super) struct RawSection {
    pub dialect: Dialect,
    /// The name of a vCenter's entry; empty for the other sections.
    pub key: String,
    /// How messages name it.
    pub shown: String,
    /// Where it begins, if it is in the file.
    pub line: Option<usize>,
    /// What is written, in order; a later one wins.
    pub fields: Vec<RawField>,
    /// The variables behind the keys, where the section is made of variables.
    pub variables: Vec<(&'static str, String)>,
    keys: [&'static [Key]; 2],
}

/// One key with its value.
pub(super) struct RawField {
    pub name: &'static str,
    pub line: Option<usize>,
    pub value: RawValue,
}

/// What is written at a key.
pub(super) enum RawValue {
    /// Nothing (YAML null): as if the key were not there.
    Unset,
    Text(Zeroizing<String>),
    Flag(bool),
    Number(u64),
    List(Vec<Zeroizing<String>>),
    /// Something that is reported already.
    Mistake,
}

impl RawSection {
    pub fn plain(which: Plain, dialect: Dialect) -> Self {
        let keys = match which {
            Plain::Global => [VCENTER_KEYS, GLOBAL_KEYS],
            Plain::Labels => [LABEL_KEYS, &[]],
            Plain::Nodes => [NODE_KEYS, &[]],
        };
        let shown = match dialect {
            Dialect::Ini => format!("[{}]", which.name()),
            Dialect::Yaml | Dialect::Environment => which.name().to_ascii_lowercase(),
        };
        Self { dialect, key: String::new(), shown, line: None, fields: Vec::new(), variables: Vec::new(), keys }
    }

    pub fn vcenter(key: String, line: Option<usize>, dialect: Dialect) -> Self {
        // A name that was written as a URL may hold user and password.
        let name = key.rsplit_once('@').map_or(key.clone(), |(_, host)| format!("…@{host}"));
        let shown = match dialect {
            Dialect::Ini => format!("[VirtualCenter {name:?}]"),
            Dialect::Yaml | Dialect::Environment => format!("vcenter.{name}"),
        };
        let keys = [VCENTER_KEYS, &[]];
        Self { dialect, key, shown, line, fields: Vec::new(), variables: Vec::new(), keys }
    }

    /// How messages name a key, whose INI form is `kebab`. The server of a vCenter that a variable defines may be that
    /// variable's value.
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

    /// Whether the key of the entry stands for its server where none is written.
    pub fn names_its_server(&self) -> bool {
        self.dialect != Dialect::Yaml
    }

    /// The keys that this section takes, in their INI form.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.into_iter().flatten().map(|(kebab, _)| *kebab)
    }

    /// The key that is written so in this dialect: without case in INI, with case in YAML.
    pub fn find_key(&self, written: &str) -> Option<Key> {
        self.keys.iter().copied().flatten().copied().find(|(kebab, _)| match self.dialect {
            Dialect::Ini => equal_fold(kebab, written),
            Dialect::Yaml => camel(kebab) == written,
            Dialect::Environment => false,
        })
    }

    /// What is written at a key; the last one.
    fn value(&self, name: &str) -> Option<&RawValue> {
        self.fields.iter().rev().find(|field| field.name == name).map(|field| &field.value)
    }

    /// The line of a key, if it is written.
    pub fn line_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().rev().find(|field| field.name == name).and_then(|field| field.line)
    }

    /// Text that is not empty.
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

    /// The items of a list or of text with commas, trimmed; empty ones are dropped. Nothing where nothing is written.
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

    /// Whether something is written that is reported already.
    pub fn is_mistake(&self, name: &str) -> bool {
        matches!(self.value(name), Some(RawValue::Mistake))
    }
}
