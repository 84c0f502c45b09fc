//! Pure: a request and its answer in the form of a recording.

use std::collections::BTreeMap;

use ccm::clients::http;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, Document};
use super::tokens::Tokens;
use super::words::{self, Segment};
use super::{value, xml};

/// Characters that are not escaped in a path and in a value of a query, as in the product's clients.
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Largest body that is recorded, in bytes.
const LARGEST: usize = 4 << 20;

/// The product's operation name of a login over REST, to vCenter and to NSX.
const LOGIN: &str = "session.create";

/// A request without credentials and names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers by their names in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body of the request.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
}

/// An answer without credentials and names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers by their names in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body of the answer.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
}

/// The body of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// An empty body.
    #[default]
    Empty,
    /// A JSON document.
    Json(Value),
    /// An XML document, a line for each element.
    Xml(Vec<String>),
    /// Any other text, which is a token.
    Text(String),
    /// A body that is too large for a recording; its size in bytes.
    Omitted(usize),
}

impl Body {
    fn is_empty(&self) -> bool {
        *self == Self::Empty
    }

    /// Returns the bytes of the body, or `None` if they are not recorded.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Empty => Some(Vec::new()),
            Self::Json(value) => Some(value.to_string().into_bytes()),
            Self::Xml(lines) => Some(xml::join(lines).into_bytes()),
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Omitted(_) => None,
        }
    }
}

/// Returns the request in the form of a recording.
pub(super) fn request(tokens: &mut Tokens, sent: &http::Request) -> Request {
    let ordinary = sent.headers.iter().map(|(name, text)| (*name, text.as_str()));
    let secret = sent.secret_headers.iter().map(|(name, text)| (*name, text.expose_secret()));
    let headers = headers(tokens, ordinary.chain(secret));
    let path = target(tokens, &sent.path);
    let is_form = headers.get("content-type").is_some_and(|text| text.ends_with("form-urlencoded"));
    let body = match is_form {
        // A form is always a login.
        true => Body::Text(value::credential(tokens, "form")),
        false => body(tokens, Document::Ordinary(None), &sent.body),
    };
    Request { method: sent.method.to_string(), path, headers, body }
}

/// Returns the answer in the form of a recording. `operation` and `path` are those of its request.
pub(super) fn answer(tokens: &mut Tokens, operation: &str, path: &str, got: &http::Response) -> Answer {
    let all = got.headers.iter().filter_map(|(name, text)| Some((name.as_str(), text.to_str().ok()?)));
    let headers = headers(tokens, all);
    let own = object_of(path);
    // An error answer contains no session, and its text is needed.
    let is_login = operation == LOGIN && got.is_success();
    let document = if is_login { Document::Login } else { Document::Ordinary(own.as_deref()) };
    Answer { status: got.status, headers, body: body(tokens, document, &got.body) }
}

/// Returns the path of the object of a request to NSX, as messages name it.
fn object_of(path: &str) -> Option<String> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let intent = query.split('&').find_map(|pair| pair.strip_prefix("intent_path="));
    let path = intent.or_else(|| path.split_once("/policy/api/v1").map(|(_, object)| object))?;
    Some(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

fn body(tokens: &mut Tokens, document: Document<'_>, bytes: &[u8]) -> Body {
    let text = String::from_utf8_lossy(bytes);
    if text.trim().is_empty() {
        return Body::Empty;
    }
    if bytes.len() > LARGEST {
        return Body::Omitted(bytes.len());
    }
    if let Ok(json) = serde_json::from_slice(bytes) {
        return Body::Json(json::redact(tokens, document, &json));
    }
    let is_xml = text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
    let lines = if is_xml && document != Document::Login { xml::redact(tokens, &text) } else { None };
    match (lines, document) {
        (Some(lines), _) => Body::Xml(lines),
        (None, Document::Login) => Body::Text(value::credential(tokens, &text)),
        (None, Document::Ordinary(_)) => Body::Text(tokens.text(&text)),
    }
}

/// Returns the headers that may stay. If a header occurs several times, the last one counts. Of the cookies only those
/// of a session stay.
fn headers<'a>(tokens: &mut Tokens, all: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for (name, text) in all {
        let name = name.to_ascii_lowercase();
        let redacted = if words::HEADERS.contains(&name.as_str()) { header(tokens, &name, text) } else { None };
        match redacted {
            Some(redacted) => drop(kept.insert(name, redacted)),
            None => tokens.removed("headers left out"),
        }
    }
    kept
}

