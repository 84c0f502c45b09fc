//! Fresh reads by id, and fresh searches. The answers are evidence, and the snapshot is only a cache.
//!
//! Only the fault `ManagedObjectNotFound` that names the requested object proves that the object is gone. A missing
//! permission and a missing answer are separate results.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Vcenter;
use crate::clients::vim::{self, Fault, FaultKind, FilterSpec, MoRef, ObjectContent, Value, decode_name};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::vcenter::outage::failure_of;
use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;

/// Time limit of one read or search.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(10);

/// The privilege that a read needs. Reported if the denial of vCenter names no privilege.
pub(super) const READ_PRIVILEGE: &str = "System.Read";

/// The properties that identify a VM. Two of the properties contain the same UUID.
const IDENTITY_PATHS: [&str; 3] = ["name", "config.uuid", "summary.config.uuid"];

/// The property with the connection state of a VM or a host.
pub(super) const CONNECTION_STATE: &str = "runtime.connectionState";

/// Result of a read.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadAnswer<T> {
    /// The object exists.
    Found(T),
    /// vCenter reports that exactly this object does not exist.
    Gone,
    /// The account may not read the object. The object may or may not exist.
    Denied(Denial),
    /// No conclusion, because of a missing answer or another fault.
    Silent(VcenterFailure),
}

impl<T> ReadAnswer<T> {
    /// Maps `Found` by `judge`. Other results stay.
    pub(super) fn and_then<U>(self, judge: impl FnOnce(T) -> ReadAnswer<U>) -> ReadAnswer<U> {
        match self {
            ReadAnswer::Found(found) => judge(found),
            ReadAnswer::Gone => ReadAnswer::Gone,
            ReadAnswer::Denied(denial) => ReadAnswer::Denied(denial),
            ReadAnswer::Silent(failure) => ReadAnswer::Silent(failure),
        }
    }
}

/// An object that the account may not read, and the missing privilege.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The object as vCenter names it, for example `Folder:group-v3`.
    pub object: String,
    /// The missing privileges, joined by commas.
    pub privilege: String,
    /// Whether vCenter reported the denial. Otherwise, vCenter returned nothing.
    pub is_logged: bool,
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { object, privilege, is_logged: is_told } = self;
        if *is_told {
            return write!(f, "NoPermission on {object}: privilege {privilege} is missing");
        }
        write!(
            f,
            "vCenter returned nothing for {object}; the account probably lacks {privilege} there: grant it the role \
             Read-only with propagation"
        )
    }
}

/// Identity of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmIdentity {
    /// The name in vCenter, decoded; empty if unreadable.
    pub name: String,
    /// The BIOS UUID; `None` if unset or unreadable.
    pub bios_uuid: Option<BiosUuid>,
}

/// The result of reading a VM.
pub type VmRead = ReadAnswer<VmIdentity>;

/// The result of reading a host: its `runtime.connectionState`, as vCenter spells it.
pub type HostRead = ReadAnswer<String>;

/// The result of reading whether an object exists.
pub type ObjectRead = ReadAnswer<()>;

/// The result of a search: the matching ids, possibly none. Never [`ReadAnswer::Gone`].
pub type SearchRead = ReadAnswer<Vec<Arc<str>>>;

impl Vcenter {
    /// Reads the identity of the VM with this id.
    pub async fn read_vm(&self, id: &str) -> VmRead {
        let read = self.read(&MoRef::new("VirtualMachine", id), &IDENTITY_PATHS).await;
        read.and_then(|content| ReadAnswer::Found(identity(&content)))
    }

    /// Reads the connection state of this host. If the answer lacks the state, the result is `Denied` or `Silent`.
    pub async fn read_host(&self, host: &MoRef) -> HostRead {
        self.read(host, &["name", CONNECTION_STATE]).await.and_then(connection_state)
    }

    /// Reads whether this object exists.
    pub async fn read_object(&self, object: &MoRef) -> ObjectRead {
        self.read(object, &["name"]).await.and_then(|_| ReadAnswer::Found(()))
    }

    /// Searches the whole vCenter for VMs with this BIOS UUID, in the given byte order.
    pub async fn search_by_uuid(&self, uuid: &BiosUuid) -> SearchRead {
        self.search(self.session.soap().find_all_by_uuid(&uuid.to_string())).await
    }

    /// Searches the whole vCenter for VMs whose guest has this host name, or this IP address if `name` is one.
    pub async fn search_by_name(&self, name: &str) -> SearchRead {
        if name.parse::<IpAddr>().is_ok() {
            return self.search(self.session.soap().find_all_by_ip(name)).await;
        }
        self.search(self.session.soap().find_all_by_dns_name(name)).await
    }

    async fn search(&self, call: impl Future<Output = Result<Vec<MoRef>, vim::Error>>) -> SearchRead {
        let found = self.call(None, call).await;
        found.and_then(|objects| ReadAnswer::Found(objects.iter().map(|object| object.id().into()).collect()))
    }

