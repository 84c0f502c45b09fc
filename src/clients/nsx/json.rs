//! Pure: checks JSON answers before they are parsed. A parsed answer may take a hundred times as much memory as its
//! text, for example `{"":0}`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Maximum number of JSON values in a list page.
pub(super) const MAX_VALUES: usize = 300_000;

/// Maximum number of JSON values in any other answer. A pool of 5,000 members has some 45,000 values.
pub(super) const MAX_OBJECT_VALUES: usize = 60_000;

/// The largest error answer that is parsed, in bytes. Errors of NSX have some hundred bytes.
const LARGEST_ERROR: usize = 64 << 10;

pub(super) fn is_object(text: &[u8]) -> bool {
    serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(text).is_ok()
}

/// Returns an upper bound for the number of values. A comma precedes each value except the first of an array or object.
pub(super) fn count_values(text: &[u8]) -> usize {
    let mut count = 1;
    let mut is_text = false;
    let mut is_escaped = false;
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'{' | b'[' | b',' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// The fields of an error answer that this program uses. A field of an unexpected type counts as missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorFields {
    /// `error_code`, as a number or text.
    pub(super) code: Option<i64>,
    /// `error_message`, not truncated.
    pub(super) message: String,
}

impl ErrorFields {
    /// Parses an error answer; `None` if the text is not a JSON object, or is too large for an error of NSX.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        if text.len() > LARGEST_ERROR {
            return None;
        }
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let fields = deserializer.deserialize_map(ErrorFieldsVisitor).ok()?;
        deserializer.end().ok().map(|()| fields)
    }
}

/// The visitor skips all other members. A [`Value`] cannot hold every number of JSON, and an answer that cannot be
/// parsed makes a rejected login look like an outage.
struct ErrorFieldsVisitor;

impl<'de> Visitor<'de> for ErrorFieldsVisitor {
    type Value = ErrorFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<ErrorFields, M::Error> {
        let mut fields = ErrorFields::default();
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "error_code" => fields.code = code_of(&members.next_value()?),
                "error_message" => {
                    fields.message = members.next_value::<Value>()?.as_str().unwrap_or_default().to_owned();
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(fields)
    }
}

fn code_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(code) => code.as_i64(),
        Value::String(code) => code.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn only_the_two_fields_of_an_error_are_read() {
        let error = |code: Option<i64>, message: &str| Some(ErrorFields { code, message: message.to_owned() });
        for (text, expected) in [
            (json!({"error_code": 600, "error_message": "m", "related_errors": [{"a": [1]}]}), error(Some(600), "m")),
            (json!({"error_code": "600"}), error(Some(600), "")),
            (json!({"error_code": -1, "error_message": 7}), error(Some(-1), "")),
            (json!({"error_code": [1], "error_message": {"a": "b"}}), error(None, "")),
            (json!({"error_code": 1.5, "error_message": null}), error(None, "")),
            (json!({"error_code": true}), error(None, "")),
            (json!({"error_code": u64::MAX}), error(None, "")),
            (json!({}), error(None, "")),
            (json!([]), None),
            (json!("error"), None),
        ] {
            assert_eq!(ErrorFields::read(text.to_string().as_bytes()), expected, "{text}");
        }
        assert_eq!(
            ErrorFields::read(b"{\"error_code\": 1, \"error_code\": 2}"),
            error(Some(2), ""),
            "the last one counts"
        );
        for other in ["1e999", "\"\\ud800\""] {
            let text = format!("{{\"error_code\": 403, \"x\": {other}}}");
            assert_eq!(ErrorFields::read(text.as_bytes()), error(Some(403), ""), "{text}");
        }
        assert_eq!(ErrorFields::read(b"{} {}"), None);
        assert_eq!(ErrorFields::read(b"<html>"), None);
        let of_size = |size: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(size - 8));
        assert_eq!(ErrorFields::read(of_size(LARGEST_ERROR).as_bytes()), error(None, ""));
        assert_eq!(ErrorFields::read(of_size(LARGEST_ERROR + 1).as_bytes()), None);
    }

    #[test]
    fn what_is_in_a_text_is_no_value() {
        for (text, expected) in
            [("{}", 2), ("[1,2,3]", 4), (r#"{"a": "[,{,"}"#, 2), (r#"{"a\"[,": "\\", "b": 0}"#, 3), ("7", 1)]
        {
            assert_eq!(count_values(text.as_bytes()), expected, "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn count(value: &Value) -> usize {
        match value {
            Value::Array(values) => 1 + values.iter().map(count).sum::<usize>(),
            Value::Object(members) => 1 + members.values().map(count).sum::<usize>(),
            _ => 1,
        }
    }

    proptest! {
        #[test]
        fn no_value_is_missed(value in any_json()) {
            prop_assert!(count_values(value.to_string().as_bytes()) >= count(&value));
            prop_assert_eq!(is_object(value.to_string().as_bytes()), value.is_object());
        }

        #[test]
        fn what_is_an_object_is_judged_as_a_parser_does(bytes in any::<Vec<u8>>()) {
            prop_assert_eq!(is_object(&bytes), serde_json::from_slice::<Map<String, Value>>(&bytes).is_ok());
            prop_assert_eq!(ErrorFields::read(&bytes).is_some(), is_object(&bytes));
        }
    }
}
