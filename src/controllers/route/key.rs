//! Pure: what the route controller works on. The texts of the three kinds cannot be the same: names of Nodes have no `/`.

use std::fmt;

use ipnet::IpNet;

/// What a worker does. The queue has its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Lists all routes and plans.
    Pass,
    /// Makes the planned changes for one destination.
    Destination(IpNet),
    /// Writes the condition of one Node.
    Condition(String),
}

/// As the Go program calls its only key.
const PASS: &str = "routes";
const CONDITION: &str = "condition/";

impl Key {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(CONDITION) {
            _ if text == PASS => Some(Key::Pass),
            Some(node) => Some(Key::Condition(node.to_owned())),
            None => text.parse().ok().map(Key::Destination),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Pass => f.write_str(PASS),
            Key::Destination(network) => network.fmt(f),
            Key::Condition(node) => write!(f, "{CONDITION}{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_queue() {
        for text in ["routes", "10.1.0.0/24", "fd00::/64", "condition/routes", "condition/a.b"] {
            assert_eq!(Key::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Key::parse("a"), None);
    }
}
