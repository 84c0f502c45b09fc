//! Reads the realization state of intents, and the addresses that NSX has reserved. A realized intent is in effect.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};

use super::call::NsxCall;
use super::error::{Error, Kind};
use super::object::Object;
use super::{Client, http};
use crate::base::addresses::parse_ip;

/// Realization state of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Realization {
    /// The intent is in effect.
    Realized,
    /// The intent is not realized yet, or its state is unknown.
    Pending,
    /// Realization failed. The text is the alarm, possibly empty.
    Failed(String),
}

/// Realization state of one revision of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionStatus {
    /// The state of the requested revision.
    Known(Realization),
    /// This older revision is realized or has failed. The state of the requested revision is unknown.
    Older(i64, Realization),
    /// A state without a revision, which may be that of an older revision.
    Unversioned(Realization),
}

/// Time after a write during which a state without a revision may still be that of the previous revision.
pub const REVISION_LAG: Duration = Duration::from_secs(3);

/// State of an address reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// This address is reserved.
    Reserved(IpAddr),
    /// NSX has reserved no address yet, or the state is unknown.
    Pending,
    /// NSX cannot reserve an address.
    Failed {
        /// Whether the pool has no free address.
        is_exhausted: bool,
        /// The alarm, possibly empty.
        alarm: String,
    },
}

/// Error code of a pool without a free address.
const EXHAUSTED: i64 = 8212;

impl Client {
    /// Returns the realization state of the object at this path.
    ///
    /// # Errors
    /// See [`Kind`]. If NSX has no state of the object yet, the result is `Pending` and not an error.
    pub async fn realization(&self, path: &str, operation: &'static str) -> Result<Realization, Error> {
        self.realized(path, operation, Error::says_absent).await.map(|rows| classify(&rows))
    }

    /// Returns the realization state of this revision of the object at this path. The alarm of a failure, and a state
    /// without a revision, take one more call.
    ///
    /// # Errors
    /// See [`Kind`]. It is no error if NSX has no state of the object yet, or if this account has no permission to read
    /// the status.
    pub async fn revision_status(
        &self,
        path: &str,
        revision: i64,
        operation: &'static str,
    ) -> Result<RevisionStatus, Error> {
        let query = [("intent_path", path)];
        let call = NsxCall::get("/infra/realized-state/status", operation);
        let status = match self.object(NsxCall { query: &query, ..call }).await {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::MissingReference(_) | Kind::NoPermission) => None,
            other => revision_status_of(&other?, revision),
        };
        let entities = async || self.realization(path, "realized-entities.list").await;
        // The failure is certain. The second call only adds the alarm, so its errors are ignored.
        let alarm = async || match entities().await {
            Ok(Realization::Failed(alarm)) => alarm,
            Ok(Realization::Realized | Realization::Pending) | Err(_) => String::new(),
        };
        Ok(match status {
            None => RevisionStatus::Unversioned(entities().await?),
            Some(RevisionStatus::Known(Realization::Failed(_))) => {
                RevisionStatus::Known(Realization::Failed(alarm().await))
            }
            Some(RevisionStatus::Older(older, Realization::Failed(_))) => {
                RevisionStatus::Older(older, Realization::Failed(alarm().await))
            }
            Some(status) => status,
        })
    }

    /// Returns the state of the address allocation at this path.
    ///
    /// # Errors
    /// See [`Kind`]. If NSX has no state of the object yet, the result is `Pending` and not an error.
    pub async fn reservation(&self, path: &str, operation: &'static str) -> Result<Reservation, Error> {
        let rows = self.realized(path, operation, Error::says_absent).await?;
        if let Some(address) = rows.iter().find_map(reserved) {
            return Ok(Reservation::Reserved(address));
        }
        // Only an error is final. A realized entity without an address is ignored.
        Ok(row_in(&rows, "ERROR").map_or(Reservation::Pending, |row| {
            let alarms = row.get("alarms");
            Reservation::Failed { is_exhausted: code(first(alarms)) == Some(EXHAUSTED), alarm: alarm(alarms) }
        }))
    }

    /// Whether NSX has realized entities for the object at this path, even if the object was deleted.
    pub async fn is_in_effect(&self, path: &str, operation: &'static str) -> Result<bool, Error> {
        // Only the absence of the object or of one of its ancestors proves that NSX has no entities for it.
        let is_of_object = |error: &Error| match &error.kind {
            Kind::MissingReference(named) => error.says_absent() && is_at_or_above(named, path),
            _ => error.says_absent(),
        };
        self.realized(path, operation, is_of_object).await.map(|rows| !rows.is_empty())
    }

    /// Returns the realized entities of the object at this path, or none if `says_absent` accepts the error of the
    /// call.
    async fn realized(
        &self,
        path: &str,
        operation: &'static str,
        says_absent: impl Fn(&Error) -> bool,
    ) -> Result<Vec<Map<String, Value>>, Error> {
        let query = [("intent_path", path)];
        let object = "/infra/realized-state/realized-entities";
        let call = NsxCall { query: &query, ..NsxCall::get(object, operation) };
        let answer = match self.object(call).await {
            Err(error) if says_absent(&error) => return Ok(Vec::new()),
            other => other?,
        };
        rows_of(answer, path).ok_or_else(|| {
            let request: http::FailedRequest = self.inner.http.failed(operation);
            let target = format!("GET {object} of {path}");
            Error::other(Kind::Unavailable, request, target, "the answer has no list of results")
        })
    }
}

