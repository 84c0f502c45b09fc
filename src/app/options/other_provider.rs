//! Flags of the provider `vsphere-paravirtual`, which is not built yet. The Go program takes them with any provider.

use clap::Args;

const HEADING: &str = "Misc flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct OtherProvider {
    /// Of vsphere-paravirtual: families of the cluster, ipv4, ipv6, ipv4ipv6 or ipv6ipv4
    #[arg(long, help_heading = HEADING, value_name = "FAMILIES", default_value = "ipv4", allow_hyphen_values = true)]
    pub cluster_ip_family: String,

    /// Of vsphere-paravirtual: pass annotations of Services on to the Supervisor
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_service_annotation_propagation: String,

    /// Of vsphere-paravirtual: routable pods in VPC mode
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_vpc_mode: String,

    /// Of vsphere-paravirtual: machine labels of the older form
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub is_legacy_paravirtual: String,

    /// Of vsphere-paravirtual: pool of addresses of the pods, Public or Private
    #[arg(long, help_heading = HEADING, value_name = "WORD", default_value = "", allow_hyphen_values = true)]
    pub pod_ip_pool_type: String,

    /// Of vsphere-paravirtual: version of the API of the VM Operator
    #[arg(long, help_heading = HEADING, value_name = "VERSION", default_value = "v1alpha2", allow_hyphen_values = true)]
    pub vm_operator_api_version: String,
}
