//! Pure: `--feature-gates`, with the gates of the Go program (Kubernetes 1.37). Nearly all of them belong to libraries that
//! are not here; they are accepted, since what worked must go on working.

use Stage::{Alpha, Beta, Deprecated, Stable};
use std::collections::BTreeMap;

/// How far a gate has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

/// A gate, whether it is on by default, and whether it can be set otherwise.
struct Gate {
    name: &'static str,
    stage: Stage,
    is_on: bool,
    is_locked: bool,
}

const fn gate(name: &'static str, stage: Stage, is_on: bool) -> Gate {
    Gate { name, stage, is_on, is_locked: false }
}

const fn locked(name: &'static str, stage: Stage, is_on: bool) -> Gate {
    Gate { name, stage, is_on, is_locked: true }
}

/// Those of the cloud provider and controller-manager libraries, of logs, metrics and pages, and of the API server library.
const GATES: &[Gate] = &[
    gate("CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, false),
    gate("CloudControllerManagerWebhook", Alpha, false),
    gate("ControllerManagerReleaseLeaderElectionLockOnExit", Alpha, false),
    gate("ContextualLogging", Beta, true),
    gate("LoggingAlphaOptions", Alpha, false),
    gate("LoggingBetaOptions", Beta, true),
    gate("NativeHistograms", Alpha, false),
    gate("ComponentFlagz", Beta, true),
    gate("ComponentStatusz", Beta, true),
    gate("APIResponseCompression", Beta, true),
    gate("APIServerIdentity", Beta, true),
    locked("APIServerTracing", Stable, true),
    gate("APIServingWithRoutine", Alpha, false),
    locked("AggregatedDiscoveryRemoveBetaType", Deprecated, true),
    gate("AllowParsingUserUIDFromCertAuth", Beta, true),
    gate("AllowUnsafeMalformedObjectDeletion", Alpha, false),
    locked("AnonymousAuthConfigurableEndpoints", Stable, true),
    locked("BtreeWatchCache", Stable, true),
    gate("CBORServingAndStorage", Alpha, false),
    gate("ConcurrentWatchObjectDecode", Beta, false),
    locked("ConsistentListFromCache", Stable, true),
    gate("ConsistentListFromCacheSkipTimeoutFallback", Alpha, false),
    gate("ConstrainedImpersonation", Beta, true),
    gate("CoordinatedLeaderElection", Beta, false),
    locked("DeclarativeValidation", Stable, true),
    gate("DeclarativeValidationBeta", Beta, true),
    gate("DeclarativeValidationTakeover", Deprecated, false),
    gate("DetectCacheInconsistency", Beta, true),
    gate("KMSv1", Deprecated, false),
    gate("ListFromCacheSnapshot", Beta, true),
    gate("ManifestBasedAdmissionControlConfig", Alpha, false),
    gate("MutatingAdmissionPolicy", Stable, true),
    gate("OpenAPIEnums", Beta, true),
    gate("RemoteRequestHeaderUID", Beta, true),
    locked("ResilientWatchCacheInitialization", Stable, true),
    locked("RetryGenerateName", Stable, true),
    locked("SeparateCacheWatchRPC", Deprecated, false),
    gate("ShardedListAndWatch", Alpha, false),
    gate("SizeBasedListCostEstimate", Beta, true),
    gate("StorageVersionAPI", Alpha, false),
    gate("StorageVersionHash", Beta, true),
    locked("StreamingCollectionEncodingToJSON", Stable, true),
    locked("StreamingCollectionEncodingToProtobuf", Stable, true),
    gate("StructuredAuthenticationConfigurationEgressSelector", Beta, true),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true),
    gate("TokenRequestServiceAccountUIDValidation", Beta, true),
    gate("UnauthenticatedHTTP2DOSMitigation", Beta, true),
    gate("UnknownVersionInteroperabilityProxy", Beta, true),
    gate("WatchCacheInitializationPostStartHook", Beta, true),
    gate("WatchList", Beta, true),
];

/// All alpha, or all beta gates that are not named themselves.
const GROUPS: &[(&str, Stage)] = &[("AllAlpha", Alpha), ("AllBeta", Beta)];

/// The flags of the log that [`FeatureGates::LOGGING_ALPHA`] unlocks.
pub const LOCKED_LOG_FLAGS: &[&str] = &[
    "--log-json-info-buffer-size",
    "--log-json-split-stream",
    "--log-text-info-buffer-size",
    "--log-text-split-stream",
];

