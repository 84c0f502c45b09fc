//! Answers of vCenter in the form of a real one: types on nearly all elements, no whitespace between elements. Pure.

use std::fmt::Write;

/// Number of machines in one answer: a full page.
pub const MACHINES: usize = 100;

const METADATA: &str = "bmV0d29yazoKICB2ZXJzaW9uOiAyCiAgZXRoZXJuZXRzOgogICAgbmljMDoKICAgICAgZGhjcDQ6IHRydWUK";

/// Returns the answer to a wait right after the machines were added to the filter.
pub fn entered() -> Vec<u8> {
    let mut content = String::from(
        "<returnval xsi:type=\"UpdateSet\"><version>4</version><filterSet xsi:type=\"PropertyFilterUpdate\">\
         <filter type=\"PropertyFilter\" xsi:type=\"ManagedObjectReference\">\
         session[52de3f4a-9b1c-7d60-8e2f-0a1b2c3d4e5f]52a7f0c8-63b4-19d2-a5e6-7f8091a2b3c4</filter>",
    );
    for number in 0..MACHINES {
        content.push_str("<objectSet xsi:type=\"ObjectUpdate\"><kind>enter</kind>");
        content.push_str(&reference("obj", "VirtualMachine", &format!("vm-{}", 1000 + number)));
        for (path, value) in properties(number) {
            let _ = write!(content, "<changeSet xsi:type=\"PropertyChange\"><name>{path}</name><op>assign</op>{value}");
            content.push_str("</changeSet>");
        }
        content.push_str("</objectSet>");
    }
    content.push_str("</filterSet><truncated>false</truncated></returnval>");
    envelope("WaitForUpdatesEx", &content)
}

/// Returns the last page of a read of the same machines.
pub fn page() -> Vec<u8> {
    let mut content = String::from("<returnval xsi:type=\"RetrieveResult\">");
    for number in 0..MACHINES {
        content.push_str("<objects xsi:type=\"ObjectContent\">");
        content.push_str(&reference("obj", "VirtualMachine", &format!("vm-{}", 1000 + number)));
        for (path, value) in properties(number) {
            let _ = write!(content, "<propSet xsi:type=\"DynamicProperty\"><name>{path}</name>{value}</propSet>");
        }
        content.push_str("</objects>");
    }
    content.push_str("</returnval>");
    envelope("RetrievePropertiesEx", &content)
}

fn envelope(method: &str, content: &str) -> Vec<u8> {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n\
         <{method}Response xmlns=\"urn:vim25\">{content}</{method}Response>\n</soapenv:Body>\n</soapenv:Envelope>"
    )
    .into_bytes()
}

fn reference(element: &str, kind: &str, id: &str) -> String {
    format!("<{element} type=\"{kind}\" xsi:type=\"ManagedObjectReference\">{id}</{element}>")
}

fn option(key: &str, value: &str) -> String {
    format!("<val xsi:type=\"OptionValue\"><key>{key}</key><value xsi:type=\"xsd:string\">{value}</value></val>")
}

/// Returns all set properties of a machine that the daemon reads, with their values.
fn properties(number: usize) -> Vec<(&'static str, String)> {
    let text = |kind: &str, text: &str| format!("<val xsi:type=\"{kind}\">{text}</val>");
    let name = format!("cluster-a-md-0-{number:05}-x7k2p");
    let uuid = format!("4213c3b6-1f0e-6a7d-92c4-{number:012x}");
    let instance_uuid = format!("5013a4d5-77f1-20be-4c11-{number:012x}");
    vec![
        ("config.instanceUuid", text("xsd:string", &instance_uuid)),
        ("config.uuid", text("xsd:string", &uuid)),
        ("config.extraConfig[&quot;guestinfo.metadata&quot;]", option("guestinfo.metadata", METADATA)),
        (
            "config.extraConfig[&quot;guestinfo.metadata.encoding&quot;]",
            option("guestinfo.metadata.encoding", "base64"),
        ),
        ("guest.hostName", text("xsd:string", &name)),
        ("guest.net", format!("<val xsi:type=\"ArrayOfGuestNicInfo\">{}</val>", interfaces(number))),
        ("guest.toolsRunningStatus", text("xsd:string", "guestToolsRunning")),
        ("name", text("xsd:string", &name)),
        ("parent", reference("val", "Folder", "group-v1003")),
        ("resourcePool", reference("val", "ResourcePool", "resgroup-1009")),
        ("runtime.connectionState", text("VirtualMachineConnectionState", "connected")),
        ("runtime.host", reference("val", "HostSystem", &format!("host-{}", 1010 + number % 8))),
        ("runtime.powerState", text("VirtualMachinePowerState", "poweredOn")),
        ("summary.config.guestId", text("xsd:string", "ubuntu64Guest")),
        ("summary.config.instanceUuid", text("xsd:string", &instance_uuid)),
        ("summary.config.memorySizeMB", text("xsd:int", "16384")),
        ("summary.config.numCpu", text("xsd:int", "8")),
        ("summary.config.template", text("xsd:boolean", "false")),
        ("summary.config.uuid", text("xsd:string", &uuid)),
        ("summary.config.vmPathName", text("xsd:string", &format!("[vsanDatastore] {uuid}/{name}.vmx"))),
    ]
}

/// Returns two interfaces with a virtual NIC, in both families, and four interfaces of the pod network.
fn interfaces(number: usize) -> String {
    let (high, low) = (number / 250, number % 250 + 1);
    let mut all = String::new();
    let first =
        [format!("10.10.{high}.{low}"), format!("2001:db8:10::{low:x}"), format!("fe80::250:56ff:fe00:{low:x}")];
    interface(&mut all, Some("k8s-workload"), 4000, &first);
    let second = [format!("192.168.{high}.{low}"), format!("fe80::250:56ff:fe01:{low:x}")];
    interface(&mut all, Some("k8s-storage"), 4001, &second);
    for pod in 0..4 {
        interface(&mut all, None, -1, &[format!("fe80::ecee:eeff:fe{pod:02x}:{low:x}")]);
    }
    all
}

fn interface(all: &mut String, network: Option<&str>, key: i32, addresses: &[String]) {
    all.push_str("<GuestNicInfo xsi:type=\"GuestNicInfo\">");
    if let Some(network) = network {
        let _ = write!(all, "<network>{network}</network>");
    }
    for address in addresses {
        let _ = write!(all, "<ipAddress>{address}</ipAddress>");
    }
    let _ = write!(
        all,
        "<macAddress>00:50:56:b3:{:02x}:{:02x}</macAddress><connected>true</connected>\
         <deviceConfigId>{key}</deviceConfigId><ipConfig xsi:type=\"NetIpConfigInfo\">",
        all.len() % 256,
        addresses.len(),
    );
    for address in addresses {
        let (length, state) = if address.contains(':') { (64, "unknown") } else { (24, "preferred") };
        let _ = write!(
            all,
            "<ipAddress xsi:type=\"NetIpConfigInfoIpAddress\"><ipAddress>{address}</ipAddress>\
             <prefixLength>{length}</prefixLength><state>{state}</state></ipAddress>"
        );
    }
    all.push_str("</ipConfig></GuestNicInfo>");
}