fn header(tokens: &mut Tokens, name: &str, text: &str) -> Option<String> {
    Some(match name {
        "accept" | "content-type" => {
            let lower = text.to_ascii_lowercase();
            if words::is_media_type(&lower) { lower } else { tokens.text(text) }
        }
        "retry-after" => value::number(tokens, text),
        "vmware-use-header-authn" => value::word(tokens, text),
        "soapaction" => {
            let version = text.trim_matches('"').strip_prefix("urn:vim25/")?;
            format!("urn:vim25/{}", value::version(tokens, version))
        }
        "cookie" if words::is_own(text) => text.to_owned(),
        "cookie" | "set-cookie" => {
            let name = text.split_once('=').map(|(name, _)| name.trim());
            let name = ["JSESSIONID", "vmware_soap_session", "vmware-api-session-id"]
                .into_iter()
                .find(|one| name == Some(*one))?;
            format!("{name}={}", value::credential(tokens, "cookie"))
        }
        "authorization" | "www-authenticate" => {
            let scheme = text.split_whitespace().next().unwrap_or_default();
            let scheme = ["Basic", "Remote", "Bearer"].into_iter().find(|one| *one == scheme).unwrap_or("other");
            format!("{scheme} {}", value::credential(tokens, "authorization"))
        }
        _ => value::credential(tokens, text),
    })
}

fn target(tokens: &mut Tokens, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut redacted = segments(tokens, path);
    for (at, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, text) = (decoded(name), decoded(text));
        let is_known = words::PARAMETERS.contains(&name.as_str());
        let kept = match name.as_str() {
            "page_size" | "cursor" => value::number(tokens, &text),
            "action" | "~action" | "force" | "enforce_revision_check" | "include_mark_for_delete_objects" => {
                value::word(tokens, &text)
            }
            _ => value::value(tokens, &text),
        };
        redacted.push(if at == 0 { '?' } else { '&' });
        redacted.push_str(&if is_known { name } else { tokens.name(&name) });
        redacted.push('=');
        redacted.extend(utf8_percent_encode(&kept, &KEPT));
    }
    redacted
}

