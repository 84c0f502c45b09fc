//! Words of vCenter's SOAP: classes, properties, faults, elements, enumerations.

use ccm::clients::vim::filter::VIRTUAL_MACHINE_PATHS;
use ccm::providers::vsphere::nodes::metadata::instance_type::build_instance_type;

const CLASSES: &str = "Alarm AlarmManager AuthorizationManager CertificateManager ClusterComputeResource ClusterProfileManager \
     ComputeResource ContainerView CryptoManager CryptoManagerKmip CustomFieldsManager CustomizationSpecManager Datacenter \
     Datastore DatastoreNamespaceManager DiagnosticManager DirectPathProfileManager DistributedVirtualPortgroup \
     DistributedVirtualSwitch DistributedVirtualSwitchManager EventManager ExtensionManager FailoverClusterConfigurator FailoverClusterManager \
     FileManager Folder GuestCustomizationManager GuestOperationsManager HealthUpdateManager HostProfileManager \
     HostSnmpSystem HostSpecificationManager HostSystem InventoryView IoFilterManager IpPoolManager LicenseManager ListView \
     LocalizationManager ManagedEntity ManagedObjectView MessageBusProxy Network OpaqueNetwork OptionManager \
     OverheadMemoryManager OvfManager PerformanceManager ProfileComplianceManager PropertyCollector PropertyFilter \
     ResourcePlanningManager ResourcePool ScheduledTaskManager SearchIndex ServiceInstance ServiceManager SessionManager \
     SiteInfoManager StoragePod StorageQueryManager StorageResourceManager Task TaskManager TenantTenantManager UserDirectory \
     VStorageObjectManager VcenterVStorageObjectManager View ViewManager VirtualApp VirtualDiskManager VirtualMachine \
     VirtualMachineCompatibilityChecker VirtualMachineGuestCustomizationManager VirtualMachineProvisioningChecker \
     VirtualizationManager VmwareDistributedVirtualSwitch VsanUpgradeSystem";

/// Ids of managed objects that are the same in every vCenter.
const WELL_KNOWN: &str = "propertyCollector ViewManager SearchIndex SessionManager AuthorizationManager ServiceInstance \
     VpxSettings UserDirectory ServiceMgr PerfMgr ScheduledTaskManager AlarmManager EventManager TaskManager ExtensionManager \
     CustomizationSpecManager GuestCustomizationManager CustomFieldsManager DiagMgr LicenseManager FileManager \
     DatastoreNamespaceManager virtualDiskManager VirtualizationManager SnmpSystem ProvChecker CompatChecker OvfManager \
     IpPoolManager DVSManager HostProfileManager HostSpecificationManager ClusterProfileManager MoComplianceManager \
     LocalizationManager StorageResourceManager guestOperationsManager OverheadMemoryManager certificateManager \
     IoFilterManager VStorageObjectManager CryptoManager FailoverClusterConfigurator FailoverClusterManager \
     HealthUpdateManager ResourcePlanningManager StorageQueryManager TenantManager SiteInfoManager";

/// Prefixes of managed object ids that vCenter numbers.
const PREFIXES: [&str; 20] = [
    "datacenter-",
    "datastore-",
    "domain-c",
    "domain-s",
    "dvportgroup-",
    "dvs-",
    "group-d",
    "group-h",
    "group-n",
    "group-p",
    "group-s",
    "group-v",
    "host-",
    "network-",
    "network-o",
    "resgroup-",
    "resgroup-v",
    "task-",
    "vapp-",
    "vm-",
];

/// Types of data and of XML Schema, as in `xsi:type`.
const TYPES: &str = "string boolean int long short byte double float dateTime anyURI base64Binary anyType \
     ManagedObjectReference ArrayOfManagedObjectReference ArrayOfGuestNicInfo GuestNicInfo NetIpConfigInfo \
     NetIpConfigInfoIpAddress NetDnsConfigInfo ArrayOfString OptionValue ArrayOfOptionValue UserSession AboutInfo \
     ServiceContent TraversalSpec SelectionSpec ObjectSpec PropertySpec PropertyFilterSpec RetrieveResult ObjectContent \
     DynamicProperty MissingProperty UpdateSet PropertyFilterUpdate ObjectUpdate PropertyChange MissingObject \
     LocalizedMethodFault VirtualMachinePowerState VirtualMachineConnectionState HostSystemConnectionState \
     LocalizableMessage KeyAnyValue NoPermissionEntityPrivileges";