/// Whether `named` is `path` or one of its ancestors.
fn is_at_or_above(named: &str, path: &str) -> bool {
    path.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the realized entities of this intent, or `None` if the answer is not a list.
fn rows_of(mut answer: Object, path: &str) -> Option<Vec<Map<String, Value>>> {
    let Value::Array(rows) = answer.0.remove("results")? else { return None };
    let texts = |value: Option<&Value>| -> Vec<String> {
        let all = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // The query asks for this intent, so a row without an intent belongs to it.
    let is_of_intent = |row: &Map<String, Value>| {
        let intents = [texts(row.get("intent_paths")), texts(row.get("intent_reference"))].concat();
        intents.is_empty() || intents.iter().any(|intent| intent == path)
    };
    let rows = rows.into_iter().filter_map(|row| match row {
        Value::Object(row) => Some(row),
        _ => None,
    });
    Some(rows.filter(is_of_intent).collect())
}

/// Returns the state of an intent. An entity with an error takes precedence over realized entities.
fn classify(rows: &[Map<String, Value>]) -> Realization {
    match row_in(rows, "ERROR") {
        Some(row) => Realization::Failed(alarm(row.get("alarms"))),
        None if row_in(rows, "REALIZED").is_some() => Realization::Realized,
        None => Realization::Pending,
    }
}

/// Returns the state of this revision, or the final state of an older revision. Returns `None` if a final state has no
/// revision. The alarm of a failure is empty. The version in an answer is the highest of all realized entities.
fn revision_status_of(status: &Object, revision: i64) -> Option<RevisionStatus> {
    let realization = match status.text("publish_status") {
        "REALIZED" => Realization::Realized,
        "ERROR" => Realization::Failed(String::new()),
        _ => return Some(RevisionStatus::Known(Realization::Pending)),
    };
    let version = status.text("intent_version").parse::<i64>().ok()?;
    Some(match version < revision {
        true => RevisionStatus::Older(version, realization),
        false => RevisionStatus::Known(realization),
    })
}

/// Returns the first entity in this state.
fn row_in<'r>(rows: &'r [Map<String, Value>], state: &str) -> Option<&'r Map<String, Value>> {
    rows.iter().find(|row| row.get("state").and_then(Value::as_str) == Some(state))
}

fn reserved(row: &Map<String, Value>) -> Option<IpAddr> {
    let attributes = row.get("extended_attributes")?.as_array()?;
    let is_address = |attribute: &&Value| attribute.get("key").and_then(Value::as_str) == Some("allocation_ip");
    let value = attributes.iter().find(is_address)?.get("values")?.as_array()?.first()?.as_str()?;
    parse_ip(value).filter(|_| row.get("state").and_then(Value::as_str) == Some("REALIZED"))
}

fn first(alarms: Option<&Value>) -> Option<&Value> {
    alarms?.as_array()?.first()
}

fn code(alarm: Option<&Value>) -> Option<i64> {
    alarm?.get("error_details")?.get("error_code")?.as_i64()
}

