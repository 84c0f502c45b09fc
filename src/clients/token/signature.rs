//! Signed SOAP messages: a time stamp, the body, and an XML signature over both.
//!
//! The signed parts are written directly in exclusive canonical form, and the digested bytes are the bytes sent: no
//! space between elements, end tags written out, each namespace declared on the outermost element that uses it, before
//! other attributes. So nothing here has to be canonicalised.

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
/// The algorithm of our signatures, also requested for the token service's own signature.
pub(in crate::clients) const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";

/// Validity of a message. The clocks of both sides must agree better than that.
const MESSAGE_LIFETIME: SignedDuration = SignedDuration::from_mins(1);

/// The ids of one message's parts. An id must not begin with a digit, hence the underscore.
pub(in crate::clients) struct Ids {
    pub(in crate::clients) timestamp: String,
    pub(in crate::clients) body: String,
    pub(in crate::clients) certificate: String,
    pub(in crate::clients) signature: String,
}

impl Ids {
    /// New, unique ids.
    pub(in crate::clients) fn fresh() -> Self {
        let id = || format!("_{}", Uuid::new_v4());
        Self { timestamp: id(), body: id(), certificate: id(), signature: id() }
    }
}

/// How a message names the key that signed it.
pub(in crate::clients) enum KeyReference<'a> {
    /// By its certificate, which is sent along.
    Certificate(&'a HolderKey),
    /// By the token, which is sent along; the key is the one it was issued for.
    Token(&'a Token),
}

impl KeyReference<'_> {
    fn key(&self) -> &HolderKey {
        match self {
            KeyReference::Certificate(key) => key,
            KeyReference::Token(token) => token.key(),
        }
    }

    /// The certificate or token, as an element of the security header.
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

    /// The signature's reference to the certificate or token.
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

/// The two signed parts of an envelope. The namespace prefix of SOAP is `soapenv`.
pub(in crate::clients) struct SignedParts {
    /// The `wsse:Security` element, for the header.
    pub(in crate::clients) security: Zeroizing<String>,
    /// The whole `soapenv:Body` element.
    pub(in crate::clients) body: String,
}

/// Signs a message whose body contains this element, which is in canonical form and uses of our prefixes only `wsu`.
///
/// # Errors
/// When the library cannot sign.
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

/// A `ds:Reference` to a part that is in canonical form.
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

/// Escapes text of an element in canonical form. Characters that XML cannot carry become U+FFFD.
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

/// Escapes the value of an attribute in canonical form, where other characters are escaped than in text.
pub(in crate::clients) fn escaped_attribute(value: &str) -> String {
    let text = escaped(value).replace("&gt;", ">").replace('"', "&quot;");
    text.replace('\t', "&#x9;").replace('\n', "&#xA;")
}

#[cfg(test)]
mod tests;
