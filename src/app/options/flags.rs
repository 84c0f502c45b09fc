//! Declares the flags, in the order of the Go program. Settings read a flag by its constant; help, completion, `/flagz`
//! and the page of flags use the list of all flags.

use super::OURS;
use super::flag::{Flag, FlagDefinition, Kind, boolean, flag, repeated, slice, text};
use std::net::IpAddr;
use std::time::Duration;

/// Declares groups of flags: the heading of each group, the reason if all its flags have no effect, and the flags. The
/// name of a flag that nothing reads is `_`.
macro_rules! flags {
    ($($heading:expr, $reason:expr => { $($name:tt: $value:ty = $flag:expr;)* })*) => {
        $($(pub(in crate::app) const $name: Flag<$value> = Flag::new($flag);)*)*

        const GROUPS: &[(&str, Option<&str>, &[FlagDefinition])] = &[$(($heading, $reason, &[$($flag),*])),*];
    };
}

/// Returns the definitions of all flags, in the order of the Go program.
pub(super) fn all() -> impl Iterator<Item = FlagDefinition> {
    GROUPS.iter().flat_map(|&(group, reason, flags)| {
        flags.iter().map(move |flag| FlagDefinition { group, without_effect: flag.without_effect.or(reason), ..*flag })
    })
}

const NO_NODE_NETWORKS: &str = "no controller here gives networks to nodes";
const NO_BUFFER: &str = "every line is written at once";
const NO_WEBHOOKS: &str = "there are no webhooks here";
const NO_PROXIES: &str = "no API server aggregates the secure port, which ignores identity headers of a proxy";
const NO_PARAVIRTUAL: &str = "the provider vsphere-paravirtual is not built yet";

const IGNORED_HEADERS: &str = "No effect: the secure port ignores identity headers of a proxy";

