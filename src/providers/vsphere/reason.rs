//! The reasons that only vSphere gives, beside those of the contract.

pub use crate::cloud::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A virtual machine was found that the account may not read.
    VMNotReadable,
    /// The provider ID names another machine than the one the node runs on.
    ProviderIDMismatch,
    /// The provider ID is not `vsphere://` followed by a UUID.
    MalformedProviderID,
    /// A vCenter does not answer.
    VCenterUnavailable,
    /// The certificate of a vCenter is not accepted.
    VCenterCertificateRejected,
    /// A vCenter refuses the credentials.
    CredentialsRejected,
    /// There are no credentials for a vCenter: the Secret or directory does not exist, has none for it, or was not read.
    CredentialsMissing,
    /// The node's machine is on a vCenter that is not configured any more.
    VCenterNotConfigured,
    /// The guest has reported nothing: VMware Tools do not run, or have not reported yet.
    ToolsNotRunning,
    /// The virtual machine is powered off, so that its guest reports nothing.
    VMPoweredOff,
    /// The guest reports no network interface.
    NoGuestNics,
    /// No interface is on one of the configured networks.
    NoNetworkMatches,
    /// The guest reports no address that others could reach.
    NoUsableAddress,
    /// A configured address family has no address that the rules allow.
    NoAddressOfFamily,
    /// A tag of a configured category is missing.
    NoZoneTags,
    /// The tags could not be read.
    ZoneUnknown,
    /// A tag's name is no label value.
    InvalidTagName,
    /// Not deleted: this program never saw the node's machine.
    NeverSeen,
    /// Not deleted: the host of the machine is gone with it, and the machine may run on there.
    HostGone,
    /// Not deleted: vCenter does not hear from the machine's last host, on which it may run on.
    HostNotConnected,
    /// Not deleted: what the machine lay in cannot be read.
    LocationUnknown,
    /// NSX does not answer, or is too busy.
    NSXUnavailable,
    /// NSX refuses the credentials, or the login has to wait because it did.
    NSXLoginRejected,
    /// The role of the NSX account does not allow a call.
    NSXNoPermission,
    /// NSX does not accept a request, or another client changes the object all the time.
    NSXRefused,
    /// An object of NSX that the configuration or another object names does not exist.
    NSXObjectMissing,
    /// NSX has load balancers of many Services that the API server does not have.
    ManyOrphanedLoadBalancers,
    /// The Node has no address that a route could lead to.
    NoNextHop,
    /// A route of NSX is in the way that is not this cluster's, or that nothing shows to be.
    RouteNotOurs,
    /// NSX has accepted a route and not put it into effect.
    RouteNotRealized,
    /// NSX has accepted a load balancer and cannot put it into effect.
    LoadBalancerNotRealized,
    /// NSX has not said whether a load balancer is in effect, and its address is reported all the same.
    LoadBalancerNotConfirmed,
    /// Virtual servers that were deleted long ago may still be in effect.
    LoadBalancerStillRealized,
    /// The annotation of a Service names a class of load balancers that the configuration does not have.
    LoadBalancerClassUnknown,
    /// The annotation of a Service asks for another class of load balancers than its load balancer has.
    LoadBalancerClassFixed,
    /// A pool, an application profile or the load balancer service of the configuration is not found in NSX, or not unique.
    LoadBalancerConfigWrong,
    /// The pool of addresses has none that is free, or not the one that a Service asks for.
    AddressUnavailable,
    /// The load balancer service has no room for the virtual servers, pools or members of a Service.
    LoadBalancerCapacity,
    /// A load balancer that another program made does not follow all that its Service asks for.
    LoadBalancerAdoptedAsIs,
    /// Nothing reserves the address of a load balancer, and this program cannot do it.
    AddressNotReserved,
    /// The address of a load balancer that is deleted stays reserved: a virtual server of another owner has it.
    AddressNotReleased,
    /// Another client has edited the address of a virtual server, and it stays so.
    LoadBalancerAddressEdited,
    /// Another client had edited the address of a virtual server, and it is set back.
    LoadBalancerAddressSetBack,
}