const FAULTS: &str = "ManagedObjectNotFound NotAuthenticated NoPermission RestrictedByAdministrator InvalidLogin \
     PasswordExpired InvalidProperty InvalidType InvalidArgument InvalidName InvalidLocale InvalidCollectorVersion \
     RequestCanceled HostCommunication HostNotReachable HostNotConnected MethodNotFound InvalidRequest NotSupported \
     NotImplemented InvalidState LimitExceeded InvalidPowerState NotFound SystemError RuntimeFault SecurityError \
     NotEnoughLicenses InvalidPrivilege VimFault UnexpectedFault NoClientCertificate SSPIChallenge SSLVerifyFault";

/// Methods that this program calls.
const METHODS: &str = "RetrieveServiceContent Login LoginByToken CloneSession Logout HasPrivilegeOnEntity FindAllByUuid \
     FindAllByDnsName FindAllByIp CreateListView ModifyListView DestroyView CreatePropertyCollector DestroyPropertyCollector \
     CreateFilter WaitForUpdatesEx CancelWaitForUpdates RetrievePropertiesEx ContinueRetrievePropertiesEx";

/// Elements of envelopes, requests and answers.
const ELEMENTS: &str = "Envelope Header Body Fault faultcode faultstring detail operationID returnval _this fault \
     localizedMessage faultCause faultMessage \
     namespaces namespace name version priorVersions \
     rootFolder propertyCollector viewManager about setting userDirectory sessionManager authorizationManager serviceManager \
     perfManager scheduledTaskManager alarmManager eventManager taskManager extensionManager customizationSpecManager \
     guestCustomizationManager customFieldsManager accountManager diagnosticManager licenseManager searchIndex fileManager \
     datastoreNamespaceManager virtualDiskManager virtualizationManager snmpSystem vmProvisioningChecker \
     vmCompatibilityChecker ovfManager ipPoolManager dvSwitchManager hostProfileManager hostSpecManager \
     clusterProfileManager complianceManager localizationManager storageResourceManager guestOperationsManager \
     overheadMemoryManager certificateManager ioFilterManager vStorageObjectManager cryptoManager healthUpdateManager \
     failoverClusterConfigurator failoverClusterManager tenantManager siteInfoManager storageQueryManager \
     directPathProfileManager \
     fullName vendor patchLevel build localeVersion localeBuild osType productLineId apiType apiVersion instanceUuid \
     licenseProductName licenseProductVersion \
     userName password locale key loginTime lastActiveTime messageLocale extensionSession ipAddress userAgent callCount \
     entity sessionId privId uuid dnsName ip vmSearch obj object add remove spec specSet propSet objectSet type all pathSet \
     skip selectSet path partialUpdates options maxWaitSeconds maxObjectUpdates maxObjects token objects val missingSet \
     filterSet filter kind changeSet op truncated missingObjects \
     privilegeId missingPrivileges privilegeIds argument invalidProperty reason method arg message value \
     network macAddress connected deviceConfigId dnsConfig ipConfig netBIOSConfig dhcp hostName domainName searchDomain \
     prefixLength origin state lifetime autoConfigurationEnabled";

/// Property paths, in addition to the VM properties that the product reads.
const PATHS: &str = "name parent parentFolder childEntity vmFolder view currentSession runtime.connectionState \
     runtime.inMaintenanceMode runtime.host resourcePool parentVApp config.uuid guest.hostName";

