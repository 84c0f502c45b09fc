//! Pure: SOAP envelopes. They are read as a tree, and written with one element in each line.

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::message::message;
use super::tokens::Tokens;
use super::value;
use super::words::vim;

/// Deepest element that is recorded. The product does not read deeper elements either.
const MAX_DEPTH: usize = 128;

/// Longest line in characters. Up to this length, elements without inner elements stay in the line of their parent.
const LONGEST_LINE: usize = 120;

/// Name of the count of attributes, comments and instructions that are left out.
const LEFT_OUT: &str = "attributes and comments left out";

#[derive(Default)]
struct Element {
    /// Name without its prefix.
    name: String,
    prefix: Option<String>,
    /// Attributes with their prefixes.
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
    text: String,
}

/// Returns the document with tokens, a line for each element. Returns `None` if it is not well-formed.
pub(super) fn redact(tokens: &mut Tokens, text: &str) -> Option<Vec<String>> {
    let root = parse(tokens, text)?;
    let mut writer = Writer { tokens, lines: Vec::new() };
    writer.element(&root, &Place::default(), 0);
    Some(writer.lines)
}

/// Joins the lines to a document again.
pub(super) fn join(lines: &[String]) -> String {
    lines.iter().map(|line| line.trim_start()).collect()
}

fn parse(tokens: &mut Tokens, text: &str) -> Option<Element> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) if open.len() <= MAX_DEPTH => open.push(start(&tag)?),
            Event::End(_) => {
                let element = open.pop()?;
                open.last_mut()?.children.push(element);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text),
            Event::CData(text) => open.last_mut()?.text.push_str(&text),
            Event::GeneralRef(reference) => {
                let character = match (reference.resolve_char_ref().ok()?, reference.as_ref()) {
                    (Some(character), _) => character,
                    (None, "amp") => '&',
                    (None, "lt") => '<',
                    (None, "gt") => '>',
                    (None, "quot") => '"',
                    (None, "apos") => '\'',
                    (None, _) => char::REPLACEMENT_CHARACTER,
                };
                open.last_mut()?.text.push(character);
            }
            Event::Comment(_) | Event::PI(_) | Event::DocType(_) => tokens.removed(LEFT_OUT),
            Event::Decl(_) => {}
            Event::Start(_) | Event::Empty(_) => return None,
            Event::Eof => break,
        }
    }
    let [mut document] = <[Element; 1]>::try_from(open).ok()?;
    (document.children.len() == 1 && document.text.trim().is_empty()).then(|| document.children.pop())?
}

fn start(tag: &BytesStart<'_>) -> Option<Element> {
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.ok()?;
        let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok()?;
        attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    let name = tag.name();
    let (local, prefix) = name.decompose();
    let prefix = prefix.map(|prefix| prefix.as_ref().to_owned());
    Some(Element { name: local.as_ref().to_owned(), prefix, attributes, ..Element::default() })
}

/// The place of an element in the document.
#[derive(Clone, Default)]
struct Place<'a> {
    parent: &'a str,
    /// The property whose value this is, if it is one.
    property: Option<&'a str>,
}

struct Writer<'t> {
    tokens: &'t mut Tokens,
    lines: Vec<String>,
}

