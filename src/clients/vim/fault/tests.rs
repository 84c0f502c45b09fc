//! Tests with faults in the forms that servers send.

use super::{Fault, FaultKind};
use crate::clients::vim::MoRef;
use crate::clients::vim::call::{nothing, read_envelope};

fn fault(detail: &str, text: &str) -> Fault {
    let document = format!(
        "<soapenv:Envelope><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode>\
         <faultstring>{text}</faultstring><detail>{detail}</detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>"
    );
    read_envelope(&document, "Login", nothing).unwrap().unwrap_err()
}

#[test]
fn the_type_decides_and_without_one_the_element_name() {
    let cases = [
        ("<NotAuthenticatedFault xmlns=\"urn:vim25\" xsi:type=\"NotAuthenticated\"/>", FaultKind::NotAuthenticated),
        ("<Fault _X:type=\"NotAuthenticated\"/>", FaultKind::NotAuthenticated),
        ("<NotAuthenticatedFault/>", FaultKind::NotAuthenticated),
        ("<InvalidLoginFault xsi:type=\"InvalidLogin\"/>", FaultKind::InvalidLogin),
        ("<PasswordExpiredFault xsi:type=\"vim25:PasswordExpired\"/>", FaultKind::PasswordExpired),
        ("<NoPermissionFault xsi:type=\"NoPermission\"/>", FaultKind::NoPermission),
        (
            "<ManagedObjectNotFoundFault><obj type=\"VirtualMachine\">vm-1</obj></ManagedObjectNotFoundFault>",
            FaultKind::ManagedObjectNotFound,
        ),
        ("<InvalidCollectorVersionFault xsi:type=\"InvalidCollectorVersion\"/>", FaultKind::InvalidCollectorVersion),
        ("<RequestCanceledFault xsi:type=\"RequestCanceled\"/>", FaultKind::RequestCanceled),
        ("<HostNotConnectedFault xsi:type=\"HostNotConnected\"/>", FaultKind::HostUnreachable),
        ("<MethodNotFoundFault xsi:type=\"MethodNotFound\"/>", FaultKind::NotSupported),
        ("<RuntimeFaultFault xsi:type=\"SystemError\"><reason>r</reason></RuntimeFaultFault>", FaultKind::SystemError),
        ("<NewFault xsi:type=\"FromTheFuture\"><x><y/></x></NewFault>", FaultKind::Other),
        ("", FaultKind::Other),
        // Only the content of `detail` counts.
        (
            "</detail><fault xsi:type=\"ManagedObjectNotFound\"><obj type=\"VirtualMachine\">vm-1</obj></fault><detail>",
            FaultKind::Other,
        ),
        (
            "<NotAuthenticatedFault/></detail><fault xsi:type=\"ManagedObjectNotFound\"/><detail>",
            FaultKind::NotAuthenticated,
        ),
    ];
    for (detail, kind) in cases {
        assert_eq!(fault(detail, "").kind, kind, "{detail}");
    }
}

#[test]
fn the_fields_make_the_message_since_servers_often_say_nothing() {
    let detail = "<NoPermissionFault xsi:type=\"NoPermission\"><faultCause><fault xsi:type=\"InvalidLogin\"/></faultCause>\
        <object type=\"Folder\">group-d1</object><privilegeId>System.Read</privilegeId>\
        <missingPrivileges><entity type=\"Folder\">group-d1</entity><privilegeIds>System.Read</privilegeIds>\
        <privilegeIds>System.View</privilegeIds></missingPrivileges></NoPermissionFault>";
    let denied = fault(detail, "");
    assert_eq!(denied.kind, FaultKind::NoPermission);
    assert_eq!(denied.object, Some(MoRef::new("Folder", "group-d1")));
    assert_eq!(denied.privileges, ["System.Read", "System.View"]);
    assert_eq!(denied.to_string(), "NoPermission on Folder:group-d1 (missing privilege System.Read, System.View)");
    let bad = fault(
        "<InvalidPropertyFault xsi:type=\"InvalidProperty\"><name>config.x</name></InvalidPropertyFault>",
        "two\n lines",
    );
    assert_eq!(bad.to_string(), "InvalidProperty (config.x): two lines");
    assert!(fault("", &"x".repeat(10_000)).to_string().len() < 600);
}
