//! The optional parts of a configuration. An invalid part is turned off, so that Nodes still work. The Go program also
//! starts with an invalid part.

use std::fmt;

/// A part of the configuration that is turned off if it is invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OptionalSection<T> {
    /// Not in the file.
    #[default]
    Absent,
    /// In the file, and valid.
    Used(T),
    /// In the file, but invalid or without the connection to NSX. Objects of this part are neither changed nor removed.
    Refused,
}

impl<T> OptionalSection<T> {
    /// Returns the configuration of the part, if the part is used.
    pub fn used(&self) -> Option<&T> {
        match self {
            Self::Used(part) => Some(part),
            Self::Absent | Self::Refused => None,
        }
    }

    /// Returns true if the part is in the file but turned off because of an error.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }
}

/// Name of an optional part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartName {
    /// The connection to NSX, which load balancers and routes need.
    Nsx,
    /// The load balancers and their classes.
    LoadBalancers,
    /// The routes.
    Routes,
    /// The vCenters that environment variables define in addition to those of the file.
    FurtherVcenters,
}

impl PartName {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Nsx, Self::LoadBalancers, Self::Routes, Self::FurtherVcenters];

    /// Returns the name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nsx => "nsx",
            Self::LoadBalancers => "load-balancers",
            Self::Routes => "routes",
            Self::FurtherVcenters => "further-vcenters",
        }
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
