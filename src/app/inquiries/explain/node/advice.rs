//! Pure: who has to act because of a reason, and the commands that check and fix it, with the names of the Node.

use crate::cloud::Reason;
use crate::controllers::node::reason;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::metadata::zones::ZoneProblem;
use crate::providers::vsphere::nodes::reports::{VmReport, ZoneReport};
use crate::providers::vsphere::reason as vsphere;

/// The VMware administrator.
const VSPHERE: &str = "the administrator of vSphere";
/// The Kubernetes administrator.
const CLUSTER: &str = "the administrator of the cluster";
/// The administrator of the VM's operating system.
const GUEST: &str = "the administrator of the VM's operating system";
/// No person.
const NOBODY: &str = "no one: it passes by itself";

/// Name of the taint that starts an initialisation.
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The names in commands.
pub struct AdviceInputs<'a> {
    /// Name of the Node.
    pub node: &'a str,
    /// The VM that backs the Node or, without one, the first match.
    pub vm: Option<&'a VmReport>,
    /// The UUID that the look-up searches by.
    pub uuid: Option<&'a BiosUuid>,
    /// Zone and region.
    pub zone: Option<&'a ZoneReport>,
    /// Other Nodes of the same VM.
    pub rivals: &'a [String],
    /// The vCenter of the VM, or the only one.
    pub server: Option<&'a str>,
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
        let (actor, fix) = match reason {
            vsphere::LookupPending | reason::CloudUnavailable => (NOBODY, String::new()),
            vsphere::VMNotFound | vsphere::InstanceNotFound => (VSPHERE, self.search()),
            vsphere::SeveralVMsMatch => (VSPHERE, self.change_uuid()),
            vsphere::VMNotReadable | vsphere::NoPermission => {
                let place = self.vm_place();
                (VSPHERE, format!("govc permissions.set -principal ACCOUNT -role ReadOnly -propagate=true {place}"))
            }
            vsphere::NameMatchRefused => (CLUSTER, "if the VM is the Node's, start with --allow-name-match".to_owned()),
            vsphere::VMBacksAnotherNode => (CLUSTER, self.delete_rival()),
            vsphere::ProviderIDMismatch => (CLUSTER, self.mismatch()),
            vsphere::MalformedProviderID | reason::ForeignProviderID => {
                (CLUSTER, format!("correct the kubelet's provider ID, then: {delete}, and restart the kubelet"))
            }
            reason::NoProviderID => (CLUSTER, format!("kubectl taint node {node} {TAINT}=true:NoSchedule")),
            reason::InstanceAbsent => (CLUSTER, delete),
            vsphere::VCenterUnavailable
            | vsphere::VCenterCertificateRejected
            | vsphere::CredentialsRejected
            | vsphere::CredentialsMissing
            | vsphere::VCenterNotConfigured => (CLUSTER, self.ask_vcenter()),
            vsphere::VMPoweredOff => (VSPHERE, format!("govc vm.power -on {}", self.vm_place())),
            vsphere::ToolsNotRunning => {
                (GUEST, "in the VM: systemctl enable --now open-vm-tools (some systems: vmtoolsd)".to_owned())
            }
            vsphere::NoGuestNics
            | vsphere::NoUsableAddress
            | vsphere::NoAddressOfFamily
            | vsphere::NoNetworkMatches
            | reason::NoAddresses => {
                let reported = format!("govc object.collect -json {} guest.net", self.vm_place());
                (GUEST, format!("give the VM an address that the rules allow; it reports: {reported}"))
            }
            reason::ProvidedNodeIPNotValid | reason::ProvidedNodeIPNotOnVM => {
                (CLUSTER, "correct --node-ip of the kubelet, and restart it".to_owned())
            }
            vsphere::NoZoneTags => (VSPHERE, self.attach_tags()),
            vsphere::ZoneUnknown => (VSPHERE, self.list_tags()),
            vsphere::InvalidTagName => (VSPHERE, self.rename_tag()),
            reason::WriteRefused => (CLUSTER, self.may_patch()),
            reason::WriteConflict => (CLUSTER, format!("kubectl get node {node} -o yaml --show-managed-fields")),
            reason::APIServerUnavailable => (CLUSTER, "kubectl get --raw '/readyz?verbose'".to_owned()),
            reason::Panic => (CLUSTER, "report it as a bug, with the log line of the panic".to_owned()),
            _ => (CLUSTER, String::new()),
        };
        Advice { actor, fix, awaits: awaited_event(reason) }
    }

    /// Returns the path of the VM or, without one, a reference to its id.
    fn vm_place(&self) -> String {
        match self.vm {
            Some(VmReport { path: Some(path), .. }) => quoted(path),
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

    fn change_uuid(&self) -> String {
        format!("for each copy, while it is off: govc vm.change -vm {} -uuid $(uuidgen)", self.vm_place())
    }

    fn delete_rival(&self) -> String {
        match self.rivals.first() {
            Some(rival) => format!("if {rival} is an earlier name of this VM: kubectl delete node {rival}"),
            None => "delete the other Node if it is an earlier name of this VM".to_owned(),
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
        format!("vsphere-cloud-controller-manager explain vcenter {server}")
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
                commands.push(format!("govc tags.attach -c {} {tag} {object}", quoted(category)));
            }
        }
        commands.join("; ")
    }

    fn list_tags(&self) -> String {
        format!("govc tags.attached.ls -r -l {}", self.object_above_host())
    }

    fn rename_tag(&self) -> String {
        match self.zone.and_then(|zone| zone.categories.as_ref()) {
            Some(categories) => format!("govc tags.update -n NEW -c {} OLD", quoted(&categories.zone)),
            None => String::new(),
        }
    }

    fn may_patch(&self) -> String {
        "kubectl auth can-i patch nodes --as=system:serviceaccount:kube-system:cloud-controller-manager".to_owned()
    }

    fn object_above_host(&self) -> String {
        let object = self.zone.and_then(|zone| zone.above_host.as_ref());
        let path = object.and_then(|object| object.path.as_deref());
        path.map_or_else(|| "OBJECT".to_owned(), quoted)
    }
}

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