/// Returns the text of the first alarm, with its code.
fn alarm(alarms: Option<&Value>) -> String {
    let Some(alarm) = first(alarms) else { return String::new() };
    let code = code(Some(alarm)).map(|code| format!("code {code}: "));
    let text = [alarm.get("message"), alarm.get("error_details").and_then(|details| details.get("error_message"))]
        .into_iter()
        .flatten()
        .find_map(Value::as_str);
    let text = format!("{}{}", code.unwrap_or_default(), text.unwrap_or_default());
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Object, Realization, RevisionStatus, classify, is_at_or_above, reserved, revision_status_of, rows_of};

    #[test]
    fn only_the_object_or_one_above_it_proves_that_it_is_gone() {
        let path = "/infra/lb-virtual-servers/a";
        for (named, expected) in [
            (path, true),
            ("/infra", true),
            ("/infra/lb-virtual-servers/a2", false),
            ("/infra/lb-virtual-servers/", false),
            ("/infra/sites/default/enforcement-points/default", false),
            ("/infra/lb-virtual", false),
        ] {
            assert_eq!(is_at_or_above(named, path), expected, "{named}");
        }
    }

    #[test]
    fn a_state_is_that_of_the_revision_that_it_names() {
        let (realized, failed) = (|| Realization::Realized, || Realization::Failed(String::new()));
        let (known, older) =
            (|realization| Some(RevisionStatus::Known(realization)), |of, it| Some(RevisionStatus::Older(of, it)));
        for (status, expected) in [
            (json!({"publish_status": "REALIZED", "intent_version": "3"}), known(realized())),
            (json!({"publish_status": "REALIZED", "intent_version": "10"}), known(realized())),
            (json!({"publish_status": "REALIZED", "intent_version": "2"}), older(2, realized())),
            (json!({"publish_status": "ERROR", "intent_version": "2"}), older(2, failed())),
            (json!({"publish_status": "ERROR", "intent_version": "3"}), known(failed())),
            (json!({"publish_status": "UNREALIZED", "intent_version": "3"}), known(Realization::Pending)),
            (json!({"publish_status": "UNAVAILABLE"}), known(Realization::Pending)),
            (json!({"publish_status": "REALIZED"}), None),
            (json!({"publish_status": "REALIZED", "intent_version": "a"}), None),
            (json!({}), known(Realization::Pending)),
        ] {
            let object = Object(serde_json::from_value(status.clone()).unwrap());
            assert_eq!(revision_status_of(&object, 3), expected, "{status}");
        }
    }

    #[test]
    fn an_error_decides_before_what_is_realized() {
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
            (json!([{"state": "REALIZED"}]), Some(Realization::Realized)),
            (json!([{"intent_paths": [], "state": "REALIZED"}]), Some(Realization::Realized)),
            (
                json!([{"intent_paths": [], "intent_reference": ["/infra/other"], "state": "ERROR"}]),
                Some(Realization::Pending),
            ),
            (json!([row(path, "REALIZED"), failed]), Some(Realization::Failed("code 8212: no route".to_owned()))),
            (json!([failed]), Some(Realization::Failed("code 8212: no route".to_owned()))),
            (json!([row(path, "ERROR")]), Some(Realization::Failed(String::new()))),
            (json!("x"), None),
        ] {
            let answer = Object(serde_json::from_value(json!({"results": rows})).unwrap());
            assert_eq!(rows_of(answer, path).map(|rows| classify(&rows)), expected, "{rows}");
        }
    }

    #[test]
    fn l_13_an_address_is_that_of_a_realized_row_and_nothing_else_is_one() {
        let row = |attributes: serde_json::Value| json!({"state": "REALIZED", "extended_attributes": attributes});
        let address = json!({"key": "allocation_ip", "values": ["192.0.2.5"]});
        for (row, expected) in [
            (row(json!([{"values": ["x"]}, 7, {}, address])), Some("192.0.2.5")),
            (row(json!([{"key": "allocation_ip", "values": []}])), None),
            (row(json!([{"key": "allocation_ip"}])), None),
            (row(json!([{"key": "allocation_ip", "values": ["no address"]}])), None),
            (row(json!({})), None),
            (json!({"state": "UNREALIZED", "extended_attributes": [address]}), None),
        ] {
            let found = reserved(row.as_object().unwrap()).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{row}");
        }
    }
}
