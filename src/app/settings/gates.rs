//! Pure: `--feature-gates`, with the gates of the Go program from 1.31 to 1.37. Nearly all gates belong to libraries
//! that this program lacks. These gates are accepted so that existing manifests keep working.
//!
//! Sources: the files `kube_features.go` of `k8s.io/apiserver` (pkg/features), `component-base` (logs/api/v1,
//! metrics/features, zpages/features), `controller-manager` and `cloud-provider`, each at the first and the last patch
//! release of 0.31 to 0.37.

use crate::base::go_flags::parse_bool;
use GateStage::{Alpha, Beta, Deprecated, Stable};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateStage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

struct Gate {
    name: &'static str,
    stage: GateStage,
    is_on: bool,
}

const fn gate(name: &'static str, stage: GateStage, is_on: bool) -> Gate {
    Gate { name, stage, is_on }
}

/// Gates of the newest releases. Each gate can be set to `true` and `false`, since earlier releases do not lock some
/// gates that the newest release locks.
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
    gate("APIServerTracing", Stable, true),
    gate("APIServingWithRoutine", Alpha, false),
    gate("AggregatedDiscoveryRemoveBetaType", Deprecated, true),
    gate("AllowParsingUserUIDFromCertAuth", Beta, true),
    gate("AllowUnsafeMalformedObjectDeletion", Alpha, false),
    gate("AnonymousAuthConfigurableEndpoints", Stable, true),
    gate("AuthorizeWithSelectors", Stable, true),
    gate("BtreeWatchCache", Stable, true),
    gate("CBORServingAndStorage", Alpha, false),
    gate("ConcurrentWatchObjectDecode", Beta, false),
    gate("ConsistentListFromCache", Stable, true),
    gate("ConsistentListFromCacheSkipTimeoutFallback", Alpha, false),
    gate("ConstrainedImpersonation", Beta, true),
    gate("CoordinatedLeaderElection", Beta, false),
    gate("DeclarativeValidation", Stable, true),
    gate("DeclarativeValidationBeta", Beta, true),
    gate("DeclarativeValidationTakeover", Deprecated, false),
    gate("DetectCacheInconsistency", Beta, true),
    gate("KMSv1", Deprecated, false),
    gate("ListFromCacheSnapshot", Beta, true),
    gate("ManifestBasedAdmissionControlConfig", Alpha, false),
    gate("MutatingAdmissionPolicy", Stable, true),
    gate("OpenAPIEnums", Beta, true),
    gate("RemoteRequestHeaderUID", Beta, true),
    gate("ResilientWatchCacheInitialization", Stable, true),
    gate("RetryGenerateName", Stable, true),
    gate("SeparateCacheWatchRPC", Deprecated, false),
    gate("ShardedListAndWatch", Alpha, false),
    gate("SizeBasedListCostEstimate", Beta, true),
    gate("StorageVersionAPI", Alpha, false),
    gate("StorageVersionHash", Beta, true),
    gate("StreamingCollectionEncodingToJSON", Stable, true),
    gate("StreamingCollectionEncodingToProtobuf", Stable, true),
    gate("StructuredAuthenticationConfiguration", Stable, true),
    gate("StructuredAuthenticationConfigurationEgressSelector", Beta, true),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true),
    gate("TokenRequestServiceAccountUIDValidation", Beta, true),
    gate("UnauthenticatedHTTP2DOSMitigation", Beta, true),
    gate("UnknownVersionInteroperabilityProxy", Beta, true),
    gate("WatchCacheInitializationPostStartHook", Beta, true),
    gate("WatchList", Beta, true),
    gate("APIServerWebhookAuthenticationToken", Alpha, false),
    gate("EtcdRangeStream", Beta, true),
    gate("ExcludeAdmissionWebhookVirtualResources", Beta, true),
    gate("WatchListCompression", Beta, true),
    gate("WebhookRoundTripLoadBalancing", Beta, true),
];

/// Gates that only releases before 1.36 have, and that can be set in at least one of these releases.
const REMOVED_GATES: &[&str] = &[
    "ComponentSLIs",
    "InPlacePodVerticalScaling",
    "StrictCostEnforcementForVAP",
    "StrictCostEnforcementForWebhooks",
    "StructuredAuthorizationConfiguration",
    "WatchFromStorageWithoutResourceVersion",
];

/// Gates that every release from 1.31 on either lacks or locks to true.
const LOCKED_GATES: &[&str] = &[
    "APIListChunking",
    "AdmissionWebhookMatchConditions",
    "AggregatedDiscoveryEndpoint",
    "CloudDualStackNodeIPs",
    "EfficientWatchResumption",
    "KMSv2",
    "KMSv2KDF",
    "RemainingItemCount",
    "ServerSideApply",
    "ServerSideFieldValidation",
    "StableLoadBalancerNodeSet",
    "ValidatingAdmissionPolicy",
    "WatchBookmark",
    "ZeroLimitedNominalConcurrencyShares",
];

/// Names that set all alpha or all beta gates, except gates that `--feature-gates` sets by their own names.
const GROUPS: &[(&str, GateStage)] = &[("AllAlpha", Alpha), ("AllBeta", Beta)];

