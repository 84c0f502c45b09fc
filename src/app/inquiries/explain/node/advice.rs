//! Pure: who has to act because of a reason, and the commands that check and fix it, with the names of the Node.

use crate::app::inquiries::explain::actors;
use crate::app::inquiries::explain::outside_text::clipped;
use crate::app::reports::text::shell_word;
use crate::cloud::Reason;
use crate::controllers::node::reason;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::metadata::zones::ZoneProblem;
use crate::providers::vsphere::nodes::reports::{VmReport, ZoneReport};
use crate::providers::vsphere::reason as vsphere;

/// Name of the taint that starts an initialization.
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The beginning of a command that runs beside this process.
const EXEC: &str = "kubectl -n NAMESPACE exec POD -- /bin/vsphere-cloud-controller-manager";

/// The names in commands.
pub struct AdviceInputs<'a> {
    /// Name of the Node.
    pub node: &'a str,
    /// The VM that backs the Node or, without one, the only match.
    pub vm: Option<&'a VmReport>,
    /// The UUID that the look-up searches by.
    pub uuid: Option<&'a BiosUuid>,
    /// Zone and region.
    pub zone: Option<&'a ZoneReport>,
    /// Other Nodes that have the VM of this Node.
    pub rivals: &'a [RivalNode],
    /// The vCenter of the VM, or the only one.
    pub server: Option<&'a str>,
}

/// Another Node that has the VM of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RivalNode {
    /// The name.
    pub name: String,
    /// Whether the guest's host name speaks for this Node and against the other one.
    pub is_called_by_guest: bool,
}

/// What follows from a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Who has to act.
    pub actor: &'static str,
    /// What to do, as a command where there is one.
    pub fix: String,
    /// The event that ends the wait.
    pub awaits: &'static str,
}

