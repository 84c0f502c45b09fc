//! Tests with answers of vCenters and of the simulator, and with broken copies of them: the decoder's part of the wire
//! protocol checklist, and that no input makes a reader panic, or use unlimited time or memory.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::{collection, sample};

use super::call::{nothing, read_envelope, references, return_values};
use super::decoder::{DecodeError, Decoder};
use super::fault::{Fault, FaultKind};
use super::session::read_content;
use super::updates::{Page, read_page, read_update_set};
use super::version::read_offered;
use super::{GuestNic, MoRef, UpdateKind, UpdateSet, Value, user_agent};

/// `docs/compatibility.md` lists these limits.
#[test]
fn calls_have_limits() {
    let super::Timeouts { call, login, .. } = super::Timeouts::default();
    assert_eq!([call, login], [30, 60].map(Duration::from_secs));
    let settings = crate::clients::http::Settings::new("vc", 443, Default::default(), "test");
    assert_eq!(settings.connect_timeout, Duration::from_secs(10));
}

/// Returns an envelope in the form that vCenter 8 writes.
fn envelope(method: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n<{method}Response \
         xmlns=\"urn:vim25\">{content}</{method}Response>\n</soapenv:Body>\n</soapenv:Envelope>"
    )
}

/// Returns the update sets of an answer to `WaitForUpdatesEx`.
pub(crate) fn read_updates(text: &str) -> Result<Vec<UpdateSet>, DecodeError> {
    let read = |decoder: &mut Decoder<'_>| return_values(decoder, |decoder, _| read_update_set(decoder));
    read_envelope(text, "WaitForUpdatesEx", read).map(|answer| answer.unwrap_or_default())
}

/// Returns the changes of one filter. `objects` is the content of `filterSet` after `filter`.
pub(crate) fn updates(objects: &str) -> UpdateSet {
    let content = format!(
        "<returnval><version>1</version><filterSet><filter type=\"PropertyFilter\">f</filter>{objects}</filterSet>\
         </returnval>"
    );
    read_updates(&envelope("WaitForUpdatesEx", &content)).unwrap().pop().unwrap()
}

fn read_pages(text: &str) -> Result<Vec<Page>, DecodeError> {
    let read = |decoder: &mut Decoder<'_>| return_values(decoder, |decoder, _| read_page(decoder));
    read_envelope(text, "RetrievePropertiesEx", read).map(|answer| answer.unwrap_or_default())
}

/// Returns a complete answer of each kind, as input for [`mutated`].
pub(crate) fn seeds() -> Vec<String> {
    let update = r#"<returnval xsi:type="UpdateSet"><version>12</version><filterSet xsi:type="PropertyFilterUpdate">
        <filter type="PropertyFilter" xsi:type="ManagedObjectReference">session[52a1]filter-3</filter>
        <objectSet><kind>enter</kind><obj type="VirtualMachine" xsi:type="ManagedObjectReference">vm-17</obj>
          <changeSet><name>name</name><op>assign</op><val xsi:type="xsd:string">worker &amp; 1%2fa</val></changeSet>
          <changeSet><name>summary.config.uuid</name><op>assign</op>
            <val xsi:type="xsd:string">422e4956-ad22-1139-6d72-59cc8f26bc90</val></changeSet>
          <changeSet><name>config.extraConfig[&quot;guestinfo.metadata&quot;]</name><op>assign</op>
            <val xsi:type="OptionValue"><key>guestinfo.metadata</key><value xsi:type="xsd:string">e30=</value></val>
          </changeSet>
          <changeSet><name>guest.net</name><op>assign</op><val xsi:type="ArrayOfGuestNicInfo">
            <GuestNicInfo xsi:type="GuestNicInfo"><network>prod</network><ipAddress>10.1.2.3</ipAddress>
              <macAddress>00:50:56:aa:bb:cc</macAddress><connected>true</connected>
              <deviceConfigId>4000</deviceConfigId><ipConfig><ipAddress><ipAddress>10.1.2.3</ipAddress>
              <prefixLength>24</prefixLength></ipAddress></ipConfig></GuestNicInfo></val></changeSet>
          <changeSet><name>runtime.host</name><op>assign</op>
            <val type="HostSystem" xsi:type="ManagedObjectReference">host-9</val></changeSet>
          <missingSet><path>config.uuid</path><fault><fault xsi:type="NoPermission">
            <object type="VirtualMachine">vm-17</object><privilegeId>System.Read</privilegeId></fault>
            <localizedMessage>no</localizedMessage></fault></missingSet></objectSet>
        <objectSet><kind>modify</kind><obj type="HostSystem">host-9</obj>
          <changeSet><name>parent</name><op>assign</op><val type="ClusterComputeResource">domain-c8</val></changeSet>
        </objectSet>
        <objectSet><kind>leave</kind><obj type="VirtualMachine">vm-18</obj></objectSet>
      </filterSet><truncated>true</truncated></returnval>"#;
    let page = r#"<returnval><token>0</token><objects><obj type="SessionManager">SessionManager</obj>
        <propSet><name>currentSession</name><val xsi:type="UserSession"><key>52c0</key>
        <userName>EXAMPLE\jane</userName></val></propSet></objects></returnval>"#;
    let content = r#"<returnval><rootFolder type="Folder">group-d1</rootFolder>
        <propertyCollector type="PropertyCollector">propertyCollector</propertyCollector>
        <about><fullName>VMware vCenter Server 8.0.3</fullName><apiType>VirtualCenter</apiType>
        <apiVersion>8.0.3.0</apiVersion><instanceUuid>3bd6</instanceUuid></about>
        <sessionManager type="SessionManager">SessionManager</sessionManager></returnval>"#;
    let fault = "<soapenv:Envelope><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>no\
        </faultstring><detail><NoPermissionFault xsi:type=\"NoPermission\"><object type=\"Folder\">group-d1</object>\
        <missingPrivileges><entity type=\"Folder\">group-d1</entity><privilegeIds>System.Read</privilegeIds>\
        </missingPrivileges></NoPermissionFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>";
    let versions = "<namespaces version=\"1.0\"><namespace><name>urn:vim25</name><version>8.0.3.0</version>\
        <priorVersions><version>7.0.3.2</version><version>6.7.3</version></priorVersions></namespace></namespaces>";
    vec![
        envelope("WaitForUpdatesEx", update),
        envelope("RetrievePropertiesEx", page),
        envelope("RetrieveServiceContent", content),
        envelope("FindAllByUuid", "<returnval type=\"VirtualMachine\">vm-17</returnval>"),
        fault.to_owned(),
        versions.to_owned(),
    ]
}

