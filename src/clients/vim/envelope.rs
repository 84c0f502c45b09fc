//! Writes SOAP requests. The caller writes the elements in schema order.
//!
//! A request may contain a password, so its buffers are wiped on drop.

use super::MoRef;
use crate::clients::http::{self, BodyWriter};
use crate::clients::token::signature::SignedParts;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
     xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
     xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">";

/// The content of the method element of one request.
#[derive(Default)]
pub(super) struct RequestBody {
    xml: BodyWriter,
    /// A signed message, which replaces the content.
    signed: Option<SignedParts>,
}

impl RequestBody {
    /// Builds a body that begins with the object that the method is called on.
    pub(super) fn of(this: &MoRef) -> Self {
        let mut body = Self::default();
        body.reference("_this", this);
        body
    }

    /// Builds a body from a signed message, which includes the method element.
    pub(super) fn of_signed(signed: SignedParts) -> Self {
        Self { xml: BodyWriter::default(), signed: Some(signed) }
    }

    /// Writes `<name>text</name>`.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        escape_into(&mut self.xml, text);
        self.close(name);
    }

    pub(super) fn boolean(&mut self, name: &str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    /// Writes `<name type="Kind">id</name>`.
    pub(super) fn reference(&mut self, name: &str, object: &MoRef) {
        self.xml.push_all(&["<", name, " type=\""]);
        escape_into(&mut self.xml, object.kind());
        self.xml.push_str("\">");
        escape_into(&mut self.xml, object.id());
        self.close(name);
    }

    /// Writes `<name>`.
    pub(super) fn open(&mut self, name: &str) {
        self.xml.push_all(&["<", name, ">"]);
    }

    /// Writes `<name xsi:type="kind">`.
    pub(super) fn open_typed(&mut self, name: &str, kind: &str) {
        self.xml.push_all(&["<", name, " xsi:type=\"", kind, "\">"]);
    }

    /// Writes `</name>`.
    pub(super) fn close(&mut self, name: &str) {
        self.xml.push_all(&["</", name, ">"]);
    }

    pub(super) fn into_envelope(self, method: &str, operation_id: &str) -> http::Body {
        let xml = self.xml.as_bytes();
        let signed = self.signed.as_ref().map_or(0, |signed| signed.security.len() + signed.body.len());
        let mut document = BodyWriter::with_capacity(HEAD.len() + xml.len() + signed + 2 * method.len() + 200);
        document.push_all(&[HEAD, "<soapenv:Header><operationID>"]);
        escape_into(&mut document, operation_id);
        document.push_str("</operationID>");
        if let Some(SignedParts { security, body }) = &self.signed {
            document.push_all(&[security, "</soapenv:Header>", body, "</soapenv:Envelope>"]);
            return document.into();
        }
        document.push_all(&["</soapenv:Header><soapenv:Body><", method, " xmlns=\"urn:vim25\">"]);
        document.push_bytes(xml);
        document.push_all(&["</", method, "></soapenv:Body></soapenv:Envelope>"]);
        document.into()
    }
}

/// Appends the escaped text. Characters that XML cannot represent become U+FFFD.
fn escape_into(out: &mut BodyWriter, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // A parser would turn an unescaped carriage return into a line feed.
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
