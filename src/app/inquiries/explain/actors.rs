//! Pure: the parties that act because of a reason, in the words of all explanations.

/// The VMware administrator.
pub(super) const VSPHERE: &str = "the administrator of vSphere";
/// The administrator of NSX.
pub(super) const NSX: &str = "the administrator of NSX";
/// The Kubernetes administrator, who also configures this program.
pub(super) const CLUSTER: &str = "the administrator of the cluster";
/// The administrator of the VM's operating system.
pub(super) const GUEST: &str = "the administrator of the VM's operating system";
/// The user who created a Service.
pub(super) const SERVICE_OWNER: &str = "the owner of the Service";
/// No person, because the reason ends without one.
pub(super) const NOBODY: &str = "no one: it passes by itself";
