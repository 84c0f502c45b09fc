//! Tests with values in the forms of a real server and of the simulator.

use super::{Value, decode_name, read_value};
use crate::clients::vim::decoder::{DecodeError, Decoder};
use crate::clients::vim::{GuestNic, MoRef};

fn value(document: &str) -> Result<Value, DecodeError> {
    let mut decoder = Decoder::new(document);
    let start = decoder.next_child()?.unwrap();
    let value = read_value(&mut decoder, &start)?;
    assert_eq!(decoder.depth(), 0, "the value is consumed whole");
    Ok(value)
}

fn nic(network: Option<&str>, addresses: &[&str], key: i32) -> GuestNic {
    GuestNic {
        network: network.map(str::to_owned),
        ip_addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        device_config_id: key,
    }
}

#[test]
fn values_are_read_from_both_servers_shapes() {
    let host = MoRef::new("HostSystem", "host-21");
    let option = Value::OptionValue { key: "guestinfo.metadata".to_owned(), value: "eA==".to_owned() };
    let cases = [
        ("string", "<val xsi:type=\"xsd:string\"> node 1</val>", Value::Text(" node 1".to_owned())),
        ("bare string", "<val>node-1</val>", Value::Text("node-1".to_owned())),
        (
            "reference",
            "<val type=\"HostSystem\" xsi:type=\"ManagedObjectReference\">host-21</val>",
            Value::Ref(host.clone()),
        ),
        (
            "simulator's reference",
            "<val _X:type=\"ManagedObjectReference\" type=\"HostSystem\">host-21</val>",
            Value::Ref(host.clone()),
        ),
        (
            "references",
            "<val xsi:type=\"ArrayOfManagedObjectReference\"><ManagedObjectReference type=\"HostSystem\" \
             xsi:type=\"ManagedObjectReference\">host-21</ManagedObjectReference></val>",
            Value::Refs(vec![host.clone()]),
        ),
        ("no references", "<val xsi:type=\"ArrayOfManagedObjectReference\"/>", Value::Refs(Vec::new())),
        (
            "option",
            "<val xsi:type=\"OptionValue\"><key>guestinfo.metadata</key><value xsi:type=\"xsd:string\">eA==</value></val>",
            option.clone(),
        ),
        ("option, bare", "<val><value>eA==</value><new><x/></new><key>guestinfo.metadata</key></val>", option),
        ("session", "<val><key>k</key><userName>u</userName></val>", Value::Other),
        ("other array", "<val xsi:type=\"ArrayOfString\"><string>a</string></val>", Value::Other),
        ("other empty array", "<val xsi:type=\"ArrayOfString\"/>", Value::Other),
        ("no interfaces", "<val xsi:type=\"ArrayOfGuestNicInfo\"></val>", Value::Nics(Vec::new())),
        ("no interfaces and no type", "<val/>", Value::Text(String::new())),
    ];
    for (name, document, expected) in cases {
        assert_eq!(value(document), Ok(expected), "{name}");
    }
}

#[test]
fn guest_interfaces_are_read_with_everything_around_them() {
    let document = r#"<val xsi:type="ArrayOfGuestNicInfo">
      <GuestNicInfo xsi:type="GuestNicInfo">
        <network>VM Network</network>
        <ipAddress>10.0.0.11</ipAddress>
        <ipAddress>fe80::250:56ff:fe00:1</ipAddress>
        <macAddress>00:50:56:00:00:01</macAddress>
        <connected>true</connected>
        <deviceConfigId>4000</deviceConfigId>
        <dnsConfig><dhcp>false</dhcp><ipAddress>10.0.0.1</ipAddress></dnsConfig>
        <ipConfig>
          <ipAddress><ipAddress>10.0.0.11</ipAddress><prefixLength>24</prefixLength></ipAddress>
        </ipConfig>
      </GuestNicInfo>
      <GuestNicInfo>
        <connected>false</connected>
        <deviceConfigId>-1</deviceConfigId>
        <ipConfig>
          <ipAddress><prefixLength>64</prefixLength><ipAddress>fd00::1</ipAddress></ipAddress>
          <ipAddress><ipAddress>169.254.1.1</ipAddress></ipAddress>
        </ipConfig>
      </GuestNicInfo>
    </val>"#;
    let addresses = ["10.0.0.11", "fe80::250:56ff:fe00:1"];
    let expected = vec![nic(Some("VM Network"), &addresses, 4000), nic(None, &["fd00::1", "169.254.1.1"], -1)];
    assert_eq!(value(document), Ok(Value::Nics(expected)));
    assert!(value("<val><GuestNicInfo><deviceConfigId>x</deviceConfigId></GuestNicInfo></val>").is_err());
}

#[test]
fn only_the_three_escapes_are_decoded_and_only_once() {
    let cases = [
        ("node-1", "node-1"),
        ("a%2fb", "a/b"),
        ("a%2Fb%5Cc", "a/b\\c"),
        ("100%25", "100%"),
        ("%252f", "%2f"),
        ("a%20b", "a%20b"),
        ("%", "%"),
        ("%2", "%2"),
        ("%é", "%é"),
        ("", ""),
    ];
    for (stored, shown) in cases {
        assert_eq!(decode_name(stored), shown, "{stored}");
    }
}
