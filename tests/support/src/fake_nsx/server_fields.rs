//! Fields that the manager adds to the body of a client. If a client sends them back, its values are kept.

use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// Default number of connections for one address of an automatic translation in a pool.
const PORT_OVERLOAD: u32 = 32;

/// Adds the fields that the body lacks.
pub(super) fn fill_in(kind: &Kind, path: &str, body: &mut Map<String, Value>) {
    match kind.collection() {
        "lb-pools" => {
            let snat = body.get_mut("snat_translation").and_then(Value::as_object_mut);
            if let Some(snat) = snat.filter(|snat| snat.get("type").is_some_and(|name| name != "LBSnatDisabled")) {
                snat.entry("port_overload").or_insert(json!(PORT_OVERLOAD));
            }
        }
        "groups" => {
            let expression = body.get_mut("expression").and_then(Value::as_array_mut);
            for one in expression.into_iter().flatten().filter_map(Value::as_object_mut) {
                fill_in_expression(path, one);
            }
        }
        _ => {}
    }
}

fn fill_in_expression(group: &str, expression: &mut Map<String, Value>) {
    let is_conjunction = expression.get("resource_type").is_some_and(|name| name == "ConjunctionOperator");
    let collection = if is_conjunction { "conjunction-expressions" } else { "ip-address-expressions" };
    let id = expression.entry("id").or_insert_with(|| json!(uuid::Uuid::new_v4().to_string())).clone();
    let id = id.as_str().unwrap_or_default();
    for (member, value) in [
        ("path", json!(format!("{group}/{collection}/{id}"))),
        ("relative_path", json!(id)),
        ("parent_path", json!(group)),
        ("marked_for_delete", json!(false)),
        ("overridden", json!(false)),
        ("_protection", json!("NOT_PROTECTED")),
    ] {
        expression.insert(member.to_owned(), value);
    }
}

pub(super) fn links(path: &str) -> Value {
    json!([{"rel": "self", "href": format!("/policy/api/v1{path}")}])
}