    pub(super) async fn read(&self, object: &MoRef, paths: &[&str]) -> ReadAnswer<ObjectContent> {
        let spec = FilterSpec::of_object(object, paths);
        let objects = self.call(Some(object), self.session.soap().retrieve_properties(&spec)).await;
        objects.and_then(|objects| classify_content(object, objects))
    }

    /// Makes a call within the time limit. The same vCenter must be live before and after the call. `object` is the
    /// object that the call reads, if any.
    async fn call<T>(
        &self,
        object: Option<&MoRef>,
        call: impl Future<Output = Result<T, vim::Error>>,
    ) -> ReadAnswer<T> {
        let before = self.snapshot();
        if let Err(failure) = before.freshness.check() {
            return ReadAnswer::Silent(failure);
        }
        let answer = match timeout(READ_LIMIT, call).await {
            Ok(Ok(answer)) => {
                self.read_failures.answered();
                answer
            }
            Ok(Err(error)) => {
                self.report_failed_read(&error);
                return classify_error(object, &error);
            }
            Err(_) => {
                let reason = format!("no answer within {} s", READ_LIMIT.as_secs());
                return ReadAnswer::Silent(VcenterFailure::unavailable(reason));
            }
        };
        let after = self.snapshot();
        if let Err(failure) = after.freshness.check() {
            return ReadAnswer::Silent(failure);
        }
        if after.instance_uuid != before.instance_uuid {
            return ReadAnswer::Silent(VcenterFailure::unavailable("another vCenter now answers at its address"));
        }
        ReadAnswer::Found(answer)
    }
}

/// Classifies the error of a call that reads this object, if any.
fn classify_error<T>(object: Option<&MoRef>, error: &vim::Error) -> ReadAnswer<T> {
    if object.is_some_and(|object| error.is_managed_object_not_found(object)) {
        return ReadAnswer::Gone;
    }
    match error.fault().and_then(|fault| denial(fault, None)) {
        Some(denial) => ReadAnswer::Denied(denial),
        None => ReadAnswer::Silent(failure_of(error)),
    }
}

/// Returns the denial of a permission fault, or `None` for another fault. `asked` is the object that was read, for a
/// fault that names no object.
pub(super) fn denial(fault: &Fault, asked: Option<&MoRef>) -> Option<Denial> {
    if fault.kind != FaultKind::NoPermission {
        return None;
    }
    let object = fault.object.as_ref().or(asked);
    let privilege = match fault.privileges.as_slice() {
        [] => READ_PRIVILEGE.to_string(),
        privileges => privileges.join(", "),
    };
    let object = object.map_or_else(|| "an object it does not name".to_string(), MoRef::to_string);
    Some(Denial { object, privilege, is_logged: true })
}

/// Classifies an answer without a fault. One readable property proves that the object exists.
fn classify_content(object: &MoRef, objects: Vec<ObjectContent>) -> ReadAnswer<ObjectContent> {
    let untold = || Denial { object: object.to_string(), privilege: READ_PRIVILEGE.to_string(), is_logged: false };
    let Some(content) = objects.into_iter().find(|content| content.object == *object) else {
        return ReadAnswer::Denied(untold());
    };
    if !content.properties.is_empty() {
        return ReadAnswer::Found(content);
    }
    match content.missing.first() {
        None => ReadAnswer::Denied(untold()),
        Some(missing) => {
            let denied = content.missing.iter().find_map(|missing| denial(&missing.fault, Some(object)));
            let reason = || format!("the answer to a read of {object} holds no property: {}", missing.fault);
            denied.map_or_else(|| ReadAnswer::Silent(VcenterFailure::unavailable(reason())), ReadAnswer::Denied)
        }
    }
}

fn connection_state(content: ObjectContent) -> HostRead {
    let ObjectContent { object, missing, .. } = &content;
    if let Some(state) = content.property(CONNECTION_STATE).and_then(Value::as_str) {
        return ReadAnswer::Found(state.to_owned());
    }
    let untold = missing.iter().find(|missing| missing.path == CONNECTION_STATE);
    match untold.and_then(|missing| denial(&missing.fault, Some(object))) {
        Some(denial) => ReadAnswer::Denied(denial),
        None => ReadAnswer::Silent(VcenterFailure::unavailable(format!(
            "vCenter does not say {CONNECTION_STATE} of {object}"
        ))),
    }
}

