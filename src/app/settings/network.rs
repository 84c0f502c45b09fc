//! The flags of load balancers and routes.

use super::{FeatureGates, SettingsCheck, flags};
use crate::app::options::Origin;
use crate::base::addresses::parse_network_sloppy;
use crate::controllers::route::{self, PodNetworks, Trigger};
use crate::controllers::service;
use ipnet::IpNet;
use std::time::Duration;

/// Interval at which all routes are listed even if no Node changes. The Go program lists all routes every 10 s.
const FULL_PASS: Duration = Duration::from_secs(300);

impl SettingsCheck<'_> {
    pub(super) fn services(&mut self) -> service::ServiceSettings {
        service::ServiceSettings {
            workers: self.workers(flags::CONCURRENT_SERVICE_SYNCS),
            cluster_name: self.options.text(flags::CLUSTER_NAME).to_owned(),
            selector: self.selector(flags::SERVICE_SELECTOR),
            has_node_selector: self.optional(flags::NODE_SELECTOR).is_some(),
        }
    }

    /// Returns the settings of routes; `None` if routes are off. Without `--cluster-cidr`, `networks` is empty.
    pub(super) fn routes(&mut self) -> Option<route::RouteSettings> {
        let given = self.options.value(flags::ROUTE_RECONCILIATION_PERIOD).origin != Origin::Default;
        let period = self.pause(flags::ROUTE_RECONCILIATION_PERIOD);
        let gates = FeatureGates::parse(self.options.list(flags::FEATURE_GATES)).unwrap_or_default();
        let trigger = match gates.named(FeatureGates::WATCH_BASED_ROUTES) {
            Some(false) => Trigger::Loop { period },
            Some(true) | None => Trigger::Watch { period: if given { period } else { FULL_PASS } },
        };
        let settings = route::RouteSettings {
            cluster_name: self.options.text(flags::CLUSTER_NAME).to_owned(),
            networks: self.cluster_cidr(),
            pod_networks: self.pod_networks(),
            trigger,
            writes_condition: self.boolean(flags::ROUTE_NETWORK_CONDITION),
        };
        self.boolean(flags::CONFIGURE_CLOUD_ROUTES).then_some(settings)
    }

    fn pod_networks(&mut self) -> PodNetworks {
        let choices = [("cluster-cidr", PodNetworks::ClusterCidr), ("any", PodNetworks::Any)];
        self.choice(flags::ROUTE_POD_NETWORKS, &choices, "cluster-cidr or any").unwrap_or_default()
    }

    /// Returns the networks of the Pods, at most one of each address family.
    fn cluster_cidr(&mut self) -> Vec<IpNet> {
        let value = self.options.text(flags::CLUSTER_CIDR);
        let parts = value.trim().split(',').filter(|cidr| !cidr.is_empty());
        // Accepts leading zeros, as the Go program does.
        let cidrs: Option<Vec<IpNet>> = parts.map(parse_network_sloppy).collect();
        let reason = match cidrs.as_deref() {
            None => "expected a CIDR such as 10.0.0.0/8, or two, one of each family",
            Some([] | [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)]) => {
                return cidrs.unwrap_or_default();
            }
            Some(_) => "expected at most two CIDRs, one of each family",
        };
        self.invalid(flags::CLUSTER_CIDR, value, reason);
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    #[test]
    fn flags_about_routes_are_taken_over() {
        let routes = |arguments: &[&str]| settled(arguments).unwrap().routes;
        let gate =
            |value: &str| format!("--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation={value}");
        let minute = "--route-reconciliation-period=1m";
        let seconds = Duration::from_secs;
        for (arguments, expected) in [
            (vec![], Trigger::Watch { period: FULL_PASS }),
            (vec![minute.to_owned()], Trigger::Watch { period: seconds(60) }),
            (vec![gate("true")], Trigger::Watch { period: FULL_PASS }),
            (vec!["--feature-gates=AllAlpha=false".to_owned()], Trigger::Watch { period: FULL_PASS }),
            (vec![gate("false")], Trigger::Loop { period: seconds(10) }),
            (vec![gate("false"), minute.to_owned()], Trigger::Loop { period: seconds(60) }),
        ] {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_eq!(routes(&arguments).unwrap().trigger, expected, "{arguments:?}");
        }
        let given = routes(&["--cluster-cidr=010.120.0.0/16,a00::/8", "--route-network-condition=false"]);
        let networks = vec!["10.120.0.0/16".parse().unwrap(), "a00::/8".parse().unwrap()];
        let given = given.map(|routes| (routes.networks, routes.pod_networks, routes.writes_condition));
        assert_eq!(given, Some((networks, PodNetworks::ClusterCidr, false)));
        assert_eq!(routes(&["--route-pod-networks=any"]).unwrap().pod_networks, PodNetworks::Any);
        let messages = settled(&["--route-pod-networks=all"]).unwrap_err().to_string();
        assert!(
            messages.contains("--route-pod-networks=all") && messages.contains("cluster-cidr or any"),
            "{messages}"
        );
        assert_eq!(routes(&["--configure-cloud-routes=false"]), None);
    }

    #[test]
    fn flags_about_services_are_taken_over() {
        let services = settled(&[]).unwrap().services;
        assert_eq!((services.workers.get(), services.cluster_name.as_str()), (8, "kubernetes"));
        assert_eq!((services.selector, services.has_node_selector), (None, false));
        let services =
            settled(&["--service-selector=a=b", "--node-selector=c", "--cluster-name=prod"]).unwrap().services;
        assert_eq!((services.selector.as_deref(), services.has_node_selector), (Some("a=b"), true));
        assert_eq!(services.cluster_name, "prod");
        for (argument, expected) in [
            ("--service-selector=a in", "expected a label selector"),
            ("--concurrent-service-syncs=0", "must be a positive number"),
        ] {
            let messages = settled(&[argument]).unwrap_err().to_string();
            assert!(messages.contains(argument) && messages.contains(expected), "{messages}");
        }
    }
}