/// Enumerations, privileges, products, namespaces, fault codes, and the names that the product gives to traversals in a
/// filter.
const WORDS: [&str; 68] = [
    "enter",
    "modify",
    "leave",
    "assign",
    "add",
    "remove",
    "indirectRemove",
    "poweredOn",
    "poweredOff",
    "suspended",
    "connected",
    "disconnected",
    "orphaned",
    "inaccessible",
    "invalid",
    "notResponding",
    "guestToolsRunning",
    "guestToolsNotRunning",
    "guestToolsExecutingScripts",
    "manual",
    "dhcp",
    "linklayer",
    "random",
    "other",
    "preferred",
    "deprecated",
    "duplicate",
    "tentative",
    "unknown",
    "unreachable",
    "System.Read",
    "System.View",
    "System.Anonymous",
    "InventoryService.Tagging.AttachTag",
    "VirtualCenter",
    "HostAgent",
    "VMware vCenter Server",
    "VMware VirtualCenter Server",
    "VMware, Inc.",
    "vpx",
    "INTL",
    "linux-x64",
    "linux-amd64",
    "en",
    "en_US",
    "urn:vim25",
    "urn:vim2",
    "urn:internalvim25",
    "urn:sms",
    "urn:pbm",
    "ServerFaultCode",
    "Client",
    "Server",
    "ns0:Server",
    "ns0:Client",
    "soapenv:Server",
    "soapenv:Client",
    "filter.selectSet",
    "spec.pathSet",
    "version",
    "down",
    "vms",
    "members",
    "up",
    "vappFolder",
    "host",
    "pool",
    "vapp",
];

pub(crate) const NAME_SPACE_PREFIXES: [&str; 6] = ["soapenv", "soap", "xsd", "xsi", "vim25", "ns1"];

fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == word)
}

pub(crate) fn is_class(word: &str) -> bool {
    has(CLASSES, word)
}

/// Returns true for a class, or a type of data or of faults.
pub(crate) fn is_type(word: &str) -> bool {
    is_class(word) || has(TYPES, word) || has(FAULTS, word)
}

pub(crate) fn is_property(word: &str) -> bool {
    VIRTUAL_MACHINE_PATHS.contains(&word) || has(PATHS, word)
}

pub(crate) fn is_element(name: &str) -> bool {
    let ends = |end: &str, list: &str| name.strip_suffix(end).is_some_and(|start| has(list, start));
    has(ELEMENTS, name) || is_type(name) || has(METHODS, name) || ends("Response", METHODS) || ends("Fault", FAULTS)
}

/// Returns true if a field for schema words may have this word.
pub(super) fn is_word(word: &str) -> bool {
    WORDS.contains(&word) || is_type(word) || is_property(word) || is_guest(word)
}

/// Returns true if every vCenter has an object with this id.
pub(crate) fn is_well_known(id: &str) -> bool {
    has(WELL_KNOWN, id)
}

/// Returns the prefix of a managed object id, if vCenter numbers such objects.
pub(crate) fn prefix_of(id: &str) -> Option<&'static str> {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    PREFIXES.into_iter().find(|prefix| id.strip_prefix(prefix).is_some_and(is_number))
}

/// Returns true for a `guestId` that the product supports.
fn is_guest(word: &str) -> bool {
    (word.ends_with("Guest") || word.ends_with("Guest64")) && {
        matches!(word, "otherGuest" | "otherGuest64" | "otherLinux64Guest")
            || !build_instance_type(0, 0, word).ends_with(".os-unknown")
    }
}

#[cfg(test)]
mod tests {
    use ccm::clients::vim::filter::VIRTUAL_MACHINE_PATHS;

    use super::{is_element, is_property, is_word, prefix_of};

    #[test]
    fn what_the_product_reads_may_stay() {
        assert!(VIRTUAL_MACHINE_PATHS.iter().all(|path| is_property(path)));
        for name in ["Envelope", "RetrievePropertiesExResponse", "ManagedObjectNotFoundFault", "GuestNicInfo"] {
            assert!(is_element(name), "{name}");
        }
        for name in ["secret", "ManagedObjectNotFoundResponse", "SecretFault", "Response", ""] {
            assert!(!is_element(name), "{name}");
        }
        assert!(is_word("ubuntu64Guest") && !is_word("secretGuest") && !is_word("Guest"));
    }

    #[test]
    fn ids_that_are_counted_have_a_prefix_and_a_number() {
        for (id, expected) in [
            ("vm-42", Some("vm-")),
            ("domain-c8", Some("domain-c")),
            ("resgroup-v12", Some("resgroup-v")),
            ("vm-", None),
            ("vm-4x", None),
            ("vm-web-42", None),
            ("session[1]2", None),
        ] {
            assert_eq!(prefix_of(id), expected, "{id}");
        }
    }
}