impl AdviceInputs<'_> {
    /// Returns the advice for this reason.
    pub fn advice(&self, reason: Reason) -> Advice {
        let node = self.node;
        let delete = format!("kubectl delete node {node}");
        let fix = match reason {
            vsphere::LookupPending | reason::CloudUnavailable | reason::ProviderTimeout => String::new(),
            vsphere::VMNotFound | vsphere::InstanceNotFound => self.search(),
            // Any of the VMs may be that of the Node, so no command has a path.
            vsphere::SeveralVMsMatch => CHANGE_UUID.to_owned(),
            vsphere::VMNotReadable | vsphere::NoPermission => {
                let place = self.vm_place();
                format!("govc permissions.set -principal ACCOUNT -role ReadOnly -propagate=true {place}")
            }
            vsphere::NameMatchRefused => "if the VM is the Node's, start with --allow-name-match".to_owned(),
            vsphere::VMBacksAnotherNode => self.delete_earlier_name(),
            vsphere::ProviderIDMismatch => self.mismatch(),
            vsphere::MalformedProviderID | reason::ForeignProviderID => {
                format!("correct the kubelet's provider ID, then: {delete}, and restart the kubelet")
            }
            reason::NoProviderID => format!("kubectl taint node {node} {TAINT}=true:NoSchedule"),
            reason::InstanceAbsent => delete,
            vsphere::VCenterUnavailable
            | vsphere::VCenterCertificateRejected
            | vsphere::CredentialsRejected
            | vsphere::CredentialsMissing
            | vsphere::VCenterNotConfigured => self.ask_vcenter(),
            vsphere::VMPoweredOff => format!("govc vm.power -on {}", self.vm_place()),
            vsphere::PowerStateUnknown => {
                let place = self.vm_place();
                format!("govc object.collect -s {place} runtime.connectionState runtime.powerState")
            }
            vsphere::ToolsNotRunning => {
                "in the VM: systemctl enable --now open-vm-tools (some systems: vmtoolsd)".to_owned()
            }
            vsphere::NoGuestNics
            | vsphere::NoUsableAddress
            | vsphere::NoAddressOfFamily
            | vsphere::NoNetworkMatches
            | reason::NoAddresses => {
                let reported = format!("govc object.collect -json {} guest.net", self.vm_place());
                format!("give the VM an address that the rules allow; it reports: {reported}")
            }
            reason::ProvidedNodeIPNotValid | reason::ProvidedNodeIPNotOnVM => {
                "correct --node-ip of the kubelet, and restart it".to_owned()
            }
            vsphere::NoZoneTags => self.attach_tags(),
            vsphere::ZoneUnknown => self.list_tags(),
            vsphere::InvalidTagName => self.rename_tag(),
            reason::WriteRefused => {
                format!("{EXEC} check names a missing permission (K02); else the message names the webhook")
            }
            reason::WriteConflict => format!("kubectl get node {node} -o yaml --show-managed-fields"),
            reason::APIServerUnavailable => "kubectl get --raw '/readyz?verbose'".to_owned(),
            reason::Panic => "report it as a bug, with the log line of the panic".to_owned(),
            _ => "kubectl -n NAMESPACE logs POD shows the cause".to_owned(),
        };
        Advice { actor: actors::of_node(reason), fix, awaits: awaited_event(reason) }
    }

    /// Returns the path of the VM or, without one, a reference to its id.
    fn vm_place(&self) -> String {
        match self.vm {
            Some(VmReport { path: Some(path), .. }) => shell_word(path),
            Some(vm) => format!("VirtualMachine:{}", vm.key.id),
            None => "VM".to_owned(),
        }
    }

    fn search(&self) -> String {
        let search = |uuid: &BiosUuid| format!("govc find / -type m -config.uuid {uuid}");
        match self.uuid {
            Some(uuid) => format!(
                "as an administrator: {}; {}; a VM that is found needs a permission for this program's account",
                search(uuid),
                search(&uuid.byte_swapped())
            ),
            None => format!("the kubelet of {} has to report a systemUUID", self.node),
        }
    }

    /// Only the earlier name of a VM is to be deleted. If the guest's host name does not tell which name that is, the text
    /// has no command.
    fn delete_earlier_name(&self) -> String {
        let node = self.node;
        let twins = "if each has a VM of its own: give one of the VMs another UUID while it is off";
        match self.rivals {
            [RivalNode { name, is_called_by_guest: true }] => {
                let delete = format!("kubectl delete node {node}");
                format!("the guest is called {name}; if {node} is an earlier name of this VM: {delete}; {twins}")
            }
            [] => format!("delete {node} or the other Node, whichever is an earlier name of this VM; {twins}"),
            rivals => {
                let names: Vec<&str> = rivals.iter().map(|rival| rival.name.as_str()).collect();
                let names = names.join(" and ");
                format!("of {node} and {names}, delete the Node that is an earlier name of this VM; {twins}")
            }
        }
    }

    fn mismatch(&self) -> String {
        format!(
            "kubectl delete node {node}, then restart its kubelet; if the provider ID is right: kubectl taint node \
             {node} {TAINT}=true:NoSchedule",
            node = self.node
        )
    }

    fn ask_vcenter(&self) -> String {
        let server = self.server.unwrap_or("SERVER");
        format!("{EXEC} explain vcenter {server}")
    }

    fn attach_tags(&self) -> String {
        let Some(ZoneReport { categories: Some(categories), .. }) = self.zone else {
            return String::new();
        };
        let missing: &[String] = match self.zone.map(|zone| &zone.found) {
            Some(Err(ZoneProblem::NoTags { chains })) => {
                chains.first().map(|chain| chain.categories.as_slice()).unwrap_or_default()
            }
            _ => &[],
        };
        let object = self.object_above_host();
        let mut commands = Vec::new();
        for (category, tag) in [(&categories.zone, "ZONE"), (&categories.region, "REGION")] {
            if missing.is_empty() || missing.contains(category) {
                commands.push(format!("govc tags.attach -c {} {tag} {object}", shell_word(category)));
            }
        }
        commands.join("; ")
    }

    fn list_tags(&self) -> String {
        format!("govc tags.attached.ls -r -l {}", self.object_above_host())
    }

    fn rename_tag(&self) -> String {
        match self.zone.map(|zone| &zone.found) {
            Some(Err(ZoneProblem::InvalidTagName { category, name })) => {
                let (category, name) = (shell_word(&clipped(category)), shell_word(&clipped(name)));
                format!("govc tags.update -n NEW -c {category} {name}")
            }
            _ => "govc tags.update -n NEW -c CATEGORY OLD".to_owned(),
        }
    }

    fn object_above_host(&self) -> String {
        let object = self.zone.and_then(|zone| zone.above_host.as_ref());
        let path = object.and_then(|object| object.path.as_deref());
        path.map_or_else(|| "OBJECT".to_owned(), shell_word)
    }
}

