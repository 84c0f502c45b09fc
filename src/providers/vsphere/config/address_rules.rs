//! Pure: the configured rules for Node addresses.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address in canonical form. An IPv4-mapped IPv6 address would count as IPv6.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the spelling of Kubernetes: `IPv4` or `IPv6`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Parses the spelling of Kubernetes.
    pub fn of_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == text)
    }

    /// Parses the spelling of the configuration. Ignores case and surrounding blanks.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str().eq_ignore_ascii_case(text.trim()))
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().to_ascii_lowercase())
    }
}

/// The rule for one address type (internal or external).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRule {
    /// The CIDRs to choose from, in order of preference; host bits are ignored.
    pub networks: Vec<IpNet>,
    /// The name of the port group or network to choose from if no address is in `networks`; never empty. If no
    /// interface is on a network of this name, the comma-separated parts of the name are tried in order.
    pub network_name: Option<String>,
    /// Networks from which no address is chosen.
    pub excluded: Vec<IpNet>,
}

/// The rules of the section `Nodes`, for all vCenters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// The rule for `InternalIP`.
    pub internal: AddressRule,
    /// The rule for `ExternalIP`.
    pub external: AddressRule,
}

/// Returns the comma-separated names in a text; empty if the text has no comma.
pub(in crate::providers::vsphere) fn name_parts(text: &str) -> Vec<&str> {
    let parts = text.contains(',').then(|| text.split(',').map(str::trim).filter(|part| !part.is_empty()));
    parts.into_iter().flatten().collect()
}

/// Compares two texts case-insensitively, character by character, like Go's `strings.EqualFold`: `ß` is not `SS`.
pub(in crate::providers::vsphere) fn equal_fold(one: &str, other: &str) -> bool {
    one.chars().map(fold).eq(other.chars().map(fold))
}

fn fold(c: char) -> char {
    let upper = single(c.to_uppercase()).unwrap_or(c);
    single(upper.to_lowercase()).unwrap_or(upper)
}

fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    if chars.next().is_none() { first } else { None }
}
