//! Pure: JSON of NSX and of vCenter's REST.

use serde_json::{Map, Number, Value};

use super::message::message;
use super::tokens::{DIGITS, MILLISECONDS, Tokens};
use super::value;
use super::words::nsx::{Field, field};
use super::words::{self, vim};

/// The kind of a document, which decides how its values are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Document<'a> {
    /// Each value has the kind of its field. The text is the path of the requested object, for messages.
    Ordinary(Option<&'a str>),
    /// The answer to a login: each text is a credential.
    Login,
}

pub(super) fn redact(tokens: &mut Tokens, document: Document<'_>, json: &Value) -> Value {
    Redaction { tokens, document }.value(Field::Value, "", json)
}

struct Redaction<'t, 'a> {
    tokens: &'t mut Tokens,
    document: Document<'a>,
}

impl Redaction<'_, '_> {
    fn value(&mut self, kind: Field, name: &str, json: &Value) -> Value {
        match json {
            Value::Null | Value::Bool(_) => json.clone(),
            // The number can be a secret or an id.
            Value::Number(number)
                if self.document == Document::Login
                    || kind == Field::Unknown
                    || matches!(name, "password" | "id" | "object_id") =>
            {
                Value::from(self.tokens.number(&number.to_string()))
            }
            Value::Number(number) => self.number(name, number),
            Value::String(text) => Value::String(self.text(kind, name, text)),
            Value::Array(values) => values.iter().map(|one| self.value(kind, name, one)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
        }
    }

    fn object(&mut self, object: &Map<String, Value>) -> Map<String, Value> {
        let members = object.iter().map(|(name, member)| {
            let kind = field(name);
            let kept = if kind == Field::Unknown { self.tokens.name(name) } else { name.clone() };
            (kept, self.value(kind, name, member))
        });
        members.collect()
    }

    fn text(&mut self, kind: Field, name: &str, text: &str) -> String {
        let tokens = &mut *self.tokens;
        match (self.document, kind, name) {
            (Document::Login, ..) | (_, _, "password") => value::credential(tokens, text),
            (Document::Ordinary(own), Field::Message, _) => message(tokens, text, own),
            (_, Field::Word, _) => value::word(tokens, text),
            (_, Field::Number, _) => value::number(tokens, text),
            // The id of a message comes from the vendor's catalogue.
            (_, _, "id") if text.contains('.') && words::is_word(text) => text.to_owned(),
            (_, _, "id" | "object_id" | "relative_path") => value::id(tokens, text),
            (_, _, "" | "value") if vim::prefix_of(text).is_some() => value::id(tokens, text),
            _ => value::value(tokens, text),
        }
    }

    /// Replaces a number: short numbers stay, all times become one time, and other numbers get a token.
    fn number(&mut self, name: &str, number: &Number) -> Value {
        let written = number.to_string();
        let is_small = match number.as_i64() {
            Some(_) => value::is_small(&written),
            None => written.bytes().filter(u8::is_ascii_digit).count() <= DIGITS && !written.contains(['e', 'E']),
        };
        if is_small {
            return Value::Number(number.clone());
        }
        if ["_time", "_timestamp"].iter().any(|end| name.ends_with(end)) {
            self.tokens.removed("times");
            return Value::from(MILLISECONDS);
        }
        Value::from(self.tokens.number(&written))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Document, Tokens, redact};

    #[test]
    fn each_field_keeps_what_the_schema_has() {
        let sent = json!({
            "results": [{
                "resource_type": "LBVirtualServer", "id": "web", "display_name": "Web of the shop", "description": "secret",
                "path": "/infra/lb-virtual-servers/web", "unique_id": "420a1b2c-3d4e-5f60-7182-93a4b5c6d7e8",
                "ip_address": "10.0.0.7", "ports": ["443", "8000-8080"], "enabled": true, "_revision": 7,
                "_create_time": 1_764_320_000_123_u64, "_create_user": "bob", "max_new_connection_rate": 12_345_678,
                "tags": [{"scope": "team", "tag": "web"}], "secret_field": {"id": "x", "other": 0.25}, "state": "SECRET",
                "password": "hunter2"
            }],
            "result_count": 1, "cursor": "0036a", "sort_ascending": null
        });
        let redacted = redact(&mut Tokens::default(), Document::Ordinary(None), &sent);
        let server = &redacted["results"][0];
        let id = server["id"].as_str().unwrap();
        assert!(id.starts_with("id-"), "{redacted:#}");
        assert_eq!(server["path"], format!("/infra/lb-virtual-servers/{id}"));
        assert_eq!(server["tags"][0]["tag"], id, "the same value has the same token");
        for (field, kept) in [
            ("resource_type", json!("LBVirtualServer")),
            ("unique_id", json!("00000000-0000-4000-8000-000000000001")),
            ("ip_address", json!("192.0.2.1")),
            ("ports", json!(["443", "8000-8080"])),
            ("enabled", json!(true)),
            ("_revision", json!(7)),
            ("_create_time", json!(1_577_836_800_000_u64)),
            ("max_new_connection_rate", json!(1_000_001)),
            ("password", json!("removed")),
        ] {
            assert_eq!(server[field], kept, "{field}");
        }
        let unknown = server.as_object().unwrap().iter().find(|(name, _)| name.starts_with("unknown-")).unwrap().1;
        assert!(!unknown.to_string().contains("0.25"), "{unknown}");
        assert_eq!((&redacted["result_count"], &redacted["sort_ascending"]), (&json!(1), &json!(null)));
        assert!(redacted["cursor"].as_str().unwrap().starts_with("text-"), "{redacted:#}");
        for name in ["secret", "shop", "bob", "team", "hunter2", "SECRET", "0036a", "Web", "420a1b2c", "10.0.0.7"] {
            assert!(!redacted.to_string().contains(name), "{name} is in {redacted:#}");
        }
    }

    #[test]
    fn of_the_answer_to_a_login_no_text_is_kept() {
        let sent = json!({"value": "b00b1e5", "state": "REALIZED", "id": ["vm-1"]});
        let expected = json!({"value": "removed", "state": "removed", "id": ["removed"]});
        assert_eq!(redact(&mut Tokens::default(), Document::Login, &sent), expected);
        let alone = redact(&mut Tokens::default(), Document::Login, &json!("b00b1e5"));
        assert_eq!(alone, json!("removed"));
    }

    #[test]
    fn a_number_that_can_be_a_secret_or_an_id_has_a_token() {
        let sent = json!({"secret_pin": 123_456, "password": 123_456, "id": 4711, "result_count": 12});
        let redacted = redact(&mut Tokens::default(), Document::Ordinary(None), &sent);
        assert!(!redacted.to_string().contains("123456") && !redacted.to_string().contains("4711"), "{redacted}");
        assert_eq!(redacted["result_count"], 12);
        let login = redact(&mut Tokens::default(), Document::Login, &json!({"value": 123_456}));
        assert!(!login.to_string().contains("123456"), "{login}");
    }

    #[test]
    fn objects_of_tags_keep_their_class() {
        let sent = json!({"value": [{"tag_id": "urn:vmomi:InventoryServiceTag:420a1b2c-3d4e-5f60-7182-93a4b5c6d7e8:GLOBAL",
            "object_ids": [{"id": "host-21", "type": "HostSystem"}, {"id": "vm-3", "type": "Secret"}]}]});
        let expected = json!({"value": [{
            "tag_id": "urn:vmomi:InventoryServiceTag:00000000-0000-4000-8000-000000000001:GLOBAL",
            "object_ids": [{"id": "host-1", "type": "HostSystem"}, {"id": "vm-1", "type": "text-1"}]}]});
        assert_eq!(redact(&mut Tokens::default(), Document::Ordinary(None), &sent), expected);
    }
}
