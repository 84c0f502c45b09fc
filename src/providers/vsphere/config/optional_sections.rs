//! The parts of a configuration that are turned off when they are wrong, so that the nodes work: the Go program starts with
//! such a file, too.

use std::fmt;

/// A part of the configuration that is turned off when it is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OptionalSection<T> {
    /// Not in the file.
    #[default]
    Absent,
    /// In the file, and checked.
    Used(T),
    /// In the file, and wrong. Nothing that belongs to this part is changed or removed.
    Refused,
}

impl<T> OptionalSection<T> {
    /// What it says, where it is in use.
    pub fn used(&self) -> Option<&T> {
        match self {
            Self::Used(part) => Some(part),
            Self::Absent | Self::Refused => None,
        }
    }

    /// Whether it is in the file and wrong.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }
}

/// Which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartName {
    /// The connection to NSX; the two others need it.
    Nsx,
    /// The load balancers and their classes.
    LoadBalancers,
    /// The routes.
    Routes,
    /// The vCenters that environment variables define beside those of the file.
    FurtherVcenters,
}

impl PartName {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Nsx, Self::LoadBalancers, Self::Routes, Self::FurtherVcenters];

    /// The name in metrics and logs.
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