/// Which gates are set, as typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// Unlocks flags of the log.
    pub const LOGGING_ALPHA: &'static str = "LoggingAlphaOptions";

    /// Unlocks `--requestheader-uid-headers`.
    pub const REMOTE_UID: &'static str = "RemoteRequestHeaderUID";

    /// Reads `Name=true` and the like; the last mention of a name counts.
    ///
    /// # Errors
    /// Every item that is wrong, with the reason.
    pub fn parse(items: &[String]) -> Result<Self, Vec<(String, String)>> {
        let (mut gates, mut wrong) = (Self::default(), Vec::new());
        for item in items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()) {
            match pair(item) {
                Ok((name, is_on)) => drop(gates.set.insert(name.to_owned(), is_on)),
                Err(why) => wrong.push((item.to_owned(), why)),
            }
        }
        if wrong.is_empty() { Ok(gates) } else { Err(wrong) }
    }

    /// Whether the gate of this name is on; one that does not exist is off.
    pub fn is_on(&self, name: &str) -> bool {
        let Some(gate) = find(name) else { return false };
        let group = || {
            let (group, _) = GROUPS.iter().find(|(_, stage)| *stage == gate.stage)?;
            self.set.get(*group).copied()
        };
        self.set.get(name).copied().or_else(group).unwrap_or(gate.is_on)
    }

    /// The gates that are set to something else than their default although they change nothing here.
    pub fn without_effect(&self) -> Vec<&str> {
        let differs = |(name, is_on): &(&String, &bool)| find(name).is_some_and(|gate| gate.is_on != **is_on);
        let set = self.set.iter().filter(differs).map(|(name, _)| name.as_str());
        set.filter(|name| ![Self::LOGGING_ALPHA, Self::REMOTE_UID].contains(name)).collect()
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// One item, with the Go program's reasons.
fn pair(item: &str) -> Result<(&str, bool), String> {
    let (name, value) = item.split_once('=').ok_or_else(|| format!("missing bool value for {item}"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_on =
        super::boolean(value).ok_or_else(|| format!("invalid value of {name}={value}: expected true or false"))?;
    if GROUPS.iter().any(|(group, _)| *group == name) {
        return Ok((name, is_on));
    }
    match find(name) {
        None => Err(format!("unrecognized feature gate: {name}")),
        Some(gate) if gate.is_locked && gate.is_on != is_on => {
            Err(format!("cannot set feature gate {name} to {is_on}, feature is locked to {}", gate.is_on))
        }
        Some(_) => Ok((name, is_on)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FeatureGates, Vec<(String, String)>> {
        FeatureGates::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn gates_have_their_defaults_until_they_or_their_stage_are_set() {
        let cases = [
            ("", "LoggingAlphaOptions", false),
            ("", "ContextualLogging", true),
            ("LoggingAlphaOptions=true", "LoggingAlphaOptions", true),
            (" LoggingAlphaOptions = T ,", "LoggingAlphaOptions", true),
            ("LoggingAlphaOptions=true,LoggingAlphaOptions=false", "LoggingAlphaOptions", false),
            ("AllAlpha=true", "LoggingAlphaOptions", true),
            ("AllAlpha=true,LoggingAlphaOptions=0", "LoggingAlphaOptions", false),
            ("LoggingAlphaOptions=0,AllAlpha=true", "LoggingAlphaOptions", false),
            ("AllAlpha=true", "ContextualLogging", true),
            ("AllBeta=false", "ContextualLogging", false),
            ("AllBeta=false", "BtreeWatchCache", true),
            ("BtreeWatchCache=true", "BtreeWatchCache", true),
            ("", "NoSuchGate", false),
        ];
        for (typed, name, expected) in cases {
            assert_eq!(parse(typed).unwrap().is_on(name), expected, "{typed}: {name}");
        }
    }

    #[test]
    fn every_wrong_item_is_told() {
        let cases = [
            ("NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
            ("WatchList", "missing bool value for WatchList"),
            ("WatchList=on", "invalid value of WatchList=on: expected true or false"),
            ("BtreeWatchCache=false", "cannot set feature gate BtreeWatchCache to false, feature is locked to true"),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse(typed).unwrap_err(), [(typed.to_owned(), expected.to_owned())], "{typed}");
        }
        assert_eq!(parse("A=true,WatchList=true,B=true").unwrap_err().len(), 2);
    }

    #[test]
    fn what_changes_nothing_here_is_known() {
        assert!(parse("WatchList=true,LoggingAlphaOptions=true,AllAlpha=true").unwrap().without_effect().is_empty());
        let gates = parse("WatchList=false,CloudControllerManagerWebhook=true").unwrap();
        assert_eq!(gates.without_effect(), ["CloudControllerManagerWebhook", "WatchList"]);
    }

    #[test]
    fn every_gate_is_there_once() {
        let mut names: Vec<_> = GATES.iter().map(|gate| gate.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GATES.len());
        for name in ["CloudControllerManagerWatchBasedRoutesReconciliation", "LoggingBetaOptions", "ComponentStatusz"] {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