/// Passes the text to each reader and ignores the results. The caller checks only that all readers return.
fn read_as_everything(text: &str) {
    let _ = read_updates(text);
    let _ = read_pages(text);
    let _ = read_envelope(text, "RetrieveServiceContent", |decoder| {
        return_values(decoder, |decoder, _| read_content(decoder))
    });
    let _ = read_envelope(text, "FindAllByUuid", references);
    let _ = read_envelope(text, "Logout", nothing);
    let _ = read_offered(text);
}

/// Generates answers that are cut off, joined, repeated or overwritten, as broken servers, proxies and attackers send.
pub(crate) fn mutated() -> impl Strategy<Value = String> {
    let place = || any::<sample::Index>();
    let edit = (0..6u8, sample::select(seeds()), place(), place(), collection::vec(any::<u8>(), 0..12));
    (sample::select(seeds()), collection::vec(edit, 1..6)).prop_map(|(seed, edits)| {
        let mut bytes = seed.into_bytes();
        for (kind, other, from, to, junk) in edits {
            if bytes.is_empty() {
                break;
            }
            let (one, two) = (from.index(bytes.len()), to.index(bytes.len()));
            let (low, high) = (one.min(two), one.max(two));
            match kind {
                0 => bytes.truncate(one),
                1 => {
                    bytes.truncate(one);
                    bytes.extend_from_slice(&other.as_bytes()[to.index(other.len())..]);
                }
                2 => drop(bytes.drain(low..high)),
                3 => {
                    let part = bytes[low..high].to_vec();
                    bytes.splice(one..one, part);
                }
                4 => drop(bytes.splice(one..one, junk)),
                _ => bytes[one] = junk.first().copied().unwrap_or(b'<'),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #[test]
    fn no_mutation_of_an_answer_makes_a_reader_panic(text in mutated()) {
        read_as_everything(&text);
    }

    #[test]
    fn no_bytes_inside_an_answer_make_a_reader_panic(
        bytes in collection::vec(any::<u8>(), 0..300),
        method in sample::select(vec!["WaitForUpdatesEx", "RetrievePropertiesEx", "RetrieveServiceContent", "Logout"]),
    ) {
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        read_as_everything(&envelope(method, &bytes));
        read_as_everything(&envelope(method, &format!("<returnval>{bytes}</returnval>")));
        read_as_everything(&format!("<Envelope><Body><Fault>{bytes}</Fault></Body></Envelope>"));
    }
}

#[test]
fn every_seed_is_a_good_answer_of_its_kind() {
    let seeds = seeds();
    assert_eq!(read_updates(&seeds[0]).unwrap()[0].filters[0].objects.len(), 3);
    assert_eq!(read_pages(&seeds[1]).unwrap()[0].objects.len(), 1);
    let read = |decoder: &mut Decoder<'_>| return_values(decoder, |decoder, _| read_content(decoder));
    let content = read_envelope(&seeds[2], "RetrieveServiceContent", read).unwrap().unwrap();
    assert_eq!(content[0].about.api_type, "VirtualCenter");
    assert_eq!(read_envelope(&seeds[3], "FindAllByUuid", references).unwrap().unwrap().len(), 1);
    assert_eq!(read_envelope(&seeds[4], "Login", nothing).unwrap().unwrap_err().kind, FaultKind::NoPermission);
    assert_eq!(read_offered(&seeds[5]).unwrap().len(), 3);
    for seed in &seeds {
        for end in 0..seed.len() {
            let cut = String::from_utf8_lossy(&seed.as_bytes()[..end]);
            assert!(read_updates(&cut).is_err(), "{cut}");
            assert!(read_envelope(&cut, "RetrieveServiceContent", read).is_err(), "{cut}");
        }
    }
}

/// Time limit for reading one answer. Linear work takes much less on a busy machine; quadratic work takes much more.
const READING_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn hostile_answers_are_refused_or_read_in_linear_time() {
    let mib = 1 << 20;
    let many = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    let inside = |content: &str| envelope("WaitForUpdatesEx", content);
    let attributes: String = (0..100_000).map(|number| format!(" a{number}=\"\"")).collect();
    let entities: String = (1..64).map(|level| format!("<!ENTITY e{level} \"&e{0};&e{0};\">", level - 1)).collect();
    let bomb = format!("<!DOCTYPE x [<!ENTITY e0 \"ha\">{entities}]>{}", inside("<returnval>&e63;</returnval>"));
    let too_deep = Some(DecodeError::TooDeep);
    let malformed = None;
    let cases = [
        ("open elements", many("<a>", mib), Some(DecodeError::Missing("Body"))),
        ("open elements inside", inside(&many("<returnval>", mib)), too_deep.clone()),
        ("open elements in a fault", format!("<Envelope><Body><Fault><detail>{}", many("<faultCause>", mib)), too_deep),
        (
            "many elements before the body",
            format!("<Envelope><Header>{}", many("<a/>", 5 * mib)),
            Some(DecodeError::TooManyElements),
        ),
        (
            "many elements in place of results",
            inside(&many("<a/>", mib)),
            Some(DecodeError::Unexpected { element: "response", found: "a".to_owned() }),
        ),
        (
            "many elements in a value",
            inside(&format!("<returnval>{}", many("<x/>", 5 * mib))),
            Some(DecodeError::TooManyElements),
        ),
        ("many attributes", format!("<Envelope{attributes}><Body/></Envelope>"), Some(DecodeError::TooManyAttributes)),
        ("many attributes, late", inside(&format!("<returnval{attributes}/>")), Some(DecodeError::TooManyAttributes)),
        ("entities of entities", bomb, Some(DecodeError::Missing("version"))),
        (
            "references",
            inside(&format!("<returnval><version>{}</version></returnval>", many("&amp;", mib))),
            malformed.clone(),
        ),
        ("one long text", inside(&format!("<returnval><version>{}", many("x", mib))), malformed.clone()),
        ("one long name", format!("<{}", many("x", mib)), malformed.clone()),
        ("one long attribute", format!("<a type=\"{}\"", many("&lt;", mib)), malformed.clone()),
        ("an open comment", format!("<!--{}", many("- ", mib)), malformed.clone()),
        ("an open section", format!("<a><![CDATA[{}", many("]", mib)), malformed.clone()),
        ("an open declaration", format!("<!DOCTYPE a [{}", many("<", mib)), malformed.clone()),
        ("ends without beginnings", many("</a>", mib), malformed.clone()),
        ("prefixes", many("a:", mib), malformed.clone()),
        ("versions", format!("<namespaces><namespace>{}", many("<version/>", mib)), malformed),
    ];
    for (case, text, expected) in cases {
        let began = Instant::now();
        let got = read_updates(&text);
        if let Some(expected) = expected {
            assert_eq!(got, Err(expected), "{case}");
        }
        // All readers share the decoder. The largest answers take seconds in a debug build: only one reader gets them.
        if text.len() <= 2 * mib {
            read_as_everything(&text);
        }
        assert!(began.elapsed() < READING_LIMIT, "{case} took {:?}", began.elapsed());
    }
}

#[test]
fn what_is_kept_of_an_answer_is_in_proportion_to_its_bytes() {
    let nics = "<GuestNicInfo/>".repeat(100_000);
    let text = updates_text(&format!(
        "<objectSet><kind>enter</kind><obj type=\"VirtualMachine\">vm-1</obj><changeSet><name>guest.net</name>\
         <op>assign</op><val>{nics}</val></changeSet></objectSet>"
    ));
    let set = read_updates(&text).unwrap().pop().unwrap();
    let kept = set.filters[0].objects[0].changes[0].value.as_ref();
    let Some(Value::Nics(kept)) = kept else { panic!("{kept:?}") };
    assert!(
        size_of_val(kept.as_slice()) < 16 * text.len(),
        "{} interfaces of {} bytes",
        kept.len(),
        size_of::<GuestNic>()
    );
    let fault = format!(
        "<Envelope><Body><Fault><faultstring>{0}</faultstring><detail><{1}Fault><privilegeId>{0}</privilegeId>{2}\
         </{1}Fault></detail></Fault></Body></Envelope>",
        "x".repeat(100_000),
        "y".repeat(10_000),
        "<privilegeId>p</privilegeId>".repeat(1_000)
    );
    let fault: Fault = read_envelope(&fault, "Login", nothing).unwrap().unwrap_err();
    assert!(fault.to_string().len() < 2_000, "{} bytes", fault.to_string().len());
}

fn updates_text(objects: &str) -> String {
    envelope(
        "WaitForUpdatesEx",
        &format!(
            "<returnval><version>1</version><filterSet><filter type=\"PropertyFilter\">f</filter>{objects}</filterSet>\
             </returnval>"
        ),
    )
}

#[test]
fn the_user_agent_begins_as_upstreams_and_names_program_version_and_commit() {
    for (commit, shown) in [(Some("0123456789abcdef"), "0123456"), (Some(""), "unknown"), (None, "unknown")] {
        let program = concat!("vsphere-cloud-controller-manager ", env!("CARGO_PKG_VERSION"));
        assert_eq!(user_agent(commit), format!("k8s-cloud-provider-vsphere ({program} {shown})"));
    }
}

/// Point 8.1: other prefixes, another order of attributes, unknown elements, and XML types on all or no elements.
#[test]
fn checklist_8_1_envelopes_of_every_style_say_the_same() {
    // `{T:…}` marks a place for an XML type, `{+}` a place for an unknown element.
    let template = "<{e}Envelope{ns}>{+}<{e}Body><{v}WaitForUpdatesExResponse><{v}returnval{T:UpdateSet}>{+}\
        <{v}version{T:xsd:string}>3</{v}version><{v}filterSet{T:PropertyFilterUpdate}>\
        <{v}filter{T:ManagedObjectReference} type=\"PropertyFilter\">f</{v}filter>\
        <{v}objectSet{T:ObjectUpdate}><{v}kind{T:ObjectUpdateKind}>enter</{v}kind>{+}\
        <{v}obj type=\"VirtualMachine\"{T:ManagedObjectReference}>vm-1</{v}obj>\
        <{v}changeSet{T:PropertyChange}><{v}name>runtime.host</{v}name><{v}op{T:PropertyChangeOp}>assign</{v}op>{+}\
        <{v}val{T:ManagedObjectReference} type=\"HostSystem\">host-1</{v}val></{v}changeSet>\
        <{v}changeSet><{v}name>guest.net</{v}name><{v}op>assign</{v}op><{v}val{T:ArrayOfGuestNicInfo}>\
        <{v}GuestNicInfo{T:GuestNicInfo}>{+}<{v}ipAddress{T:xsd:string}>10.0.0.1</{v}ipAddress>\
        <{v}connected>true</{v}connected><{v}deviceConfigId>4000</{v}deviceConfigId></{v}GuestNicInfo>\
        </{v}val></{v}changeSet></{v}objectSet>{+}</{v}filterSet></{v}returnval></{v}WaitForUpdatesExResponse>\
        </{e}Body></{e}Envelope>";
    let styles: [(&str, &str, &str, Option<&str>, &str); 6] = [
        ("vCenter", "soapenv:", "", Some(" xsi:type=\"{}\""), ""),
        ("simulator", "", "", Some(" xmlns:_XMLSchema-instance=\"x\" _XMLSchema-instance:type='{}'"), ""),
        ("no XML types", "S:", "", None, ""),
        ("prefixes everywhere", "SOAP-ENV:", "vim25:", Some(" i:type=\"vim25:{}\""), ""),
        ("later fields", "soapenv:", "", Some(" xsi:type=\"{}\""), "<later a=\"1\"><type>x</type><later/></later>"),
        ("blanks", "s:", "v:", None, "\n  <!-- blank -->\n  "),
    ];
    let mut read = Vec::new();
    for (style, envelope, vim, types, extra) in styles {
        let mut text = template.replace("{e}", envelope).replace("{v}", vim).replace("{+}", extra);
        text = text.replace("{ns}", if style == "vCenter" { " xmlns:xsi=\"x\"" } else { "" });
        while let Some((before, rest)) = text.split_once("{T:") {
            let (name, after) = rest.split_once('}').unwrap();
            let attribute = types.map(|types| types.replace("{}", name)).unwrap_or_default();
            text = format!("{before}{attribute}{after}");
        }
        read.push((style, read_updates(&text).unwrap_or_else(|error| panic!("{style}: {error}"))));
    }
    let expected = &read[0].1;
    assert_eq!(
        expected[0].filters[0].objects[0].changes[0].value,
        Some(Value::Ref(MoRef::new("HostSystem", "host-1")))
    );
    for (style, sets) in &read {
        assert_eq!(sets, expected, "{style}");
    }
}

/// Point 8.2: entities and character data in names and values, and both spellings of the quotes in a keyed path.
#[test]
fn checklist_8_2_entities_and_character_data_are_text() {
    for (name, value) in [
        ("config.extraConfig[&quot;a&amp;b&quot;]", "&lt;x y=&apos;1&apos;&gt; &#38; &#x1F600;"),
        ("config.extraConfig[&#34;a&#38;b&#x22;]", "<![CDATA[<x y='1'> & ]]>&#x1F600;"),
        ("config.extraConfig[\"a<![CDATA[&]]>b\"]", "<![CDATA[<x]]> y='1'&gt;<![CDATA[ & ]]>\u{1F600}"),
    ] {
        let set = updates(&format!(
            "<objectSet><kind>modify</kind><obj type=\"VirtualMachine\">vm&#45;1</obj><changeSet><name>{name}</name>\
             <op>assign</op><val xsi:type=\"xsd:string\">{value}</val></changeSet></objectSet>"
        ));
        let update = &set.filters[0].objects[0];
        assert_eq!(update.object.id(), "vm-1", "{name}");
        assert_eq!(update.changes[0].name, "config.extraConfig[\"a&b\"]", "{name}");
        assert_eq!(update.changes[0].value, Some(Value::Text("<x y='1'> & \u{1F600}".to_owned())), "{value}");
    }
}

/// Point 8.5, wire format: page tokens, truncation, an empty wait, and all ways to remove a property.
#[test]
fn checklist_8_5_pages_and_waits_of_every_shape_are_read() {
    for (token, expected) in [("<token>0</token>", Some("0")), ("<token>abc=</token>", Some("abc=")), ("", None)] {
        let page = format!("<returnval>{token}<objects><obj type=\"Folder\">group-1</obj></objects></returnval>");
        let page = read_pages(&envelope("RetrievePropertiesEx", &page)).unwrap().pop().unwrap();
        assert_eq!((page.token.as_deref(), page.objects.len()), (expected, 1));
    }
    assert!(read_pages(&envelope("RetrievePropertiesEx", "")).unwrap().is_empty(), "no object at all");
    assert_eq!(read_updates(&envelope("WaitForUpdatesEx", "")), Ok(Vec::new()), "nothing happened in time");
    for (text, truncated) in
        [("<truncated>true</truncated>", true), ("<truncated>false</truncated>", false), ("", false)]
    {
        let answer = envelope("WaitForUpdatesEx", &format!("<returnval><version>9</version>{text}</returnval>"));
        let set = read_updates(&answer).unwrap().pop().unwrap();
        assert_eq!((set.version.as_str(), set.truncated, set.filters.len()), ("9", truncated, 0));
    }
    let set = updates(
        "<objectSet><kind>leave</kind><obj type=\"VirtualMachine\">vm-1</obj></objectSet>\
         <objectSet><kind>modify</kind><obj type=\"VirtualMachine\">vm-2</obj>\
         <changeSet><name>a</name><op>assign</op></changeSet>\
         <changeSet><name>b</name><op>remove</op><val>old</val></changeSet>\
         <changeSet><name>c</name><op>indirectRemove</op></changeSet></objectSet>",
    );
    let objects = &set.filters[0].objects;
    assert_eq!((objects[0].kind, objects[0].changes.len()), (UpdateKind::Leave, 0));
    assert_eq!(objects[1].changes.len(), 3);
    assert!(objects[1].changes.iter().all(|change| change.value.is_none()), "{:?}", objects[1].changes);
}