/// Like [`value::path`], for ids that are escaped and may have `id:` before them.
fn segments(tokens: &mut Tokens, path: &str) -> String {
    let mut is_id = false;
    let segments = path.split('/').map(|segment| {
        let decoded = decoded(segment);
        let kind = if is_id { Segment::Other } else { words::segment(&decoded) };
        is_id = kind == Segment::Collection;
        match (kind, decoded.strip_prefix("id:")) {
            (Segment::Word | Segment::Collection, _) => decoded,
            (Segment::Other, Some(id)) => format!("id:{}", utf8_percent_encode(&value::id(tokens, id), &KEPT)),
            (Segment::Other, None) => utf8_percent_encode(&value::id(tokens, &decoded), &KEPT).to_string(),
        }
    });
    segments.collect::<Vec<_>>().join("/")
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm::clients::http::{self, Method};
    use serde_json::json;

    use super::{Body, Tokens, answer, request, target};

    fn sent(path: &str) -> http::Request {
        http::Request::new(Method::GET, path, "test", Duration::from_secs(1))
    }

    #[test]
    fn paths_and_queries_keep_the_words_of_the_schema() {
        let tokens = &mut Tokens::default();
        for (path, expected) in [
            ("/sdk/vimServiceVersions.xml", "/sdk/vimServiceVersions.xml"),
            ("/policy/api/v1/infra/lb-pools/web", "/policy/api/v1/infra/lb-pools/id-1"),
            ("/secret/policy/api/v1/infra", "/id-2/policy/api/v1/infra"),
            ("/policy/api/v1/infra/lb-pools/a%20b?page_size=1000", "/policy/api/v1/infra/lb-pools/id-3?page_size=1000"),
            (
                "/policy/api/v1/infra/realized-state/status?intent_path=%2Finfra%2Flb-pools%2Fweb",
                "/policy/api/v1/infra/realized-state/status?intent_path=%2Finfra%2Flb-pools%2Fid-1",
            ),
            ("/infra?cursor=0036secret&other=x", "/infra?cursor=text-1&unknown-1=text-2"),
            (
                "/rest/com/vmware/cis/tagging/category/id:urn:vmomi:InventoryServiceCategory:b:GLOBAL",
                "/rest/com/vmware/cis/tagging/category/id:urn:vmomi:InventoryServiceCategory:text-3:GLOBAL",
            ),
            (
                "/rest/com/vmware/cis/tagging/tag-association?~action=list-attached-objects-on-tags",
                "/rest/com/vmware/cis/tagging/tag-association?~action=list-attached-objects-on-tags",
            ),
        ] {
            assert_eq!(target(tokens, path), expected, "{path}");
        }
    }

    #[test]
    fn headers_say_which_credentials_there_were_and_nothing_of_them() {
        let mut sent = sent("/api/session/create");
        sent.headers =
            vec![("Content-Type", "application/x-www-form-urlencoded".to_owned()), ("X-Secret", "a".to_owned())];
        sent.secret_headers = vec![
            ("Cookie", "JSESSIONID=hunter2".into()),
            ("X-XSRF-TOKEN", "hunter3".into()),
            ("Authorization", "Basic aHVudGVyNA==".into()),
        ];
        sent.body = "j_username=bob&j_password=hunter5".to_owned().into();
        let kept = serde_json::to_value(request(&mut Tokens::default(), &sent)).unwrap();
        let expected = json!({
            "method": "GET", "path": "/api/session/create", "body": {"text": "removed"},
            "headers": {
                "authorization": "Basic removed", "content-type": "application/x-www-form-urlencoded",
                "cookie": "JSESSIONID=removed", "x-xsrf-token": "removed",
            },
        });
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_answer_to_a_login_has_a_cookie_and_no_value() {
        let mut got = http::Response { status: 200, headers: Default::default(), body: b"\"hunter2\"".to_vec() };
        for (name, text) in [
            ("set-cookie", "JSESSIONID=hunter3; Path=/; Secure"),
            ("set-cookie", "hunter4=hunter5"),
            ("x-xsrf-token", "hunter6"),
            ("server", "secret"),
            ("content-type", "application/JSON;charset=UTF-8"),
        ] {
            got.headers.append(name, text.parse().unwrap());
        }
        let kept = answer(&mut Tokens::default(), "session.create", "/api/session/create", &got);
        let expected = json!({
            "status": 200, "body": {"json": "removed"},
            "headers": {
                "content-type": "application/json;charset=utf-8", "set-cookie": "JSESSIONID=removed",
                "x-xsrf-token": "removed",
            },
        });
        assert_eq!(serde_json::to_value(kept).unwrap(), expected);
    }

    #[test]
    fn what_is_neither_json_nor_xml_is_a_token_whole() {
        for (bytes, expected) in [
            (&b"<html>secret"[..], Body::Text("text-1".to_owned())),
            (b"secret", Body::Text("text-1".to_owned())),
            (b"{\"secret\":", Body::Text("text-1".to_owned())),
            (b" \n", Body::Empty),
            (b"\xff\xfe", Body::Text("text-1".to_owned())),
        ] {
            let got = http::Response { status: 200, headers: Default::default(), body: bytes.to_vec() };
            assert_eq!(answer(&mut Tokens::default(), "test", "/", &got).body, expected);
        }
        let large = vec![b' '; super::LARGEST + 1].into_iter().chain(*b"secret").collect();
        let got = http::Response { status: 200, headers: Default::default(), body: large };
        assert_eq!(answer(&mut Tokens::default(), "test", "/", &got).body, Body::Omitted(super::LARGEST + 7));
    }
}