flags! {
    "Debugging flags", None => {
        CONTENTION_PROFILING: bool = boolean("contention-profiling", "false").help("No effect")
            .without_effect("there are no profiles of Go's runtime here");
        PROFILING: bool = boolean("profiling", "true")
            .help("Serve /debug/flags/v in addition to the probes; there are no pprof pages");
    }

    "Leader-migration flags", None => {
        ENABLE_LEADER_MIGRATION: bool = boolean("enable-leader-migration", "false")
            .help("Share controllers with another process while they move from one to the other, by a second Lease");
        LEADER_MIGRATION_CONFIG: &str = text("leader-migration-config", "PATH", "")
            .help("Path of a LeaderMigrationConfiguration; without it the built-in one");
    }

    "Generic flags", None => {
        ALLOCATE_NODE_CIDRS: bool = boolean("allocate-node-cidrs", "false")
            .help("Whether pod CIDRs are given to nodes; no controller here does that")
            .without_effect(NO_NODE_NETWORKS);
        ALLOW_UNTAGGED_CLOUD: bool = boolean("allow-untagged-cloud", "false")
            .help("Run with a cloud that has no cluster ID").without_effect("this cloud has a cluster ID")
            .deprecated("This flag is deprecated and will be removed in a future release. A cluster-id will be \
                required on cloud instances.");
        CIDR_ALLOCATOR_TYPE: &str = text("cidr-allocator-type", "NAME", "RangeAllocator")
            .help("How pod CIDRs are chosen; no controller here does that").without_effect(NO_NODE_NETWORKS);
        CLOUD_CONFIG: &str = text("cloud-config", "PATH", "").help("Path of vsphere.conf, INI or YAML");
        CLOUD_PROVIDER: &str = text("cloud-provider", "NAME", "vsphere").help("The cloud provider");
        CLUSTER_NAME: &str = text("cluster-name", "NAME", "kubernetes")
            .help("Name of the cluster, for load balancers and routes");
        CONTROLLER_START_INTERVAL: Duration = text("controller-start-interval", "DURATION", "0s")
            .help("Delay between the starts of two controllers");
        CONTROLLERS: &[String] = slice("controllers", "NAMES", "*")
            .help("Controllers to run, comma separated: * is all that are on by default, foo turns foo on, -foo \
                   turns it off; the first entry for a name takes precedence");
        EXTERNAL_CLOUD_VOLUME_PLUGIN: &str = text("external-cloud-volume-plugin", "NAME", "")
            .help("No effect").without_effect("volumes are the work of the CSI driver");
        FEATURE_GATES: &[String] = flag("feature-gates", Kind::Items, "GATES", "")
            .help("Features to turn on or off, as Name=true,Other=false");
        KUBE_API_BURST: u32 = text("kube-api-burst", "NUMBER", "")
            .help("Burst of writes to the API server above --kube-api-qps");
        KUBE_API_CONTENT_TYPE: &str = text("kube-api-content-type", "TYPE", "application/vnd.kubernetes.protobuf")
            .help("No effect: requests are JSON").without_effect("requests to the API server are JSON");
        KUBE_API_QPS: f32 = text("kube-api-qps", "NUMBER", "")
            .help("Writes to the API server per second; if neither this flag nor --kube-api-burst is given, there is \
                   no limit");
        LEADER_ELECT: bool = boolean("leader-elect", "true")
            .help("Run the controllers only while holding the Lease; turn this off only with a single process");
        LEADER_ELECT_LEASE_DURATION: Duration = text("leader-elect-lease-duration", "DURATION", "15s")
            .help("How long other processes wait after the last renewal before one of them takes over");
        LEADER_ELECT_RENEW_DEADLINE: Duration = text("leader-elect-renew-deadline", "DURATION", "10s")
            .help("How long the leader tries to renew the Lease before it stops leading; shorter than the lease \
                   duration");
        LEADER_ELECT_RESOURCE_LOCK: &str = text("leader-elect-resource-lock", "KIND", "leases")
            .help("Kind of the lock; leases is the only one");
        LEADER_ELECT_RESOURCE_NAME: &str = text("leader-elect-resource-name", "NAME", "cloud-controller-manager")
            .help("Name of the Lease");
        LEADER_ELECT_RESOURCE_NAMESPACE: &str = text("leader-elect-resource-namespace", "NAME", "kube-system")
            .help("Namespace of the Lease");
        LEADER_ELECT_RETRY_PERIOD: Duration = text("leader-elect-retry-period", "DURATION", "2s")
            .help("Interval between attempts to acquire or renew the Lease");
        MIN_RESYNC_PERIOD: Duration = text("min-resync-period", "DURATION", "12h0m0s")
            .help("No effect: caches follow watches, and --node-status-update-frequency sets the period of full syncs")
            .without_effect("caches follow watches, and --node-status-update-frequency sets the period of full syncs");
        NODE_MONITOR_PERIOD: Duration = text("node-monitor-period", "DURATION", "5s")
            .help("How often Nodes that are not Ready are checked, in addition to watch events");
        NODE_SYNC_PERIOD: Duration = text("node-sync-period", "DURATION", "0s").help("No effect")
            .without_effect("it has none in the Go program either")
            .deprecated("This flag is currently no-op and will be deleted.");
        USE_SERVICE_ACCOUNT_CREDENTIALS: bool = boolean("use-service-account-credentials", "false")
            .help("Each controller writes with a service account of its own");
        CLUSTER_CIDR: &str = text("cluster-cidr", "CIDRS", "").help("CIDRs of the pods, at most one of each family");
        CONFIGURE_CLOUD_ROUTES: bool = boolean("configure-cloud-routes", "true")
            .help("Run the route controller if the cloud has routes");
        ROUTE_RECONCILIATION_PERIOD: Duration = text("route-reconciliation-period", "DURATION", "10s")
            .help("How often all routes are reconciled, in addition to changes of Nodes; 5m if the flag is not given");
    }

    "Cloud-node-controller flags", None => {
        CONCURRENT_NODE_STATUS_UPDATES: i32 = text("concurrent-node-status-updates", "NUMBER", "0")
            .help("Nodes whose addresses the periodic sync updates at the same time; 0 is the value of \
                   --concurrent-node-syncs")
            .without_effect("the workers of --concurrent-node-syncs sync all Nodes, spread over the period");
        CONCURRENT_NODE_SYNCS: i32 = text("concurrent-node-syncs", "NUMBER", "16")
            .help("Nodes that are synced at the same time");
        NODE_LABELS: &[String] = repeated("node-labels", "LABELS", "")
            .help("Labels that a Node gets when it is initialized, key=value,...; existing labels stay unchanged");
    }

    "Service-lb-controller flags", None => {
        CONCURRENT_SERVICE_SYNCS: i32 = text("concurrent-service-syncs", "NUMBER", "8")
            .help("Services that are synced at the same time");
    }

    "Webhook flags", Some(NO_WEBHOOKS) => {
        WEBHOOKS: &[String] = slice("webhooks", "NAMES", "")
            .help("Webhooks to run, as --controllers; there are none here");
    }

    "Webhook serving flags", Some(NO_WEBHOOKS) => {
        WEBHOOK_BIND_ADDRESS: IpAddr = text("webhook-bind-address", "IP", "0.0.0.0")
            .help("Address that the webhook port listens on");
        _: &str = text("webhook-cert-dir", "PATH", "").help("Folder of the certificate of the webhooks");
        WEBHOOK_DISABLE_HTTP2_SERVING: bool = boolean("webhook-disable-http2-serving", "false")
            .help("Serve webhooks with HTTP/1.1 only");
        WEBHOOK_SECURE_PORT: u16 = text("webhook-secure-port", "PORT", "10260")
            .help("Port of the webhooks; 0 turns it off");
        _: &str = text("webhook-tls-cert-file", "PATH", "").help("Certificate of the webhooks");
        _: &[String] = slice("webhook-tls-cipher-suites", "NAMES", "").help("Cipher suites of the webhooks");
        _: &[String] = slice("webhook-tls-curve-preferences", "NUMBERS", "")
            .help("Key exchange groups of the webhooks");
        _: &str = text("webhook-tls-min-version", "VERSION", "").help("Oldest version of TLS of the webhooks");
        _: &str = text("webhook-tls-private-key-file", "PATH", "").help("Key of the certificate of the webhooks");
        _: &[String] = repeated("webhook-tls-sni-cert-key", "PAIR", "")
            .help("Further certificates of the webhooks: certificate,key or certificate,key:name");
    }

    "Secure serving flags", None => {
        BIND_ADDRESS: IpAddr = text("bind-address", "IP", "0.0.0.0")
            .help("Address that the secure port listens on; 0.0.0.0 and :: are all");
        CERT_DIR: &str = text("cert-dir", "PATH", "")
            .help("Folder of cloud-controller-manager.crt and .key, made there if they are missing; empty keeps the \
                certificate in memory");
        DISABLE_HTTP2_SERVING: bool = boolean("disable-http2-serving", "false").help("Serve with HTTP/1.1 only");
        HTTP2_MAX_STREAMS_PER_CONNECTION: u32 = text("http2-max-streams-per-connection", "NUMBER", "0")
            .help("Requests of one HTTP/2 connection at the same time; 0 is 100");
        PERMIT_ADDRESS_SHARING: bool = boolean("permit-address-sharing", "false").help("Listen with SO_REUSEADDR");
        PERMIT_PORT_SHARING: bool = boolean("permit-port-sharing", "false").help("Listen with SO_REUSEPORT");
        SECURE_PORT: u16 = text("secure-port", "PORT", "10258")
            .help("Port of probes, metrics and the other pages, with TLS; 0 turns it off");
        TLS_CERT_FILE: &str = text("tls-cert-file", "PATH", "")
            .help("Certificate of the secure port, followed by its chain; read again when it changes");
        TLS_CIPHER_SUITES: &[String] = slice("tls-cipher-suites", "NAMES", "")
            .help("Cipher suites of the secure port, by their IANA names");
        TLS_CURVE_PREFERENCES: &[String] = slice("tls-curve-preferences", "NUMBERS", "")
            .help("Key exchange groups of the secure port, by their numbers");
        TLS_MIN_VERSION: &str = text("tls-min-version", "VERSION", "")
            .help("Oldest version of TLS of the secure port: VersionTLS12 or VersionTLS13");
        TLS_PRIVATE_KEY_FILE: &str = text("tls-private-key-file", "PATH", "").help("Key of --tls-cert-file");
        TLS_SNI_CERT_KEY: &[String] = repeated("tls-sni-cert-key", "PAIR", "")
            .help("A further certificate: certificate,key for the names it has, certificate,key:name,... for others; \
                may be repeated");
    }

    "Authentication flags", None => {
        AUTHENTICATION_KUBECONFIG: &str = text("authentication-kubeconfig", "PATH", "")
            .help("Kubeconfig for TokenReview requests; empty: in-cluster");
        AUTHENTICATION_SKIP_LOOKUP: bool = boolean("authentication-skip-lookup", "false")
            .help("Do not read the CAs of client certificates from the cluster");
        AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL: Duration =
            text("authentication-token-webhook-cache-ttl", "DURATION", "10s")
            .help("How long the result of a TokenReview is cached");
        AUTHENTICATION_TOLERATE_LOOKUP_FAILURE: bool = boolean("authentication-tolerate-lookup-failure", "false")
            .help("Start even if the CAs of client certificates cannot be read from the cluster");
        CLIENT_CA_FILE: &str = text("client-ca-file", "PATH", "")
            .help("CAs of client certificates, instead of the cluster's");
    }

    "Authentication flags", Some(NO_PROXIES) => {
        _: &[String] = repeated("requestheader-allowed-names", "NAMES", "").help(IGNORED_HEADERS);
        _: &str = text("requestheader-client-ca-file", "PATH", "").help(IGNORED_HEADERS);
        _: &[String] = repeated("requestheader-extra-headers-prefix", "PREFIXES", "x-remote-extra-")
            .help(IGNORED_HEADERS);
        _: &[String] = repeated("requestheader-group-headers", "NAMES", "x-remote-group").help(IGNORED_HEADERS);
        _: &[String] = repeated("requestheader-uid-headers", "NAMES", "").help(IGNORED_HEADERS);
        _: &[String] = repeated("requestheader-username-headers", "NAMES", "x-remote-user").help(IGNORED_HEADERS);
    }

    "Authorization flags", None => {
        AUTHORIZATION_ALWAYS_ALLOW_PATHS: &[String] =
            slice("authorization-always-allow-paths", "PATHS", "/healthz,/readyz,/livez")
            .help("Paths that need no authorization; a * at the end matches any suffix");
        AUTHORIZATION_KUBECONFIG: &str = text("authorization-kubeconfig", "PATH", "")
            .help("Kubeconfig for SubjectAccessReview requests; empty: in-cluster");
        AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL: Duration =
            text("authorization-webhook-cache-authorized-ttl", "DURATION", "10s")
            .help("How long an allowed request is cached");
        AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL: Duration =
            text("authorization-webhook-cache-unauthorized-ttl", "DURATION", "10s")
            .help("How long a denied request is cached");
    }

    "Misc flags", None => {
        KUBECONFIG: &str = text("kubeconfig", "PATH", "")
            .help("Path of a kubeconfig; without it and --master the service account of the pod is used");
        MASTER: &str = text("master", "URL", "")
            .help("Address of the API server; takes precedence over the kubeconfig");
        NODE_STATUS_UPDATE_FREQUENCY: Duration = text("node-status-update-frequency", "DURATION", "5m0s")
            .help("How often every Node is synced, in addition to watch events");
    }

    "Misc flags", Some(NO_PARAVIRTUAL) => {
        _: &str = text("cluster-ip-family", "FAMILIES", "ipv4")
            .help("Of vsphere-paravirtual: families of the cluster, ipv4, ipv6, ipv4ipv6 or ipv6ipv4");
        _: bool = boolean("enable-service-annotation-propagation", "false")
            .help("Of vsphere-paravirtual: pass annotations of Services on to the Supervisor");
        _: bool = boolean("enable-vpc-mode", "false").help("Of vsphere-paravirtual: routable pods in VPC mode");
        _: bool = boolean("is-legacy-paravirtual", "false")
            .help("Of vsphere-paravirtual: labels of VMs in the older form");
        _: &str = text("pod-ip-pool-type", "WORD", "")
            .help("Of vsphere-paravirtual: pool of addresses of the pods, Public or Private");
        _: &str = text("vm-operator-api-version", "VERSION", "v1alpha2")
            .help("Of vsphere-paravirtual: version of the API of the VM Operator");
    }

    "Global flags", None => {
        _: &str = flag("help", Kind::Help, "", "").short('h').help("Print this text and exit");
        LOG_JSON_SPLIT_STREAM: bool = boolean("log-json-split-stream", "false")
            .help("Write errors to standard error and the rest to standard output; JSON format");
        LOG_TEXT_SPLIT_STREAM: bool = boolean("log-text-split-stream", "false")
            .help("Write errors to standard error and the rest to standard output; text format");
        LOGGING_FORMAT: &str = text("logging-format", "FORMAT", "text").help("text, as klog writes it, or json");
        V: u32 = text("v", "LEVEL", "0").short('v')
            .help("Verbosity of the log: 0 has start, stop and changes, 4 adds decisions, 6 adds data");
        VERSION: &str = flag("version", Kind::Boolean, "FORM", "false")
            .help("Print the version and exit; vX.Y.Z is printed instead of it");
        VMODULE: &[String] = flag("vmodule", Kind::Items, "LEVELS", "")
            .help("Levels of single modules, pattern=LEVEL; text format only");
    }

    "Global flags", Some(NO_BUFFER) => {
        LOG_FLUSH_FREQUENCY: Duration = text("log-flush-frequency", "DURATION", "5s")
            .help("No effect: every line is written at once");
        LOG_JSON_INFO_BUFFER_SIZE: &str = text("log-json-info-buffer-size", "SIZE", "0")
            .help("No effect: every line is written at once");
        LOG_TEXT_INFO_BUFFER_SIZE: &str = text("log-text-info-buffer-size", "SIZE", "0")
            .help("No effect: every line is written at once");
    }

    OURS, None => {
        ADOPT_UNTAINTED_NODES: bool = boolean("adopt-untainted-nodes", "false").variable("CCM_ADOPT_UNTAINTED_NODES")
            .help("Also initialize Nodes that have no provider ID and no taint, by their systemUUID only");
        ALLOW_NAME_MATCH: bool = boolean("allow-name-match", "false").variable("CCM_ALLOW_NAME_MATCH")
            .help("Accept a VM that was found only by its name even if its UUID differs from the Node's or it backs \
                   another Node");
        DEMOTE_VIRTUAL_IPS: bool = boolean("demote-virtual-ips", "true").variable("CCM_DEMOTE_VIRTUAL_IPS")
            .help("Use an address that several VMs or the API server have only if the Node has no other address");
        INSTANCE_TYPE: &str = text("instance-type", "WORD", "init").variable("CCM_INSTANCE_TYPE")
            .help("Whether the instance type keeps its value from initialization (init) or follows changes of the VM \
                   (follow)");
        NODE_DELETION: &str = text("node-deletion", "WORD", "enforce").variable("CCM_NODE_DELETION")
            .help("Whether Nodes whose VM is confirmed deleted are deleted (enforce), only reported (dry-run) or \
                   neither (off)");
        NODE_DELETION_GRACE: Duration = text("node-deletion-grace", "DURATION", "30s")
            .variable("CCM_NODE_DELETION_GRACE")
            .help("How long a Node must be Ready=Unknown, and its VM confirmed deleted, before the Node is deleted");
        NODE_DELETION_LIMIT: &str = text("node-deletion-limit", "LIMIT", "5,10%,10m")
            .variable("CCM_NODE_DELETION_LIMIT")
            .help("How many Nodes may be deleted: the larger of a number and a share of all nodes, within a time");
        NODE_DELETION_MASS_HOLD: Duration = text("node-deletion-mass-hold", "DURATION", "15m")
            .variable("CCM_NODE_DELETION_MASS_HOLD")
            .help("How long no Node is deleted after many VMs disappear at the same time");
        NODE_DELETION_UNSEEN: &str = text("node-deletion-unseen", "WORD", "hold").variable("CCM_NODE_DELETION_UNSEEN")
            .help("Whether a Node whose VM was never seen is kept (hold) or deleted like others (enforce)");
        NODE_LABELS_ON: &str = text("node-labels-on", "WORD", "join").variable("CCM_NODE_LABELS_ON")
            .help("Whether Nodes get the labels of --node-labels when they are initialized (join), or initialized \
                ones, too, where the key does not exist (all)");
        NODE_SELECTOR: &str = text("node-selector", "SELECTOR", "").variable("CCM_NODE_SELECTOR")
            .help("Label selector of the Nodes to manage; empty: all");
        NSX_ADOPT: &str = text("nsx-adopt", "WORD", "as-is").variable("CCM_NSX_ADOPT")
            .help("Whether objects that the Go program created for this cluster stay unchanged (as-is), or routes \
                   get the tags of this program and load balancers get everything that their Services request (full)");
        NSX_BATCH_UPDATES: bool = boolean("nsx-batch-updates", "true").variable("CCM_NSX_BATCH_UPDATES")
            .help("Write the pools of many load balancers with one request to NSX when Nodes come and go; false writes \
                them one by one");
        NSX_IPV6_POOL: &[String] = slice("nsx-ipv6-pool", "CLASS=POOL-ID", "").variable("CCM_NSX_IPV6_POOL")
            .help("IP pool of NSX from which Services of this class of vsphere.conf, or of default, get their IPv6 \
                   addresses, in addition to the addresses of the class; comma separated; may be repeated");
        NSX_LOAD_BALANCER_IP: &str = text("nsx-load-balancer-ip", "WORD", "on").variable("CCM_NSX_LOAD_BALANCER_IP")
            .help("Whether Services get the address in spec.loadBalancerIP (on), or the field has no effect (off), \
                   as in the Go program");
        NSX_ORPHANS: &str = text("nsx-orphans", "WORD", "delete").variable("CCM_NSX_ORPHANS")
            .help("Action for load balancers in NSX whose Services are gone: delete, report or off");
        NSX_REQUESTS_PER_SECOND: u32 = text("nsx-requests-per-second", "NUMBER", "80")
            .variable("CCM_NSX_REQUESTS_PER_SECOND")
            .help("Maximum number of requests to NSX per second; NSX refuses more than 100 of one account");
        OUT_OF_SERVICE_AFTER: Duration = text("out-of-service-after", "DURATION", "")
            .variable("CCM_OUT_OF_SERVICE_AFTER")
            .help("Taint a node as out of service once it has been Ready=Unknown and its VM powered off for this long; \
                without it, or with 0, never");
        ROUTE_NETWORK_CONDITION: bool = boolean("route-network-condition", "true")
            .variable("CCM_ROUTE_NETWORK_CONDITION")
            .help("Write the condition NetworkUnavailable of Nodes; false: the network plugin writes it");
        ROUTE_POD_NETWORKS: &str = text("route-pod-networks", "WORD", "cluster-cidr").variable("CCM_ROUTE_POD_NETWORKS")
            .help("Whether routes are created only for networks within --cluster-cidr (cluster-cidr), or for all \
                   networks of Nodes (any), as in the Go program");
        SERVICE_SELECTOR: &str = text("service-selector", "SELECTOR", "").variable("CCM_SERVICE_SELECTOR")
            .help("Label selector of the Services to manage; a Service that no longer matches keeps its load \
                   balancer; empty: all");
        SESSION_MANAGER_HOSTS: &[String] = slice("session-manager-hosts", "NAMES", "")
            .variable("CCM_SESSION_MANAGER_HOSTS")
            .help("Allowed hosts of session managers, comma separated; they can receive the token of the service \
                   account; empty: any");
        SESSION_MANAGER_TOKEN_FILE: &str = text("session-manager-token-file", "FILE", "")
            .variable("CCM_SESSION_MANAGER_TOKEN_FILE")
            .help("File with the token for session managers that are given no other, such as a projected token with an \
                audience of its own; empty is that of the service account");
        STANDBY: &str = text("standby", "WORD", "warm").variable("CCM_STANDBY")
            .help("Whether a process that does not lead keeps its vCenter sessions and inventory (warm) or has none \
                (cold)");
        TAG_POLL_INTERVAL: Duration = text("tag-poll-interval", "DURATION", "60s").variable("CCM_TAG_POLL_INTERVAL")
            .help("How often the tags of vCenter are read");
        TOPOLOGY_LABEL_PREFIX: &str = text("topology-label-prefix", "PREFIX", "topology.vsphere-ccm.dev/")
            .variable("CCM_TOPOLOGY_LABEL_PREFIX").help("Prefix of the names of the labels of --topology-labels");
        TOPOLOGY_LABELS: &[String] = slice("topology-labels", "NAMES", "").variable("CCM_TOPOLOGY_LABELS")
            .help("Labels with the location of a Node's VM, which follow its changes, comma separated: vcenter, \
                   datacenter, cluster, esxi-host, resource-pool, folder, datastore");
        TRUST_GUEST_INTERFACES: bool = boolean("trust-guest-interfaces", "false").variable("CCM_TRUST_GUEST_INTERFACES")
            .help("Accept the node IP of a kubelet if the guest reports it on an interface without a virtual NIC, \
                   such as a bond");
        ZONE_LABELS: &str = text("zone-labels", "WORD", "init").variable("CCM_ZONE_LABELS")
            .help("Whether zone and region keep their values from initialization (init), are added to Nodes that \
                   have neither (fill), or follow changes of the VM (follow)");
    }
}