/// The remedy for VMs with one UUID.
const CHANGE_UUID: &str = "power off the copies, or for each copy, while it is off: govc vm.change -vm COPY -uuid \
                           $(uuidgen); never for the VM that backs the Node, where its kubelet runs";

/// Returns the event that ends the wait.
fn awaited_event(reason: Reason) -> &'static str {
    match reason {
        vsphere::LookupPending => "the answers of the vCenters, which are on their way",
        vsphere::VMNotFound
        | vsphere::SeveralVMsMatch
        | vsphere::VMNotReadable
        | vsphere::NameMatchRefused
        | vsphere::ProviderIDMismatch => "the next search in vCenter, at most a minute after the last one",
        vsphere::VMBacksAnotherNode => "a change of the other Node, or of the VM's guest host name",
        vsphere::NoZoneTags | vsphere::ZoneUnknown | vsphere::InvalidTagName => "the next poll of the tags",
        vsphere::VCenterUnavailable
        | vsphere::VCenterCertificateRejected
        | vsphere::CredentialsRejected
        | vsphere::CredentialsMissing => "the vCenter",
        vsphere::VCenterNotConfigured => "a change of vsphere.conf",
        vsphere::MalformedProviderID | reason::ForeignProviderID => "a change of the Node",
        reason::WriteRefused | reason::WriteConflict | reason::APIServerUnavailable => "the API server",
        reason::ProvidedNodeIPNotValid => "a change of the Node",
        _ => "a report of the VM from vCenter, or a change of the Node",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::inquiries::explain::actors::{CLUSTER, GUEST, NOBODY, VSPHERE};
    use crate::providers::vsphere::vcenter::zone_tags::ZoneCategories;

    #[test]
    fn each_reason_of_a_node_names_who_acts_and_commands_have_the_nodes_names() {
        let uuid: BiosUuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        let rivals = [rival("old-worker", true)];
        let inputs = AdviceInputs {
            node: "worker-7",
            vm: None,
            uuid: Some(&uuid),
            zone: None,
            rivals: &rivals,
            server: Some("vc.example.com:443"),
        };
        for (reason, actor, part) in [
            (vsphere::LookupPending, NOBODY, ""),
            (vsphere::VMNotFound, VSPHERE, "govc find / -type m -config.uuid 56492e42-22ad-3911-6d72-59cc8f26bc90"),
            (vsphere::SeveralVMsMatch, VSPHERE, "govc vm.change -vm COPY -uuid"),
            (vsphere::NoPermission, VSPHERE, "govc permissions.set"),
            (vsphere::NameMatchRefused, CLUSTER, "--allow-name-match"),
            (vsphere::VMBacksAnotherNode, CLUSTER, "kubectl delete node worker-7"),
            (vsphere::ProviderIDMismatch, CLUSTER, "kubectl delete node worker-7"),
            (vsphere::MalformedProviderID, CLUSTER, "kubectl delete node worker-7"),
            (reason::NoProviderID, CLUSTER, "kubectl taint node worker-7"),
            (reason::InstanceAbsent, CLUSTER, "kubectl delete node worker-7"),
            (vsphere::CredentialsRejected, CLUSTER, "kubectl -n NAMESPACE exec POD -- "),
            (vsphere::CredentialsRejected, CLUSTER, " explain vcenter vc.example.com:443"),
            (vsphere::VMPoweredOff, VSPHERE, "govc vm.power -on VM"),
            (vsphere::PowerStateUnknown, VSPHERE, "govc object.collect -s VM runtime.connectionState"),
            (vsphere::ToolsNotRunning, GUEST, "open-vm-tools"),
            (vsphere::NoUsableAddress, GUEST, "govc object.collect -json VM guest.net"),
            (reason::ProvidedNodeIPNotOnVM, CLUSTER, "--node-ip"),
            (vsphere::ZoneUnknown, VSPHERE, "govc tags.attached.ls -r -l OBJECT"),
            (reason::WriteRefused, CLUSTER, " check names a missing permission (K02)"),
            (reason::WriteConflict, NOBODY, "--show-managed-fields"),
            (reason::ProviderTimeout, NOBODY, ""),
            (reason::CloudError, CLUSTER, "kubectl -n NAMESPACE logs POD"),
            (reason::Panic, CLUSTER, "report it"),
        ] {
            let advice = inputs.advice(reason);
            assert_eq!(advice.actor, actor, "{reason}");
            assert!(advice.fix.contains(part) && !advice.awaits.is_empty(), "{reason}: {advice:?}");
        }
    }

    fn rival(name: &str, is_called_by_guest: bool) -> RivalNode {
        RivalNode { name: name.to_owned(), is_called_by_guest }
    }

    fn inputs<'a>(rivals: &'a [RivalNode], vm: Option<&'a VmReport>, zone: Option<&'a ZoneReport>) -> AdviceInputs<'a> {
        AdviceInputs { node: "worker-7", vm, uuid: None, zone, rivals, server: None }
    }

    #[test]
    fn the_command_for_vms_with_one_uuid_never_names_a_vm_because_it_may_be_that_of_the_node() {
        let path = "/dc-1/vm/k8s/prod-worker-7";
        let vm = VmReport { path: Some(path.to_owned()), ..VmReport::of_test("vm-142") };
        let advice = inputs(&[], Some(&vm), None).advice(vsphere::SeveralVMsMatch);
        assert!(!advice.fix.contains(path) && !advice.fix.contains("vm-142"), "{advice:?}");
        assert!(inputs(&[], Some(&vm), None).advice(vsphere::VMPoweredOff).fix.contains(path));
    }

    #[test]
    fn a_node_is_deleted_only_if_the_guest_has_the_name_of_the_other_one() {
        let fix = |rivals: &[RivalNode]| inputs(rivals, None, None).advice(vsphere::VMBacksAnotherNode).fix;
        let present = fix(&[rival("worker-9", true)]);
        assert!(present.contains("called worker-9") && present.contains("kubectl delete node worker-7"), "{present}");
        for rivals in [vec![], vec![rival("a", false)], vec![rival("a", true), rival("b", false)]] {
            let fix = fix(&rivals);
            assert!(!fix.contains("kubectl"), "the guest's host name does not decide: {fix}");
            let names = rivals.iter().all(|rival| fix.contains(&rival.name));
            assert!(names && fix.contains("worker-7"), "{fix}");
        }
    }

    #[test]
    fn the_tag_to_rename_is_the_one_with_the_invalid_name() {
        let problem = ZoneProblem::InvalidTagName { category: "k8s-region".to_owned(), name: "a region".to_owned() };
        let categories = ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
        let zone = ZoneReport { categories: Some(categories), found: Err(problem), above_host: None };
        let advice = inputs(&[], None, Some(&zone)).advice(vsphere::InvalidTagName);
        assert_eq!(advice.fix, "govc tags.update -n NEW -c k8s-region 'a region'");
    }
}
