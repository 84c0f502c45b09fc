//! Pure: `--feature-gates`. Any well-formed gate is accepted, so that the manifests of every release of the Go program
//! keep working: nearly all gates belong to libraries that this program lacks.

use crate::base::go_flags::parse_bool;
use std::collections::BTreeMap;

/// The gates in `--feature-gates`, with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// The gate that unlocks some flags of the log. It is in alpha, hence off by default.
    pub const LOGGING_ALPHA: &'static str = "LoggingAlphaOptions";

    /// The gate that selects the trigger for the reconciliation of routes: watch events, or only a fixed period.
    pub const WATCH_BASED_ROUTES: &'static str = "CloudControllerManagerWatchBasedRoutesReconciliation";

    /// The name that sets all gates in alpha, except gates that the flag sets by their own names.
    const ALL_ALPHA: &'static str = "AllAlpha";

    /// Parses items such as `Name=true`; the last mention of a name takes precedence.
    ///
    /// # Errors
    /// Every malformed item, with the reason.
    pub fn parse(items: &[String]) -> Result<Self, Vec<(String, String)>> {
        let (mut gates, mut wrong) = (Self::default(), Vec::new());
        for item in items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()) {
            match pair(item) {
                Ok((name, is_on)) => drop(gates.set.insert(name.to_owned(), is_on)),
                Err(reason) => wrong.push((item.to_owned(), reason)),
            }
        }
        if wrong.is_empty() { Ok(gates) } else { Err(wrong) }
    }

    /// Returns true if [`Self::LOGGING_ALPHA`] is on, by its own name or with all gates in alpha.
    pub fn is_logging_alpha_on(&self) -> bool {
        self.named(Self::LOGGING_ALPHA).or_else(|| self.named(Self::ALL_ALPHA)).unwrap_or_default()
    }

    /// Returns the value of this gate in `--feature-gates`; `None` if the flag sets at most the group of the gate, such
    /// as `AllAlpha`.
    pub fn named(&self, name: &str) -> Option<bool> {
        self.set.get(name).copied()
    }

    /// Returns the gates that this program does not have, sorted by name.
    pub fn without_effect(&self) -> Vec<&str> {
        let known = [Self::ALL_ALPHA, Self::LOGGING_ALPHA, Self::WATCH_BASED_ROUTES];
        self.set.keys().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }
}

/// Parses one item, with the Go program's error texts.
fn pair(item: &str) -> Result<(&str, bool), String> {
    let (name, value) = item.split_once('=').ok_or_else(|| format!("missing bool value for {item}"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_on = parse_bool(value).ok_or_else(|| format!("invalid value of {name}={value}: expected true or false"))?;
    if name.is_empty() || !name.chars().all(|char| char.is_ascii_alphanumeric()) {
        return Err(format!("unrecognized feature gate: {name}"));
    }
    Ok((name, is_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FeatureGates, Vec<(String, String)>> {
        FeatureGates::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_gate_of_the_log_is_off_until_it_or_its_stage_is_set() {
        let cases = [
            ("", false),
            ("LoggingAlphaOptions=true", true),
            (" LoggingAlphaOptions = T ,", true),
            ("LoggingAlphaOptions=true,LoggingAlphaOptions=false", false),
            ("AllAlpha=true", true),
            ("AllAlpha=true,LoggingAlphaOptions=0", false),
            ("LoggingAlphaOptions=0,AllAlpha=true", false),
            ("AllBeta=true,ContextualLogging=true,NoSuchGate=true", false),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse(typed).unwrap().is_logging_alpha_on(), expected, "{typed}");
        }
    }

    #[test]
    fn every_malformed_item_is_told() {
        let cases = [
            ("WatchList", "missing bool value for WatchList"),
            ("WatchList=on", "invalid value of WatchList=on: expected true or false"),
            ("WatchList=", "invalid value of WatchList=: expected true or false"),
            ("=true", "unrecognized feature gate: "),
            ("Watch List=true", "unrecognized feature gate: Watch List"),
            ("Watch\nList=true", "unrecognized feature gate: Watch\nList"),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse(typed).unwrap_err(), [(typed.to_owned(), expected.to_owned())], "{typed}");
        }
        assert_eq!(parse("A=maybe,WatchList=true,B").unwrap_err().len(), 2);
    }

    #[test]
    fn a_well_formed_gate_is_accepted_and_told_once_unless_it_has_an_effect() {
        let routes = "CloudControllerManagerWatchBasedRoutesReconciliation=true";
        for gates in ["", "LoggingAlphaOptions=true,AllAlpha=true", routes] {
            assert!(parse(gates).unwrap().without_effect().is_empty(), "{gates}");
        }
        let gates = parse("WatchList=true,NoSuchGate=false,WatchBookmark=false,NoSuchGate=true,AllBeta=true").unwrap();
        assert_eq!(gates.without_effect(), ["AllBeta", "NoSuchGate", "WatchBookmark", "WatchList"]);
    }
}