impl Writer<'_> {
    fn element(&mut self, element: &Element, place: &Place<'_>, depth: usize) {
        let name = match vim::is_element(&element.name) {
            true => element.name.clone(),
            false => self.tokens.name(&element.name),
        };
        let name = match &element.prefix {
            Some(prefix) if vim::NAME_SPACE_PREFIXES.contains(&prefix.as_str()) => format!("{prefix}:{name}"),
            Some(_) => format!("other:{name}"),
            None => name,
        };
        let attributes = self.attributes(element);
        let text = match element.children.is_empty() {
            true => self.text(element, place),
            false if element.text.trim().is_empty() => String::new(),
            // Text next to child elements is never needed.
            false => self.tokens.text(&element.text),
        };
        let (indent, text) = (" ".repeat(depth), escaped(&text));
        if element.children.is_empty() {
            self.lines.push(format!("{indent}<{name}{attributes}>{text}</{name}>"));
            return;
        }
        let first = self.lines.len();
        self.lines.push(format!("{indent}<{name}{attributes}>{text}"));
        let named = element.children.iter().find(|child| child.name == "name").map(|child| child.text.as_str());
        for child in &element.children {
            let property = match (child.name.as_str(), place.property) {
                ("val", _) => named,
                (_, inherited) => inherited,
            };
            self.element(child, &Place { parent: &element.name, property }, depth + 1);
        }
        self.lines.push(format!("{indent}</{name}>"));
        let is_flat = element.children.iter().all(|child| child.children.is_empty());
        let length: usize = self.lines.iter().skip(first).map(|line| line.len()).sum();
        if is_flat && length <= LONGEST_LINE {
            let line = join(&self.lines.split_off(first));
            self.lines.push(format!("{indent}{line}"));
        }
    }

    /// Returns the attributes that a reader needs: the class of a managed object, and the type of a value. The
    /// product's reader ignores namespaces.
    fn attributes(&mut self, element: &Element) -> String {
        let mut written = String::new();
        for (name, text) in &element.attributes {
            let (prefix, local) = name.split_once(':').unwrap_or(("", name));
            if prefix == "xmlns" || name == "xmlns" {
                continue;
            }
            let is_known_prefix = |prefix: &str| prefix.is_empty() || vim::NAME_SPACE_PREFIXES.contains(&prefix);
            let kept = match (prefix, local) {
                ("", "type") => Some(self.type_name(text)),
                // Readers accept any prefix for the namespace of types.
                (_, "type") => Some(self.prefixed_type(text)),
                ("xsi", "nil") => Some(value::word(self.tokens, text)),
                _ => None,
            };
            let name = match (prefix, local) {
                (prefix, "type") if !is_known_prefix(prefix) => "xsi:type",
                _ => name,
            };
            match kept {
                Some(kept) => written.push_str(&format!(" {name}=\"{}\"", escaped(&kept))),
                None => self.tokens.removed(LEFT_OUT),
            }
        }
        written
    }

    fn type_name(&mut self, text: &str) -> String {
        if vim::is_type(text) { text.to_owned() } else { self.tokens.name(text) }
    }

    fn prefixed_type(&mut self, text: &str) -> String {
        match text.split_once(':') {
            Some((prefix, name)) if vim::NAME_SPACE_PREFIXES.contains(&prefix) => {
                format!("{prefix}:{}", self.type_name(name))
            }
            Some((_, name)) => self.type_name(name),
            None => self.type_name(text),
        }
    }

    /// Returns the text of an element without children, with tokens.
    fn text(&mut self, element: &Element, place: &Place<'_>) -> String {
        let (text, tokens) = (element.text.as_str(), &mut *self.tokens);
        if text.trim().is_empty() {
            return String::new();
        }
        // An element with the attribute `type` is a managed object; the attribute is its class.
        if element.attributes.iter().any(|(name, _)| name == "type") {
            return value::id(tokens, text);
        }
        match (place.parent, element.name.as_str()) {
            ("Login" | "LoginByToken" | "CloneSession", _) | (_, "password") => value::credential(tokens, text),
            // The client's counter of its calls.
            (_, "operationID") => value::REMOVED.to_owned(),
            (_, "faultstring" | "localizedMessage" | "message") | ("about", "fullName") => message(tokens, text, None),
            ("about" | "namespace" | "priorVersions", name) if VERSIONS.contains(&name) => value::version(tokens, text),
            ("about" | "namespace" | "propSet" | "changeSet" | "selectSet", "name") => value::word(tokens, text),
            (_, name) if NUMBERS.contains(&name) => value::number(tokens, text),
            (_, name) if WORDS.contains(&name) => value::word(tokens, text),
            (_, "val") => match place.property {
                Some(property) if property_of_words(property) => value::word(tokens, text),
                Some(property) if property_of_numbers(property) => value::number(tokens, text),
                _ => value::value(tokens, text),
            },
            _ => value::value(tokens, text),
        }
    }
}

/// Elements whose texts are schema words.
const WORDS: [&str; 34] = [
    "all",
    "apiType",
    "argument",
    "autoConfigurationEnabled",
    "connected",
    "extensionSession",
    "faultcode",
    "instanceUuid",
    "invalidProperty",
    "kind",
    "licenseProductName",
    "locale",
    "localeVersion",
    "messageLocale",
    "method",
    "op",
    "origin",
    "osType",
    "partialUpdates",
    "path",
    "pathSet",
    "privId",
    "privilegeId",
    "privilegeIds",
    "productLineId",
    "returnval",
    "skip",
    "state",
    "truncated",
    "type",
    "vendor",
    "vmSearch",
    "property",
    "obj",
];

/// Elements whose texts are numbers, or ids of states that are mostly numbers.
const NUMBERS: [&str; 8] = [
    "callCount",
    "deviceConfigId",
    "maxObjectUpdates",
    "maxObjects",
    "maxWaitSeconds",
    "prefixLength",
    "token",
    "version",
];

