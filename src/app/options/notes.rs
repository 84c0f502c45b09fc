//! Pure: what is said about flags that are only accepted: the deprecated ones, and those that change nothing here.

/// Flags that will go, with the hint of the Go program. They are not in `--help`.
pub const DEPRECATED: &[(&str, &str)] = &[
    (
        "allow-untagged-cloud",
        "This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud instances.",
    ),
    ("node-sync-period", "This flag is currently no-op and will be deleted."),
];

const NO_NODE_NETWORKS: &str = "no controller here gives networks to nodes";
const NO_ROUTES: &str = "the route controller is not built yet";
const NO_SERVICES: &str = "the service controller is not built yet";
const NO_BUFFER: &str = "every line is written at once";
const NO_WEBHOOKS: &str = "there are no webhooks here";
const NO_PROXIES: &str = "no API server aggregates the secure port, which ignores identity headers of a proxy";
const NO_PARAVIRTUAL: &str = "the provider vsphere-paravirtual is not built yet";

/// Flags that change nothing here, with the reason.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("allocate-node-cidrs", NO_NODE_NETWORKS),
    ("allow-untagged-cloud", "this cloud has a cluster ID"),
    ("cidr-allocator-type", NO_NODE_NETWORKS),
    ("cluster-cidr", NO_ROUTES),
    ("cluster-ip-family", NO_PARAVIRTUAL),
    ("cluster-name", "only load balancers and routes bear it, and their controllers are not built yet"),
    (
        "concurrent-node-status-updates",
        "the workers of --concurrent-node-syncs look at all nodes, spread over the period",
    ),
    ("concurrent-service-syncs", NO_SERVICES),
    ("configure-cloud-routes", NO_ROUTES),
    ("contention-profiling", "there are no profiles of Go's runtime here"),
    ("enable-service-annotation-propagation", NO_PARAVIRTUAL),
    ("enable-vpc-mode", NO_PARAVIRTUAL),
    ("external-cloud-volume-plugin", "volumes are the work of the CSI driver"),
    ("is-legacy-paravirtual", NO_PARAVIRTUAL),
    ("kube-api-content-type", "requests to the API server are JSON"),
    ("log-flush-frequency", NO_BUFFER),
    ("log-json-info-buffer-size", NO_BUFFER),
    ("log-text-info-buffer-size", NO_BUFFER),
    (
        "min-resync-period",
        "caches follow watches, and every node is looked at again after --node-status-update-frequency",
    ),
    ("node-sync-period", "it has none in the Go program either"),
    ("pod-ip-pool-type", NO_PARAVIRTUAL),
    ("requestheader-allowed-names", NO_PROXIES),
    ("requestheader-client-ca-file", NO_PROXIES),
    ("requestheader-extra-headers-prefix", NO_PROXIES),
    ("requestheader-group-headers", NO_PROXIES),
    ("requestheader-uid-headers", NO_PROXIES),
    ("requestheader-username-headers", NO_PROXIES),
    ("route-reconciliation-period", NO_ROUTES),
    ("vm-operator-api-version", NO_PARAVIRTUAL),
    ("webhook-bind-address", NO_WEBHOOKS),
    ("webhook-cert-dir", NO_WEBHOOKS),
    ("webhook-disable-http2-serving", NO_WEBHOOKS),
    ("webhook-secure-port", NO_WEBHOOKS),
    ("webhook-tls-cert-file", NO_WEBHOOKS),
    ("webhook-tls-cipher-suites", NO_WEBHOOKS),
    ("webhook-tls-curve-preferences", NO_WEBHOOKS),
    ("webhook-tls-min-version", NO_WEBHOOKS),
    ("webhook-tls-private-key-file", NO_WEBHOOKS),
    ("webhook-tls-sni-cert-key", NO_WEBHOOKS),
    ("webhooks", NO_WEBHOOKS),
];

/// Why the flag of this name changes nothing, if it changes nothing.
pub fn without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(flag, _)| *flag == name).map(|(_, why)| *why)
}
