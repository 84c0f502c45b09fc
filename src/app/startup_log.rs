//! Lines that are logged at the start: values of flags, flags without effect, and unknown environment variables.

use super::options::Options;
use super::settings::{FeatureGates, Settings};
use crate::controllers::node_lifecycle::DeletionMode;

/// Lowest verbosity at which every flag is logged with its value, as in the Go program.
const VALUES_FROM: u32 = 1;

/// Logs the values of flags, the flags without effect, and the unknown environment variables.
pub fn log_settings(settings: &Settings) {
    let options = &settings.options;
    if settings.logging.verbosity >= VALUES_FROM {
        for line in values(options) {
            tracing::info!("{line}");
        }
    }
    for line in ineffective_flags(options, settings).iter().chain(&options.unknown_variables) {
        tracing::warn!("{line}");
    }
}

/// Describes whether Nodes without a VM are deleted.
pub fn deletion_mode(deletion: &DeletionMode) -> String {
    match deletion {
        DeletionMode::Enforce => {
            "node deletion: enforce (a Node is deleted when its VM is confirmed deleted)".to_owned()
        }
        DeletionMode::DryRun => "node deletion: dry-run (deletions are only reported)".to_owned(),
        DeletionMode::Off { reason: because } => format!("node deletion: off ({because})"),
    }
}

fn values(options: &Options) -> Vec<String> {
    options.values.iter().map(|value| format!("FLAG: --{}={:?}", value.flag.name, value.printed())).collect()
}

/// Returns a line for each changed flag or feature gate that has no effect in this program.
fn ineffective_flags(options: &Options, settings: &Settings) -> Vec<String> {
    let flags = options.without_effect();
    let flags = flags.into_iter().map(|(flag, reason)| format!("{flag} is accepted and has no effect: {reason}"));
    let gates = settings.generic.gates.without_effect();
    let gates = gates.into_iter().map(|gate| {
        format!(
            "--feature-gates: {gate} is accepted and has no effect: this program has only the gates {} and {}",
            FeatureGates::WATCH_BASED_ROUTES,
            FeatureGates::LOGGING_ALPHA
        )
    });
    flags.chain(gates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    fn told(arguments: &[&str]) -> Vec<String> {
        let settings = settled(arguments).unwrap();
        ineffective_flags(&settings.options, &settings)
    }

    #[test]
    fn what_was_given_in_vain_is_told_once_and_a_default_is_not() {
        assert_eq!(told(&[]), Vec::<String>::new());
        assert_eq!(told(&["--cluster-name=kubernetes", "--min-resync-period=12h0m0s", "--v=2"]), Vec::<String>::new());
        assert_eq!(
            told(&[
                "--node-sync-period=1s",
                "--node-sync-period=2s",
                "--webhooks=*",
                "--feature-gates=WatchList=false,WatchList=true,LoggingAlphaOptions=true"
            ]),
            [
                "--node-sync-period is accepted and has no effect: it has none in the Go program either",
                "--webhooks is accepted and has no effect: there are no webhooks here",
                "--feature-gates: WatchList is accepted and has no effect: this program has only the gates \
                 CloudControllerManagerWatchBasedRoutesReconciliation and LoggingAlphaOptions",
            ]
        );
        let proxies = [
            "--requestheader-client-ca-file=/gone",
            "--requestheader-client-ca-file=/gone/too",
            "--requestheader-group-headers=x-remote-group",
            "--requestheader-uid-headers=x-remote-uid",
            "--feature-gates=RemoteRequestHeaderUID=false",
        ];
        assert_eq!(
            told(&proxies),
            [
                "--requestheader-client-ca-file is accepted and has no effect: no API server aggregates the secure \
                 port, which ignores identity headers of a proxy",
                "--requestheader-uid-headers is accepted and has no effect: no API server aggregates the secure port, \
                 which ignores identity headers of a proxy",
                "--feature-gates: RemoteRequestHeaderUID is accepted and has no effect: this program has only the gates \
                 CloudControllerManagerWatchBasedRoutesReconciliation and LoggingAlphaOptions",
            ]
        );
    }

    #[test]
    fn the_mode_of_deletion_is_told_whatever_it_is() {
        let reported = |arguments: &[&str]| deletion_mode(&settled(arguments).unwrap().node_lifecycle.deletion);
        assert_eq!(reported(&[]), "node deletion: enforce (a Node is deleted when its VM is confirmed deleted)");
        assert_eq!(reported(&["--node-deletion=dry-run"]), "node deletion: dry-run (deletions are only reported)");
        assert_eq!(reported(&["--node-deletion=off"]), "node deletion: off (--node-deletion=off)");
    }

    #[test]
    fn every_flag_is_told_with_its_value_as_the_go_program_does() {
        let settings = settled(&["--controllers=cloud-node,-service", "--leader-elect=false", "-v=2"]).unwrap();
        let lines = values(&settings.options);
        for line in [
            "FLAG: --cloud-config=\"/etc/vsphere.conf\"",
            "FLAG: --controllers=\"[cloud-node,-service]\"",
            "FLAG: --leader-elect=\"false\"",
            "FLAG: --requestheader-group-headers=\"[x-remote-group]\"",
            "FLAG: --node-sync-period=\"0s\"",
            "FLAG: --zone-labels=\"init\"",
            "FLAG: --v=\"2\"",
        ] {
            assert_eq!(lines.iter().filter(|reported| *reported == line).count(), 1, "{line} in {lines:#?}");
        }
    }
}
