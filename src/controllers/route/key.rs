//! Pure: the queue keys of the route controller. The kinds cannot collide, because Node names contain no `/`.

use std::fmt;

use ipnet::IpNet;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The listing of all routes, and the plan.
    Pass,
    Destination(IpNet),
    Condition(String),
}

/// The Go program's only queue key.
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