/// Quotes a word for a shell, if it needs quotes.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-:%@+=,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_when_they_need_it() {
        for (word, expected) in [
            ("/dc-1/vm/k8s%2fa", "/dc-1/vm/k8s%2fa"),
            ("/dc 1/vm", "'/dc 1/vm'"),
            ("it's; rm", "'it'\\''s; rm'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn each_reason_of_a_node_names_who_acts_and_commands_have_the_nodes_names() {
        let uuid: BiosUuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        let rivals = ["old-worker".to_owned()];
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
            (vsphere::SeveralVMsMatch, VSPHERE, "govc vm.change -vm VM -uuid"),
            (vsphere::NoPermission, VSPHERE, "govc permissions.set"),
            (vsphere::NameMatchRefused, CLUSTER, "--allow-name-match"),
            (vsphere::VMBacksAnotherNode, CLUSTER, "kubectl delete node old-worker"),
            (vsphere::ProviderIDMismatch, CLUSTER, "kubectl delete node worker-7"),
            (vsphere::MalformedProviderID, CLUSTER, "kubectl delete node worker-7"),
            (reason::NoProviderID, CLUSTER, "kubectl taint node worker-7"),
            (reason::InstanceAbsent, CLUSTER, "kubectl delete node worker-7"),
            (vsphere::CredentialsRejected, CLUSTER, "explain vcenter vc.example.com:443"),
            (vsphere::VMPoweredOff, VSPHERE, "govc vm.power -on VM"),
            (vsphere::ToolsNotRunning, GUEST, "open-vm-tools"),
            (vsphere::NoUsableAddress, GUEST, "govc object.collect -json VM guest.net"),
            (reason::ProvidedNodeIPNotOnVM, CLUSTER, "--node-ip"),
            (vsphere::ZoneUnknown, VSPHERE, "govc tags.attached.ls -r -l OBJECT"),
            (reason::WriteRefused, CLUSTER, "kubectl auth can-i patch nodes"),
            (reason::Panic, CLUSTER, "report it"),
        ] {
            let advice = inputs.advice(reason);
            assert_eq!(advice.actor, actor, "{reason}");
            assert!(advice.fix.contains(part) && !advice.awaits.is_empty(), "{reason}: {advice:?}");
        }
    }
}
