//! Tests of escaping, and of the envelope around a method.

use super::{RequestBody, escape_into};
use crate::clients::http::BodyWriter;
use crate::clients::vim::MoRef;

fn escaped(text: &str) -> String {
    let mut out = BodyWriter::default();
    escape_into(&mut out, text);
    String::from_utf8(out.as_bytes().to_vec()).unwrap()
}

#[test]
fn text_from_outside_cannot_leave_its_element() {
    let cases = [
        ("plain", "node-1", "node-1"),
        ("markup", "</password><x a='1' b=\"2\">&", "&lt;/password&gt;&lt;x a=&apos;1&apos; b=&quot;2&quot;&gt;&amp;"),
        ("carriage return survives a reader", "a\r\nb", "a&#13;\nb"),
        ("what XML cannot carry is replaced", "a\u{0}\u{b}\u{ffff}b", "a\u{fffd}\u{fffd}\u{fffd}b"),
        ("other scripts", "пароль 密码", "пароль 密码"),
    ];
    for (name, text, written) in cases {
        assert_eq!(escaped(text), written, "{name}");
    }
}

#[test]
fn the_envelope_names_the_method_in_the_default_namespace_and_carries_the_operation_id() {
    let mut body = RequestBody::of(&MoRef::new("SessionManager", "SessionManager"));
    body.text("userName", "a&b");
    let expected = concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" ",
        "xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">",
        "<soapenv:Header><operationID>ccm-1-2</operationID></soapenv:Header><soapenv:Body>",
        "<Login xmlns=\"urn:vim25\"><_this type=\"SessionManager\">SessionManager</_this>",
        "<userName>a&amp;b</userName></Login></soapenv:Body></soapenv:Envelope>",
    );
    let envelope = body.into_envelope("Login", "ccm-1-2");
    assert_eq!(std::str::from_utf8(&envelope), Ok(expected));
}
