//! The reasons that only the vSphere provider gives, in addition to those of `cloud`.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A search found a VM that the account may not read.
    VMNotReadable,
    /// The provider ID is that of another VM than the one on which the Node runs.
    ProviderIDMismatch,
    /// The provider ID is not `vsphere://` followed by a UUID.
    MalformedProviderID,
    /// A vCenter does not answer.
    VCenterUnavailable,
    /// The certificate of a vCenter is not accepted.
    VCenterCertificateRejected,
    /// A vCenter refuses the credentials.
    CredentialsRejected,
    /// There are no credentials for a vCenter: the Secret or directory does not exist, has none for the vCenter, or was
    /// not read.
    CredentialsMissing,
    /// The Node's VM is on a vCenter that is no longer configured.
    VCenterNotConfigured,
    /// The guest has not reported: VMware Tools is not running, or has not reported yet.
    ToolsNotRunning,
    /// The VM is powered off, so its guest reports nothing.
    VMPoweredOff,
    /// The guest reports no network interface.
    NoGuestNics,
    /// No interface is on one of the configured networks.
    NoNetworkMatches,
    /// The guest reports no address that other hosts could reach.
    NoUsableAddress,
    /// A configured address family has no address that the rules allow.
    NoAddressOfFamily,
    /// A tag of a configured category is missing.
    NoZoneTags,
    /// The tags could not be read.
    ZoneUnknown,
    /// A tag's name is no label value.
    InvalidTagName,
    /// Not deleted: this program never saw the Node's VM.
    NeverSeen,
    /// Not deleted: the VM's host left vCenter together with the VM, which may still run there.
    HostGone,
    /// Not deleted: the VM's last host, on which it may still run, is not connected to vCenter.
    HostNotConnected,
    /// Not deleted: the VM's last host, folder, pool or datacenter is unknown or cannot be read.
    LocationUnknown,
    /// NSX does not answer, or is too busy.
    NSXUnavailable,
    /// NSX rejects the credentials, or the login has to wait after a rejection.
    NSXLoginRejected,
    /// The role of the NSX account does not allow a call.
    NSXNoPermission,
    /// NSX rejects a request, or another client keeps changing the object.
    NSXRefused,
    /// An object of NSX that the configuration or another object names does not exist.
    NSXObjectMissing,
    /// NSX has load balancers of many Services that the API server does not have.
    ManyOrphanedLoadBalancers,
    /// The Node has no address that can be the next hop of a route.
    NoNextHop,
    /// A conflicting route of NSX is not this cluster's, or nothing proves that it is.
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
    /// The annotation of a Service requests another class than that of its load balancer, which cannot change.
    LoadBalancerClassFixed,
    /// A pool, an application profile or the load balancer service of the configuration is not found in NSX, or not unique.
    LoadBalancerConfigWrong,
    /// The IP pool has no free address, or not the one that a Service requests.
    AddressUnavailable,
    /// The load balancer service has no room for the virtual servers, pools or members of a Service.
    LoadBalancerCapacity,
    /// A load balancer that another program created does not provide everything that its Service requests.
    LoadBalancerAdoptedAsIs,
    /// The address of a load balancer is not allocated in an IP pool, and this program cannot allocate it.
    AddressNotReserved,
    /// The address of a deleted load balancer stays allocated: a virtual server of another owner has it.
    AddressNotReleased,
    /// Another client has changed the address of a virtual server, and the change is kept.
    LoadBalancerAddressEdited,
    /// Another client had changed the address of a virtual server, and the change is reverted.
    LoadBalancerAddressSetBack,
}
