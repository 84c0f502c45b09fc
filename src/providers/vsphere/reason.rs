//! The reasons that only the vSphere provider gives, in addition to those of `cloud`.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A search found a VM that the account may not read.
    VMNotReadable,
    /// The provider ID of the Node belongs to a VM other than the VM on which the Node runs.
    ProviderIDMismatch,
    /// The provider ID is not `vsphere://` followed by a UUID.
    MalformedProviderID,
    /// A vCenter does not answer.
    VCenterUnavailable,
    /// The certificate of a vCenter is not accepted.
    VCenterCertificateRejected,
    /// A vCenter refuses the credentials.
    CredentialsRejected,
    /// No credentials exist for a vCenter: the Secret or directory is missing, has no entry for it, or was not read.
    CredentialsMissing,
    /// The Node's VM is on a vCenter that is no longer configured.
    VCenterNotConfigured,
    /// The guest reports nothing, because VMware Tools is not running or has not reported yet.
    ToolsNotRunning,
    /// The VM is powered off, so its guest reports nothing.
    VMPoweredOff,
    /// The guest reports no network interface.
    NoGuestNics,
    /// No interface is on a configured network, and no address is in a configured CIDR.
    NoNetworkMatches,
    /// The guest reports no address that other hosts can reach.
    NoUsableAddress,
    /// A configured address family has no address that the rules allow.
    NoAddressOfFamily,
    /// A tag of a configured category is missing.
    NoZoneTags,
    /// The tags could not be read.
    ZoneUnknown,
    /// The name of a tag is not a valid label value.
    InvalidTagName,
    /// The Node is kept, because it has no record of its VM, and this process did not watch the VM until it left
    /// vCenter.
    NeverSeen,
    /// The Node is kept, because its VM left vCenter together with the host, and may still run on that host.
    HostGone,
    /// The Node is kept, because the VM's last host, on which the VM may still run, is not connected to vCenter.
    HostNotConnected,
    /// The Node is kept, because the VM's last host is unknown, or both the last folder (or pool) and the datacenter
    /// are unknown or gone.
    LocationUnknown,
    /// NSX does not answer, or is too busy.
    NSXUnavailable,
    /// NSX rejects the credentials, or the login has to wait after a rejection.
    NSXLoginRejected,
    /// The role of the NSX account does not allow a call.
    NSXNoPermission,
    /// NSX rejects a request, or another client keeps changing the object.
    NSXRefused,
    /// The configuration or an object in NSX refers to an NSX object that does not exist.
    NSXObjectMissing,
    /// NSX has load balancers of many Services that do not exist in the API server.
    ManyOrphanedLoadBalancers,
    /// The Node has no address that can be the next hop of a route.
    NoNextHop,
    /// A conflicting route in NSX does not belong to this cluster, or its owner is not proved.
    RouteNotOurs,
    /// NSX has accepted a route but has not realized it.
    RouteNotRealized,
    /// NSX has accepted a load balancer but cannot realize it.
    LoadBalancerNotRealized,
    /// NSX does not report whether a load balancer is realized; its address is published nevertheless.
    LoadBalancerNotConfirmed,
    /// Virtual servers that were deleted long ago may still be realized.
    LoadBalancerStillRealized,
    /// The annotation of a Service names a class of load balancers that the configuration does not have.
    LoadBalancerClassUnknown,
    /// The annotation of a Service requests a class other than that of its load balancer, whose class cannot change.
    LoadBalancerClassFixed,
    /// A pool, an application profile or the load balancer service of the configuration is missing in NSX or not
    /// unique.
    LoadBalancerConfigWrong,
    /// The IP pool has no free address, or the address that a Service requests is not free.
    AddressUnavailable,
    /// The load balancer service has no room for the virtual servers, pools or members of a Service.
    LoadBalancerCapacity,
    /// A load balancer that another program created does not provide everything that its Service requests.
    LoadBalancerAdoptedAsIs,
    /// The address of a load balancer is not allocated in an IP pool, and this program cannot allocate it.
    AddressNotReserved,
    /// The address of a deleted load balancer stays allocated, because another owner's virtual server uses it.
    AddressNotReleased,
    /// Another client has changed the address of a virtual server, and the change is kept.
    LoadBalancerAddressEdited,
    /// Another client has changed the address of a virtual server, and the change is reverted.
    LoadBalancerAddressSetBack,
}
