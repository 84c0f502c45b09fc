//! Parses a request: the operation under which it is counted, its target and its parameters.

use serde_json::{Map, Value};

use super::kinds::Kind;
use super::refusal::Refusal;
use crate::fake_server::http::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Put,
    Patch,
    Post,
    Delete,
    Other,
}

/// The resource that a request addresses.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The objects of this kind below this parent.
    Collection(&'static Kind, String),
    Object(&'static Kind, String),
    /// `/infra` itself, for writes with children.
    Infra,
    RealizedEntities,
    RealizedStatus,
    ServiceUsage(String),
    SessionCreate,
    SessionDestroy,
    NodeVersion,
    HttpService,
    Health,
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) operation: String,
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) query: Vec<(String, String)>,
    /// Path as received, without the query.
    pub(super) path: String,
    body: String,
    is_json: bool,
}

impl Call {
    /// Parses a request to a manager whose paths begin with `prefix`.
    pub(super) fn parse(request: &Request, prefix: &str) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let method = match request.method.as_str() {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            _ => Method::Other,
        };
        let target = path.strip_prefix(prefix).map_or(Target::Unknown, target);
        let name = match &target {
            Target::Collection(kind, _) if method == Method::Get => format!("LIST {}", kind.collection()),
            Target::Collection(kind, _) | Target::Object(kind, _) => {
                format!("{} {}", request.method, kind.collection())
            }
            Target::Infra => format!("{} infra", request.method),
            Target::RealizedEntities => "GET realized-entities".to_owned(),
            Target::RealizedStatus => "GET realized-status".to_owned(),
            Target::ServiceUsage(_) => "GET service-usage".to_owned(),
            Target::SessionCreate => "session create".to_owned(),
            Target::SessionDestroy => "session destroy".to_owned(),
            Target::NodeVersion => "GET node-version".to_owned(),
            Target::HttpService => "GET http-service".to_owned(),
            Target::Health => "GET health".to_owned(),
            Target::Unknown => "unknown".to_owned(),
        };
        let media_type = request.header("content-type").unwrap_or_default();
        Self {
            operation: name,
            method,
            target,
            query: decode_form(query),
            path: path.to_owned(),
            body: request.body.clone(),
            is_json: media_type.starts_with("application/json"),
        }
    }

    /// Returns true if it changes objects.
    pub(super) fn is_write(&self) -> bool {
        let is_session = matches!(self.target, Target::SessionCreate | Target::SessionDestroy | Target::Unknown);
        !is_session && self.method != Method::Get
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn id(&self) -> &str {
        match &self.target {
            Target::Object(_, path) => path.rsplit('/').next().unwrap_or_default(),
            _ => "",
        }
    }

    /// Returns the path of the target, in the form of object paths.
    pub(super) fn target_path(&self) -> String {
        match &self.target {
            Target::Collection(kind, parent) => format!("{parent}/{}", kind.collection()),
            Target::Object(_, path) | Target::ServiceUsage(path) => path.clone(),
            Target::Infra => "/infra".to_owned(),
            _ => self.path.clone(),
        }
    }

    /// Returns the body, which must be a JSON object.
    pub(super) fn object(&self) -> Result<Map<String, Value>, Refusal> {
        if !self.is_json {
            return Err(Refusal::new(415, None, "Content-Type must be application/json"));
        }
        match serde_json::from_str(&self.body) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(Refusal::new(400, 220, "Json parse error: an object is expected")),
            Err(error) => Err(Refusal::new(400, 220, format!("Json parse error: {error}"))),
        }
    }
}

fn target(path: &str) -> Target {
    let Some(policy) = path.strip_prefix("/policy/api/v1") else {
        return match path {
            "/api/session/create" => Target::SessionCreate,
            "/api/session/destroy" => Target::SessionDestroy,
            "/api/v1/node/version" => Target::NodeVersion,
            "/api/v1/node/services/http" => Target::HttpService,
            "/api/v1/reverse-proxy/node/health" => Target::Health,
            _ => Target::Unknown,
        };
    };
    match policy {
        "/infra" => return Target::Infra,
        "/infra/realized-state/realized-entities" => return Target::RealizedEntities,
        "/infra/realized-state/status" => return Target::RealizedStatus,
        _ => {}
    }
    if let Some(service) = policy.strip_suffix("/service-usage").filter(|path| path.starts_with("/infra/lb-services/"))
    {
        return Target::ServiceUsage(decode(service, false));
    }
    let Some(rest) = policy.strip_prefix("/infra/") else { return Target::Unknown };
    let segments: Vec<String> = rest.split('/').map(|segment| decode(segment, false)).collect();
    let is_object = segments.len().is_multiple_of(2);
    let collections: Vec<&str> = segments.iter().map(String::as_str).step_by(2).collect();
    match Kind::of(&collections) {
        Some(_) if segments.iter().any(|segment| segment.is_empty() || segment.contains('/')) => Target::Unknown,
        Some(kind) if is_object => Target::Object(kind, format!("/infra/{}", segments.join("/"))),
        Some(kind) => {
            let above: String = segments[..segments.len() - 1].iter().map(|segment| format!("/{segment}")).collect();
            Target::Collection(kind, format!("/infra{above}"))
        }
        None => Target::Unknown,
    }
}

/// Returns the names and values of a query or of a form.
pub(super) fn decode_form(text: &str) -> Vec<(String, String)> {
    let fields = text.split('&').filter(|field| !field.is_empty());
    fields
        .map(|field| field.split_once('=').unwrap_or((field, "")))
        .map(|(a, b)| (decode(a, true), decode(b, true)))
        .collect()
}

/// Percent-decodes a text. A plus sign is a space only in forms.
fn decode(text: &str, is_form: bool) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).and_then(|two| str::from_utf8(two).ok());
        match (byte, escaped.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 2;
            }
            (b'+', _) if is_form => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
