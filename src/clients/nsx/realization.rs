//! What has become of an intent on the network.

use serde_json::Value;

use super::call::Call;
use super::error::{Error, Kind};
use super::object::Object;
use super::pace::Priority;
use super::{Client, http};

/// How far an intent has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Realization {
    /// It works.
    Realized,
    /// Not yet, or nothing is known of it.
    Pending,
    /// It failed: the alarm, possibly empty.
    Failed(String),
}

impl Client {
    /// What has become of the object of this path.
    ///
    /// # Errors
    /// See [`Kind`]. An answer that says that there is nothing yet is no error.
    pub async fn realization(&self, path: &str, operation: &'static str) -> Result<Realization, Error> {
        let query = [("intent_path", path)];
        let object = "/infra/realized-state/realized-entities";
        let call = Call { query: &query, ..Call::get(object, operation, Priority::Urgent) };
        let answer = match self.object(call).await {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::MissingReference(_)) => {
                return Ok(Realization::Pending);
            }
            other => other?,
        };
        judge(&answer, path).ok_or_else(|| {
            let request: http::FailedRequest = self.inner.http.failed(operation);
            let target = format!("GET {object} of {path}");
            Error::other(Kind::Unavailable, request, target, "the answer has no list of results")
        })
    }
}

/// The first row of this intent that is final decides. `None` for an answer that is no list.
fn judge(answer: &Object, path: &str) -> Option<Realization> {
    let rows = answer.0.get("results")?.as_array()?;
    let texts = |value: Option<&Value>| -> Vec<String> {
        let all = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for row in rows.iter().filter_map(Value::as_object) {
        let intents = [texts(row.get("intent_paths")), texts(row.get("intent_reference"))].concat();
        if !intents.iter().any(|intent| intent == path) {
            continue;
        }
        match row.get("state").and_then(Value::as_str) {
            Some("REALIZED") => return Some(Realization::Realized),
            Some("ERROR") => return Some(Realization::Failed(alarm(row.get("alarms")))),
            _ => {}
        }
    }
    Some(Realization::Pending)
}

/// What the first alarm says, with its code.
fn alarm(alarms: Option<&Value>) -> String {
    let Some(alarm) = alarms.and_then(Value::as_array).and_then(|alarms| alarms.first()) else {
        return String::new();
    };
    let details = alarm.get("error_details");
    let of_details = |name| details.and_then(|details| details.get(name));
    let code = of_details("error_code").and_then(Value::as_i64).map(|code| format!("code {code}: "));
    let text = [alarm.get("message"), of_details("error_message")].into_iter().flatten().find_map(Value::as_str);
    let text = format!("{}{}", code.unwrap_or_default(), text.unwrap_or_default());
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Object, Realization, judge};

    #[test]
    fn the_first_final_row_of_the_intent_decides() {
        let path = "/infra/tier-1s/t/static-routes/r";
        let row = |intent: &str, state: &str| json!({"intent_paths": [intent], "state": state});
        let alarm = json!({"message": "no route", "error_details": {"error_code": 8212, "error_message": "x"}});
        let failed = json!({"intent_paths": [path], "state": "ERROR", "alarms": [alarm]});
        for (rows, expected) in [
            (json!([]), Some(Realization::Pending)),
            (json!([row("/infra/other", "REALIZED"), row(path, "UNREALIZED"), {}, 7]), Some(Realization::Pending)),
            (json!([row(path, "UNREALIZED"), row(path, "REALIZED")]), Some(Realization::Realized)),
            (json!([{"intent_reference": [path], "state": "REALIZED"}]), Some(Realization::Realized)),
            (json!([{"intent_paths": [path]}]), Some(Realization::Pending)),
            (json!([failed]), Some(Realization::Failed("code 8212: no route".to_owned()))),
            (json!([row(path, "ERROR")]), Some(Realization::Failed(String::new()))),
            (json!("x"), None),
        ] {
            let answer = Object(serde_json::from_value(json!({"results": rows})).unwrap());
            assert_eq!(judge(&answer, path), expected, "{rows}");
        }
    }
}