/// Elements about the product whose texts are versions.
const VERSIONS: [&str; 6] = ["version", "apiVersion", "build", "licenseProductVersion", "patchLevel", "localeBuild"];

fn property_of_words(path: &str) -> bool {
    matches!(
        path,
        "runtime.powerState"
            | "runtime.connectionState"
            | "runtime.inMaintenanceMode"
            | "summary.config.template"
            | "summary.config.guestId"
            | "guest.toolsRunningStatus"
    )
}

fn property_of_numbers(path: &str) -> bool {
    matches!(path, "summary.config.numCpu" | "summary.config.memorySizeMB")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Tokens, join, redact};

    const ENVELOPE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <!-- secret --><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:secret="urn:secret">
        <soapenv:Body><RetrievePropertiesExResponse xmlns="urn:vim25"><returnval><objects>
        <obj type="VirtualMachine" serverGuid="420a1b2c-3d4e-5f60-7182-93a4b5c6d7e8">vm-42</obj>
        <propSet><name>name</name><val other:type="schema:string">Web &amp; shop</val></propSet>
        <propSet><name>guest.net</name><val xsi:type="ArrayOfGuestNicInfo"><GuestNicInfo xsi:type="GuestNicInfo">
          <network>Secret LAN</network><ipAddress>10.0.0.7</ipAddress><macAddress>00:50:56:01:02:03</macAddress>
          <deviceConfigId>4000</deviceConfigId><secretField>a</secretField></GuestNicInfo></val></propSet>
        <propSet><name>runtime.powerState</name><val>poweredOn</val></propSet>
        <propSet><name>secret.path</name><val>poweredOn</val></propSet>
        <missingSet><path>guest.hostName</path><fault><fault xsi:type="NoPermission"><object type="Folder">group-v3</object>
          <privilegeId>System.Read</privilegeId></fault><localizedMessage>Bob may not</localizedMessage></fault></missingSet>
        </objects></returnval></RetrievePropertiesExResponse></soapenv:Body></soapenv:Envelope>"#;

    #[test]
    fn an_envelope_keeps_elements_classes_and_states() {
        let lines = redact(&mut Tokens::default(), ENVELOPE).unwrap();
        let expected = r#"<soapenv:Envelope>
 <soapenv:Body>
  <RetrievePropertiesExResponse>
   <returnval>
    <objects>
     <obj type="VirtualMachine">vm-1</obj>
     <propSet><name>name</name><val xsi:type="string">text-1</val></propSet>
     <propSet>
      <name>guest.net</name>
      <val xsi:type="ArrayOfGuestNicInfo">
       <GuestNicInfo xsi:type="GuestNicInfo">
        <network>text-2</network>
        <ipAddress>192.0.2.1</ipAddress>
        <macAddress>text-3</macAddress>
        <deviceConfigId>4000</deviceConfigId>
        <unknown-1>text-4</unknown-1>
       </GuestNicInfo>
      </val>
     </propSet>
     <propSet><name>runtime.powerState</name><val>poweredOn</val></propSet>
     <propSet><name>text-5</name><val>text-6</val></propSet>
     <missingSet>
      <path>guest.hostName</path>
      <fault>
       <fault xsi:type="NoPermission">
        <object type="Folder">group-v-1</object>
        <privilegeId>System.Read</privilegeId>
       </fault>
       <localizedMessage>text-7</localizedMessage>
      </fault>
     </missingSet>
    </objects>
   </returnval>
  </RetrievePropertiesExResponse>
 </soapenv:Body>
</soapenv:Envelope>"#;
        assert_eq!(lines.join("\n"), expected);
        let again = redact(&mut Tokens::of_replay(), &join(&lines)).unwrap();
        assert_eq!(again, lines, "what has only tokens stays as it is in a replay");
    }

    #[test]
    fn of_a_login_neither_user_nor_password_is_kept() {
        let text = "<Login><_this type=\"SessionManager\">SessionManager</_this><userName>bob</userName>\
                    <password>hunter2</password></Login>";
        let lines = redact(&mut Tokens::default(), text).unwrap();
        let expected = "<Login>\n <_this type=\"SessionManager\">SessionManager</_this>\n <userName>removed</userName>\n \
                        <password>removed</password>\n</Login>";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn what_is_not_well_formed_is_not_read() {
        let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
        for text in ["", "secret", "<a>", "<a></b>", "<a/><b/>", "<a b='1' b='2'/>", &deep] {
            assert_eq!(redact(&mut Tokens::default(), text), None, "{text}");
        }
    }
}