/// The flags of the log that [`FeatureGates::LOGGING_ALPHA`] unlocks.
pub const LOCKED_LOG_FLAGS: &[&str] =
    &["log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream"];

/// The gates in `--feature-gates`, with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// The gate that unlocks flags of the log.
    pub const LOGGING_ALPHA: &'static str = "LoggingAlphaOptions";

    /// The gate that selects the trigger for the reconciliation of routes: watch events, or only a fixed period.
    pub const WATCH_BASED_ROUTES: &'static str = "CloudControllerManagerWatchBasedRoutesReconciliation";

    /// Parses items such as `Name=true`; the last mention of a name takes precedence.
    ///
    /// # Errors
    /// Every invalid item, with the reason.
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

    /// Returns true if the gate is on. A gate outside of `GATES` is off.
    pub fn is_on(&self, name: &str) -> bool {
        let Some(gate) = find(name) else { return false };
        let group = || {
            let (group, _) = GROUPS.iter().find(|(_, stage)| *stage == gate.stage)?;
            self.set.get(*group).copied()
        };
        self.set.get(name).copied().or_else(group).unwrap_or(gate.is_on)
    }

    /// Returns the value of this gate in `--feature-gates`; `None` if the flag sets at most the group of the gate, such
    /// as `AllAlpha`.
    pub fn named(&self, name: &str) -> Option<bool> {
        self.set.get(name).copied()
    }

    /// Returns the gates without effect here that differ from their default or belong to an earlier release.
    pub fn without_effect(&self) -> Vec<&str> {
        let differs = |(name, is_on): &(&String, &bool)| match find(name) {
            Some(gate) => gate.is_on != **is_on,
            None => is_earlier(name),
        };
        let set = self.set.iter().filter(differs).map(|(name, _)| name.as_str());
        set.filter(|name| ![Self::LOGGING_ALPHA, Self::WATCH_BASED_ROUTES].contains(name)).collect()
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

fn is_earlier(name: &str) -> bool {
    REMOVED_GATES.contains(&name) || LOCKED_GATES.contains(&name)
}

/// Parses one item, with the Go program's error texts.
fn pair(item: &str) -> Result<(&str, bool), String> {
    let (name, value) = item.split_once('=').ok_or_else(|| format!("missing bool value for {item}"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_on = parse_bool(value).ok_or_else(|| format!("invalid value of {name}={value}: expected true or false"))?;
    if GROUPS.iter().any(|(group, _)| *group == name) {
        return Ok((name, is_on));
    }
    if LOCKED_GATES.contains(&name) && !is_on {
        return Err(format!("cannot set feature gate {name} to false, feature is locked to true"));
    }
    if find(name).is_none() && !is_earlier(name) {
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
            ("WatchBookmark=false", "cannot set feature gate WatchBookmark to false, feature is locked to true"),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse(typed).unwrap_err(), [(typed.to_owned(), expected.to_owned())], "{typed}");
        }
        assert_eq!(parse("A=true,WatchList=true,B=true").unwrap_err().len(), 2);
    }

    #[test]
    fn what_changes_nothing_here_is_known() {
        let works = "WatchList=true,LoggingAlphaOptions=true,AllAlpha=true";
        let routes = "CloudControllerManagerWatchBasedRoutesReconciliation=true";
        for gates in [works, routes] {
            assert!(parse(gates).unwrap().without_effect().is_empty(), "{gates}");
        }
        let gates = parse("WatchList=false,CloudControllerManagerWebhook=true").unwrap();
        assert_eq!(gates.without_effect(), ["CloudControllerManagerWebhook", "WatchList"]);
    }

    #[test]
    fn what_a_release_of_the_go_program_accepts_is_accepted_with_a_line() {
        let cases = [
            ("CloudDualStackNodeIPs=true", "CloudDualStackNodeIPs", "1.31 alone has it"),
            ("WatchBookmark=true", "WatchBookmark", "1.31 and 1.32 have it"),
            ("InPlacePodVerticalScaling=true", "InPlacePodVerticalScaling", "alpha in 1.31"),
            ("StrictCostEnforcementForVAP=false", "StrictCostEnforcementForVAP", "beta in 1.31, locked later"),
            ("BtreeWatchCache=false", "BtreeWatchCache", "beta in 1.32, locked later"),
            ("WatchListCompression=false", "WatchListCompression", "1.37 has it"),
        ];
        for (typed, name, case) in cases {
            let gates = parse(typed).unwrap_or_else(|wrong| panic!("{case}: {wrong:?}"));
            assert_eq!(gates.without_effect(), [name], "{case}");
        }
    }

    #[test]
    fn every_gate_is_there_once() {
        let all = GATES.iter().map(|gate| gate.name).chain(REMOVED_GATES.iter().chain(LOCKED_GATES).copied());
        let names: Vec<_> = all.collect();
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len());
        for name in ["CloudControllerManagerWatchBasedRoutesReconciliation", "LoggingBetaOptions", "ComponentStatusz"] {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
