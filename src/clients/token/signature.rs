//! Signed SOAP messages: a time stamp, the body, and an XML signature over both.
//!
//! The signed parts are written directly in exclusive canonical form, so nothing is canonicalised later: no space
//! between elements, end tags written out, each namespace declared on the outermost element that uses it, before other
//! attributes. The digested bytes are the bytes that are sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{HolderKey, KeyError, Token};

/// The namespace `wsu` of WS-Security, for ids and times.
pub(in crate::clients) const UTILITY: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
const SECURITY: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const SECURITY_11: &str = "http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd";
const BASE64: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";
const X509: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3";
const SAML_TOKEN: &str = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#SAMLV2.0";
const SAML_ID: &str = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#SAMLID";
const SOAP: &str = "http://schemas.xmlsoap.org/soap/envelope/";
const DSIG: &str = "http://www.w3.org/2000/09/xmldsig#";
const EXCLUSIVE: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";
const SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
/// The algorithm of our signatures, also requested for the signature of the token service.
pub(in crate::clients) const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";

/// Validity of a message. The clocks of client and server must differ by less than this time.
const MESSAGE_LIFETIME: SignedDuration = SignedDuration::from_mins(1);

/// The ids of one message's parts. Each id begins with an underscore, because an id must not begin with a digit.
pub(in crate::clients) struct Ids {
    pub(in crate::clients) timestamp: String,
    pub(in crate::clients) body: String,
    pub(in crate::clients) certificate: String,
    pub(in crate::clients) signature: String,
}

impl Ids {
    pub(in crate::clients) fn fresh() -> Self {
        let id = || format!("_{}", Uuid::new_v4());
        Self { timestamp: id(), body: id(), certificate: id(), signature: id() }
    }
}

/// The part of a message that identifies the signing key.
pub(in crate::clients) enum KeyReference<'a> {
    /// The certificate of the key. The message contains the certificate.
    Certificate(&'a HolderKey),
    /// The token for the key. The message contains the token.
    Token(&'a Token),
}

impl KeyReference<'_> {
    fn key(&self) -> &HolderKey {
        match self {
            KeyReference::Certificate(key) => key,
            KeyReference::Token(token) => token.key(),
        }
    }

    fn element(&self, ids: &Ids) -> Zeroizing<String> {
        let element = match self {
            KeyReference::Certificate(key) => format!(
                "<wsse:BinarySecurityToken EncodingType=\"{BASE64}\" ValueType=\"{X509}\" wsu:Id=\"{}\">{}\
                 </wsse:BinarySecurityToken>",
                ids.certificate,
                STANDARD.encode(key.certificate())
            ),
            KeyReference::Token(token) => token.assertion().to_owned(),
        };
        Zeroizing::new(element)
    }

    fn reference(&self, ids: &Ids) -> String {
        match self {
            KeyReference::Certificate(_) => format!(
                "<wsse:SecurityTokenReference><wsse:Reference URI=\"#{}\" ValueType=\"{X509}\"></wsse:Reference>\
                 </wsse:SecurityTokenReference>",
                ids.certificate
            ),
            KeyReference::Token(token) => format!(
                "<wsse:SecurityTokenReference xmlns:wsse11=\"{SECURITY_11}\" wsse11:TokenType=\"{SAML_TOKEN}\">\
                 <wsse:KeyIdentifier ValueType=\"{SAML_ID}\">{}</wsse:KeyIdentifier></wsse:SecurityTokenReference>",
                escaped(token.id())
            ),
        }
    }
}

/// The two parts of a signed envelope. The namespace prefix of SOAP is `soapenv`.
pub(in crate::clients) struct SignedParts {
    /// The `wsse:Security` element, for the header.
    pub(in crate::clients) security: Zeroizing<String>,
    pub(in crate::clients) body: String,
}

/// Signs a message whose body contains the element `content`. The element must be in canonical form. Of the namespace
/// prefixes of this module, the element may use only `wsu`, which the body declares.
pub(in crate::clients) fn sign(
    proof: &KeyReference<'_>,
    content: &str,
    now: Timestamp,
    ids: &Ids,
) -> Result<SignedParts, KeyError> {
    let timestamp = format!(
        "<wsu:Timestamp xmlns:wsu=\"{UTILITY}\" wsu:Id=\"{}\"><wsu:Created>{}</wsu:Created><wsu:Expires>{}\
         </wsu:Expires></wsu:Timestamp>",
        ids.timestamp,
        time(now),
        time(now.saturating_add(MESSAGE_LIFETIME).unwrap_or(now))
    );
    let body = format!(
        "<soapenv:Body xmlns:soapenv=\"{SOAP}\" xmlns:wsu=\"{UTILITY}\" wsu:Id=\"{}\">{content}</soapenv:Body>",
        ids.body
    );
    let signed_info = format!(
        "<ds:SignedInfo xmlns:ds=\"{DSIG}\"><ds:CanonicalizationMethod Algorithm=\"{EXCLUSIVE}\">\
         </ds:CanonicalizationMethod><ds:SignatureMethod Algorithm=\"{RSA_SHA256}\"></ds:SignatureMethod>{}{}\
         </ds:SignedInfo>",
        reference(&ids.timestamp, &timestamp),
        reference(&ids.body, &body)
    );
    let signature = proof.key().sign(signed_info.as_bytes())?;
    let key_info = proof.reference(ids);
    let element = proof.element(ids);
    let head = format!("<wsse:Security xmlns:wsse=\"{SECURITY}\" xmlns:wsu=\"{UTILITY}\">{timestamp}");
    let tail = format!(
        "<ds:Signature xmlns:ds=\"{DSIG}\" Id=\"{}\">{signed_info}<ds:SignatureValue>{signature}\
             </ds:SignatureValue><ds:KeyInfo>{key_info}</ds:KeyInfo></ds:Signature></wsse:Security>",
        ids.signature
    );
    Ok(SignedParts { security: Zeroizing::new([head.as_str(), element.as_str(), tail.as_str()].concat()), body })
}

fn reference(id: &str, part: &str) -> String {
    format!(
        "<ds:Reference URI=\"#{id}\"><ds:Transforms><ds:Transform Algorithm=\"{EXCLUSIVE}\"></ds:Transform>\
         </ds:Transforms><ds:DigestMethod Algorithm=\"{SHA256}\"></ds:DigestMethod><ds:DigestValue>{}\
         </ds:DigestValue></ds:Reference>",
        STANDARD.encode(Sha256::digest(part.as_bytes()))
    )
}

/// Formats a time as the token service requires: UTC, exactly three fraction digits.
pub(in crate::clients) fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// Escapes the text content of an element for canonical XML. Characters that XML cannot represent become U+FFFD.
pub(in crate::clients) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#xD;"),
            '\t' | '\n' => out.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Escapes an attribute value for canonical XML. The escaped characters differ from those in text content.
pub(in crate::clients) fn escaped_attribute(value: &str) -> String {
    let text = escaped(value).replace("&gt;", ">").replace('"', "&quot;");
    text.replace('\t', "&#x9;").replace('\n', "&#xA;")
}

#[cfg(test)]
mod tests;
