//! Pure: the maximum size of a cached Node or Service. The API server accepts objects of 1.5 MiB.
//!
//! There are two limits. Control characters are six times as long in JSON. Many short keys and values take several
//! times the memory of their text, because each has a place in a struct, list or map, and an allocation.

use serde::Serialize;
use serde_json::Value;

/// Maximum size in bytes of JSON.
const MAX_JSON: usize = 128 << 10;

/// Maximum size in bytes of memory, estimated by [`memory`]. 4,000 IPv4 source ranges, or 500 ports of a
/// Service, fit.
const MAX_MEMORY: usize = 384 << 10;

/// Memory of a key or value beside its text, in bytes: its place, with its share of the unused places of a map, and the
/// part of the allocation that the text does not fill.
const PLACE: usize = 64;

/// If the object is too large, returns its size as text with a unit, and the maximum.
pub fn excess(object: &impl Serialize) -> Option<(String, usize)> {
    let Ok(object) = serde_json::to_value(object) else { return Some(("an unknown size".to_owned(), MAX_JSON)) };
    let json = object.to_string().len();
    if json > MAX_JSON {
        return Some((format!("{json} bytes of JSON"), MAX_JSON));
    }
    let memory = memory(&object);
    (memory > MAX_MEMORY).then(|| (format!("{memory} bytes of memory"), MAX_MEMORY))
}

/// Estimates the memory of the typed object with this JSON.
fn memory(object: &Value) -> usize {
    let content = match object {
        Value::Object(fields) => fields.iter().map(|(key, value)| PLACE + key.len() + memory(value)).sum(),
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    PLACE + content
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_sizes_have_a_limit() {
        let text = |length: usize| json!("\u{1}".repeat(length));
        let ranges = |count: usize| json!(vec!["255.255.255.0/24"; count]);
        let port =
            json!({"name": "https-00001", "port": 10_443, "protocol": "TCP", "targetPort": 10_443, "nodePort": 30_443});
        let ports = |count: usize| json!(vec![port.clone(); count]);
        let labels = |count: usize| (0..count).map(|number| (format!("{number:04}"), json!(""))).collect::<Value>();
        for (case, object, expected) in [
            ("control characters", text(21_845), None),
            ("more control characters", text(21_846), Some(("131078 bytes of JSON", 131_072))),
            ("as many source ranges as NSX takes", ranges(4_000), None),
            ("more source ranges", ranges(5_000), Some(("400064 bytes of memory", 393_216))),
            ("ports", ports(500), None),
            ("labels", labels(2_900), None),
            ("more labels", labels(3_000), Some(("396064 bytes of memory", 393_216))),
        ] {
            let found = excess(&object);
            assert_eq!(found.as_ref().map(|(size, limit)| (size.as_str(), *limit)), expected, "{case}");
        }
    }
}
