//! Pure: limits on the size of a parsed configuration. The limit on the length of the text is not enough: a list has
//! many items in few bytes, and each vCenter copies values of `Global`.

use secrecy::ExposeSecret;

use super::fields::{RawFile, RawSection, RawValue};
use super::problems::ProblemReport;
use super::{Credentials, VcenterConfig};
use crate::base::yaml::{MAX_TEXT, MAX_VALUES};
use crate::clients::http::Thumbprint;
use crate::providers::vsphere::login::credentials::source::SourceLocation;

/// Memory that a text or path needs in addition to its content, in bytes.
const PER_ITEM: usize = size_of::<String>();

/// Returns true if the lists are short enough together. Otherwise reports an error; the lists must not be read then.
pub(super) fn are_lists_short(raw: &RawFile, report: &mut ProblemReport) -> bool {
    let is_short = raw.sections().map(items).sum::<usize>() <= MAX_VALUES;
    if !is_short {
        report.error(None, format!("expected at most {MAX_VALUES} items in all lists together"));
    }
    is_short
}

fn items(section: &RawSection) -> usize {
    let counts = section.fields.iter().map(|field| {
        let count = |text: &str| 1 + text.matches(|c: char| is_separator(field.name, c)).count();
        match &field.value {
            RawValue::Text(text) => count(text),
            RawValue::List(items) => items.iter().map(|item| count(item)).sum(),
            RawValue::Map(entries) => entries.len(),
            RawValue::Unset | RawValue::Flag(_) | RawValue::Number(_) | RawValue::Mistake => 1,
        }
    });
    counts.sum()
}

/// Returns true if `c` separates the items of this key. Keys without a list have no separator.
fn is_separator(key: &str, c: char) -> bool {
    match key {
        "ca-file" => c == ':',
        "thumbprint" => c == ',' || c.is_whitespace(),
        "datacenters" | "ip-family" => c == ',',
        _ => c == ',' && key.ends_with("-network-subnet-cidr"),
    }
}

/// Size of the vCenters in bytes, including inherited values.
#[derive(Default)]
pub(super) struct Total(usize);

impl Total {
    /// Adds a vCenter. Beyond the limit, reports an error and returns false. Then no further vCenter may be used.
    pub(super) fn has_capacity_for(&mut self, vcenter: &VcenterConfig, report: &mut ProblemReport) -> bool {
        self.0 = self.0.saturating_add(bytes(vcenter));
        if self.0 > MAX_TEXT {
            report
                .error(None, format!("expected at most {MAX_TEXT} bytes with what each vCenter inherits from Global"));
        }
        self.0 <= MAX_TEXT
    }
}

fn bytes(vcenter: &VcenterConfig) -> usize {
    let thumbprints = vcenter.thumbprints.len() * (PER_ITEM + size_of::<Thumbprint>());
    let datacenters = vcenter.datacenters.iter().map(|text| PER_ITEM + text.len());
    let paths = vcenter.ca_files.iter().map(|path| PER_ITEM + path.as_os_str().len());
    let credentials = [Some(&vcenter.credentials), vcenter.fallback_credentials.as_ref()].into_iter().flatten();
    let stored = credentials.map(|credentials| match credentials {
        Credentials::Inline { user, password } => user.len() + password.expose_secret().len(),
        Credentials::Stored(SourceLocation::Secret { namespace, name }) => namespace.len() + name.len(),
        Credentials::Stored(SourceLocation::Directory(path)) => path.as_os_str().len(),
    });
    let texts = datacenters.chain(paths).chain(stored).sum::<usize>();
    vcenter.key.len() + vcenter.server.len() + thumbprints + texts
}