fn identity(content: &ObjectContent) -> VmIdentity {
    let text = |path: &str| content.property(path).and_then(Value::as_str);
    let uuid = |path: &str| text(path).and_then(|text| text.parse().ok());
    VmIdentity {
        name: text("name").map(decode_name).unwrap_or_default(),
        bios_uuid: uuid("config.uuid").or_else(|| uuid("summary.config.uuid")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::http::{Error, FailedRequest};
    use crate::clients::vim::MissingProperty;

    fn vm() -> MoRef {
        MoRef::new("VirtualMachine", "vm-3")
    }

    fn fault(kind: FaultKind, object: Option<MoRef>, privileges: &[&str]) -> Fault {
        Fault {
            kind,
            name: kind.as_str().to_string(),
            message: String::new(),
            object,
            privileges: privileges.iter().map(|&privilege| privilege.to_string()).collect(),
            subject: None,
        }
    }

    fn request() -> FailedRequest {
        FailedRequest { endpoint: "vc:443".into(), operation: "RetrievePropertiesEx" }
    }

    fn failed(fault: Fault) -> vim::Error {
        vim::Error::Fault(request(), Box::new(fault))
    }

    #[test]
    fn only_the_fault_that_names_this_object_says_that_it_is_gone() {
        let gone = FaultKind::ManagedObjectNotFound;
        for (case, error, is_gone) in [
            ("itself", failed(fault(gone, Some(vm()), &[])), true),
            ("another machine", failed(fault(gone, Some(MoRef::new("VirtualMachine", "vm-4")), &[])), false),
            ("same id, another class", failed(fault(gone, Some(MoRef::new("Folder", "vm-3")), &[])), false),
            ("a collector", failed(fault(gone, Some(MoRef::new("PropertyCollector", "c")), &[])), false),
            ("a filter", failed(fault(gone, Some(MoRef::new("PropertyFilter", "f")), &[])), false),
            ("a view", failed(fault(gone, Some(MoRef::new("ListView", "v")), &[])), false),
            ("nobody", failed(fault(gone, None, &[])), false),
            ("NotFound", failed(fault(FaultKind::NotFound, Some(vm()), &[])), false),
            ("NoPermission", failed(fault(FaultKind::NoPermission, Some(vm()), &[])), false),
            ("NotAuthenticated", failed(fault(FaultKind::NotAuthenticated, Some(vm()), &[])), false),
            ("SystemError", failed(fault(FaultKind::SystemError, Some(vm()), &[])), false),
            ("no answer", vim::Error::Http(Error::Timeout(request(), READ_LIMIT)), false),
        ] {
            let read: ObjectRead = classify_error(Some(&vm()), &error);
            assert_eq!(read == ReadAnswer::Gone, is_gone, "{case}: {read:?}");
        }
    }

    #[test]
    fn a_denial_names_object_and_privileges_as_far_as_vcenter_does() {
        let folder = MoRef::new("Folder", "group-v3");
        for (case, fault, expected) in [
            (
                "old form",
                fault(FaultKind::NoPermission, Some(vm()), &["System.Read"]),
                "NoPermission on VirtualMachine:vm-3: privilege System.Read is missing",
            ),
            (
                "several privileges, since 7.0.3.2",
                fault(FaultKind::NoPermission, Some(folder), &["System.View", "System.Read"]),
                "NoPermission on Folder:group-v3: privilege System.View, System.Read is missing",
            ),
            (
                "nothing named",
                fault(FaultKind::NoPermission, None, &[]),
                "NoPermission on an object it does not name: privilege System.Read is missing",
            ),
        ] {
            match classify_error::<()>(Some(&vm()), &failed(fault)) {
                ReadAnswer::Denied(denial) => assert_eq!(denial.to_string(), expected, "{case}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_answer_without_fault_is_found_denied_or_silent() {
        let content = |object: MoRef, properties: &[(&str, &str)], missing: Option<FaultKind>| ObjectContent {
            object,
            properties: properties
                .iter()
                .map(|(path, value)| ((*path).to_string(), Value::Text((*value).to_string())))
                .collect(),
            missing: missing
                .map(|kind| MissingProperty { path: "config.uuid".into(), fault: fault(kind, None, &[]) })
                .into_iter()
                .collect(),
        };
        let named = [("name", "n")];
        for (case, objects, expected) in [
            ("readable", vec![content(vm(), &named, None)], "found"),
            ("one path denied", vec![content(vm(), &named, Some(FaultKind::NoPermission))], "found"),
            ("all denied", vec![content(vm(), &[], Some(FaultKind::NoPermission))], "denied"),
            ("gone beside a property", vec![content(vm(), &[], Some(FaultKind::ManagedObjectNotFound))], "silent"),
            ("nothing of it", vec![content(vm(), &[], None)], "untold"),
            ("another object", vec![content(MoRef::new("VirtualMachine", "vm-4"), &named, None)], "untold"),
            ("no object", vec![], "untold"),
        ] {
            let read = classify_content(&vm(), objects);
            let is = match &read {
                ReadAnswer::Found(_) => "found",
                ReadAnswer::Gone => "gone",
                ReadAnswer::Denied(denial) if denial.is_logged => "denied",
                ReadAnswer::Denied(_) => "untold",
                ReadAnswer::Silent(_) => "silent",
            };
            assert_eq!(is, expected, "{case}: {read:?}");
        }
    }

    #[test]
    fn the_uuid_is_read_from_either_path() {
        let uuid = "422e4956-ad22-1139-6d72-59cc8f26bc90";
        for (path, value, expected) in [
            ("config.uuid", uuid.to_uppercase(), Some(uuid)),
            ("summary.config.uuid", uuid.to_string(), Some(uuid)),
            ("config.uuid", "rubbish".to_string(), None),
        ] {
            let content =
                ObjectContent { object: vm(), properties: vec![(path.into(), Value::Text(value))], missing: vec![] };
            assert_eq!(identity(&content).bios_uuid.map(|uuid| uuid.to_string()).as_deref(), expected, "{path}");
        }
    }
}
