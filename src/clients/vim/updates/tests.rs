//! Tests with answers to reads and waits, in the forms of a real server and of the simulator.

use super::{Page, UpdateKind, UpdateSet, read_page, read_update_set};
use crate::clients::vim::call::{read_envelope, return_values};
use crate::clients::vim::decoder::{DecodeError, Decoder};
use crate::clients::vim::{FaultKind, MoRef, Value};

fn envelope(method: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<S:Envelope xmlns:S=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<S:Body>\n<{method}Response xmlns=\"urn:vim25\">\
         {content}</{method}Response>\n</S:Body>\n</S:Envelope>"
    )
}

fn updates(content: &str) -> Result<Vec<UpdateSet>, DecodeError> {
    let text = envelope("WaitForUpdatesEx", content);
    let read = |decoder: &mut Decoder<'_>| return_values(decoder, |decoder, _| read_update_set(decoder));
    read_envelope(&text, "WaitForUpdatesEx", read).map(Result::unwrap)
}

fn page(content: &str) -> Page {
    let text = envelope("RetrievePropertiesEx", content);
    let read = |decoder: &mut Decoder<'_>| return_values(decoder, |decoder, _| read_page(decoder));
    read_envelope(&text, "RetrievePropertiesEx", read).unwrap().unwrap().pop().unwrap_or_default()
}

#[test]
fn a_wait_in_which_nothing_happened_is_empty() {
    assert_eq!(updates(""), Ok(Vec::new()));
}

#[test]
fn every_kind_of_change_is_read_in_order() {
    let content = r#"<returnval xsi:type="UpdateSet">
      <version>7</version>
      <filterSet xsi:type="PropertyFilterUpdate">
        <filter type="PropertyFilter" xsi:type="ManagedObjectReference">session[1]52</filter>
        <objectSet>
          <kind>enter</kind><obj type="VirtualMachine">vm-42</obj>
          <changeSet><name>config.extraConfig[&quot;guestinfo.metadata&#34;]</name><op>assign</op>
            <val xsi:type="OptionValue"><key>guestinfo.metadata</key><value xsi:type="xsd:string">eA==</value></val>
          </changeSet>
          <missingSet><path>config.uuid</path><fault><fault xsi:type="NoPermission">
            <object type="VirtualMachine">vm-42</object><privilegeId>System.Read</privilegeId></fault>
            <localizedMessage>no</localizedMessage></fault></missingSet>
        </objectSet>
        <objectSet>
          <kind>modify</kind><obj type="VirtualMachine">vm-42</obj>
          <changeSet><name>guest.hostName</name><op>assign</op></changeSet>
          <changeSet><name>a</name><op>remove</op></changeSet>
          <changeSet><name>b</name><op>indirectRemove</op><val>x</val></changeSet>
          <changeSet><val>x</val><op>add</op><name>c</name></changeSet>
        </objectSet>
        <objectSet><kind>leave</kind><obj type="VirtualMachine">vm-50</obj></objectSet>
        <missingSet><obj type="ListView">view</obj><fault><fault xsi:type="ManagedObjectNotFound">
          <obj type="ListView">view</obj></fault></fault></missingSet>
        <fromTheFuture><x/></fromTheFuture>
      </filterSet>
      <truncated>true</truncated>
    </returnval>"#;
    let set = updates(content).unwrap().pop().unwrap();
    assert_eq!((set.version.as_str(), set.truncated), ("7", true));
    let filter = &set.filters[0];
    assert_eq!(filter.filter, MoRef::new("PropertyFilter", "session[1]52"));
    let kinds: Vec<UpdateKind> = filter.objects.iter().map(|object| object.kind).collect();
    assert_eq!(kinds, [UpdateKind::Enter, UpdateKind::Modify, UpdateKind::Leave]);
    let entered = &filter.objects[0];
    assert_eq!(entered.changes[0].name, "config.extraConfig[\"guestinfo.metadata\"]");
    assert_eq!(entered.changes[0].value.as_ref().and_then(Value::as_str), Some("eA=="));
    assert_eq!(
        (entered.missing[0].path.as_str(), entered.missing[0].fault.kind),
        ("config.uuid", FaultKind::NoPermission)
    );
    let changes: Vec<_> = filter.objects[1].changes.iter().map(|change| change.value.is_some()).collect();
    assert_eq!(
        changes,
        [false, false, false, true],
        "assigned without a value, removed, removed with its parent, added"
    );
}

#[test]
fn an_answer_without_what_it_must_hold_is_refused() {
    let cases = [
        ("no version", "<returnval><truncated>false</truncated></returnval>"),
        (
            "unknown kind",
            "<returnval><version>1</version><filterSet><filter type=\"F\">f</filter><objectSet><kind>appear</kind><obj type=\"V\">v</obj></objectSet></filterSet></returnval>",
        ),
        (
            "object without class",
            "<returnval><version>1</version><filterSet><filter type=\"F\">f</filter><objectSet><kind>enter</kind><obj>v</obj></objectSet></filterSet></returnval>",
        ),
        (
            "change without name",
            "<returnval><version>1</version><filterSet><filter type=\"F\">f</filter><objectSet><kind>enter</kind><obj type=\"V\">v</obj><changeSet><op>assign</op></changeSet></objectSet></filterSet></returnval>",
        ),
    ];
    for (name, content) in cases {
        assert!(updates(content).is_err(), "{name}");
    }
}

#[test]
fn a_page_keeps_its_token_even_if_that_is_zero() {
    let full = page(
        "<returnval><token>0</token><objects><obj type=\"VirtualMachine\">vm-1</obj>\
         <propSet><name>name</name><val xsi:type=\"xsd:string\">a%2fb</val></propSet>\
         <propSet><name>unset</name></propSet></objects></returnval>",
    );
    assert_eq!(full.token.as_deref(), Some("0"));
    assert_eq!(full.objects[0].property("name").and_then(Value::as_str), Some("a%2fb"));
    assert_eq!(full.objects[0].property("unset"), None);
    let none = page("");
    assert!(none.objects.is_empty() && none.token.is_none());
}
