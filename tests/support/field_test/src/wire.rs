//! A transport between the product's clients and the network. It counts calls and rejects those above the announced
//! number. It measures calls, alters them if a check asks for it, and keeps the answers for the checks.
//!
//! It replaces the transport of a client, and sends with a client of its own, which has the same settings. So TLS,
//! proxies, timeouts and size limits are the product's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http::{Client, Endpoint, Error, Failure, Request, Response, Settings, Transport};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::Instant;

/// Number of exchanges that are kept. Of older ones only the durations are kept.
const KEPT: usize = 64;

/// Largest body that is kept, in bytes.
const LARGEST: usize = 4 << 20;

/// One call and its answer. Its `Debug` shows none of the content.
pub struct Exchange {
    /// The client's operation name of the call.
    pub operation: &'static str,
    /// Status of the answer. `None` if there was no answer.
    pub status: Option<u16>,
    /// Body of the answer. Empty if it was too large.
    body: Vec<u8>,
}

impl Exchange {
    /// Returns the body as JSON, or `null`.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns status and `error_code`, for a table.
    #[must_use]
    pub fn status_and_code(&self) -> String {
        let Some(status) = self.status else { return "no answer".to_owned() };
        match error_code(&self.json()) {
            Some(code) => format!("status {status}, code {code}"),
            None => format!("status {status}, no code"),
        }
    }
}

/// Returns the `error_code` of an NSX error, which is a number or its text.
#[must_use]
pub fn error_code(body: &Value) -> Option<i64> {
    let code = body.get("error_code")?;
    code.as_i64().or_else(|| code.as_str()?.parse().ok())
}

/// A change of calls before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// Adds this to the query.
    Query(&'static str),
    /// Leaves the header out.
    Without(&'static str),
    /// Replaces the value of the session cookie.
    Cookie(&'static str),
}

/// Durations of the calls of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The client's operation name of the call.
    pub operation: &'static str,
    /// Number of calls.
    pub calls: usize,
    /// Sum of the durations.
    pub total: Duration,
    /// Longest duration.
    pub longest: Duration,
}

/// The transport. See the module.
pub struct Wire {
    inner: Client,
    state: Mutex<State>,
}

struct State {
    /// Number of calls that may still be made.
    left: usize,
    alterations: Vec<Alteration>,
    exchanges: Vec<Exchange>,
    timings: Vec<Timing>,
}

impl Wire {
    /// Makes a client with these settings whose calls go through a new wire. Returns the client and the wire. At most
    /// `most` calls are sent.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the settings cannot be used.
    pub fn connect(settings: Settings, most: usize) -> Result<(Client, Arc<Self>), Error> {
        let inner = Client::new(settings.clone())?;
        let state = State { left: most, alterations: Vec::new(), exchanges: Vec::new(), timings: Vec::new() };
        let wire = Arc::new(Self { inner, state: Mutex::new(state) });
        let transport = Some(Arc::clone(&wire) as Arc<dyn Transport>);
        Ok((Client::new(Settings { transport, ..settings })?, wire))
    }

    /// Alters every call until the guard is dropped.
    #[must_use]
    pub fn alter(self: &Arc<Self>, alterations: &[Alteration]) -> AlterationGuard {
        self.state().alterations = alterations.to_vec();
        AlterationGuard(Arc::clone(self))
    }

    /// Sets the number of calls that may still be made. Returns the former number.
    pub fn allow(&self, calls: usize) -> usize {
        std::mem::replace(&mut self.state().left, calls)
    }

    /// Takes the exchanges since the last call of this function, oldest first. At most 64 are kept.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.state().exchanges)
    }

    /// Returns the durations of all calls so far, by operation in the order of the first call.
    #[must_use]
    pub fn timings(&self) -> Vec<Timing> {
        self.state().timings.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one call. Returns its alterations, or `None` if no call is left.
    fn begin(&self) -> Option<Vec<Alteration>> {
        let mut state = self.state();
        state.left = state.left.checked_sub(1)?;
        Some(state.alterations.clone())
    }

    fn end(&self, operation: &'static str, took: Duration, answer: Option<&Response>) {
        let mut state = self.state();
        match state.timings.iter_mut().find(|timing| timing.operation == operation) {
            Some(timing) => {
                timing.calls += 1;
                timing.total += took;
                timing.longest = timing.longest.max(took);
            }
            None => state.timings.push(Timing { operation, calls: 1, total: took, longest: took }),
        }
        let body = answer.map(|answer| &answer.body).filter(|body| body.len() <= LARGEST).cloned();
        let exchange =
            Exchange { operation, status: answer.map(|answer| answer.status), body: body.unwrap_or_default() };
        if state.exchanges.len() == KEPT {
            state.exchanges.remove(0);
        }
        state.exchanges.push(exchange);
    }
}

/// Alters calls while it lives.
pub struct AlterationGuard(Arc<Wire>);

impl Drop for AlterationGuard {
    fn drop(&mut self) {
        self.0.state().alterations.clear();
    }
}

#[async_trait]
impl Transport for Wire {
    async fn exchange(&self, endpoint: &Endpoint, mut request: Request) -> Result<Response, Failure> {
        // This transport sends to one server only. A request for another server may contain credentials for that
        // server.
        if endpoint.authority() != self.inner.endpoint() {
            return Err(Failure::Final(Error::NotPermitted(self.inner.failed(request.operation))));
        }
        let operation = request.operation;
        let Some(alterations) = self.begin() else {
            return Err(Failure::Final(Error::NotPermitted(self.inner.failed(operation))));
        };
        for alteration in alterations {
            alter(&mut request, alteration);
        }
        let began = Instant::now();
        let answer = self.inner.send(request).await;
        self.end(operation, began.elapsed(), answer.as_ref().ok());
        answer.map_err(Failure::Final)
    }
}

fn alter(request: &mut Request, alteration: Alteration) {
    match alteration {
        Alteration::Query(more) => {
            request.path.push(if request.path.contains('?') { '&' } else { '?' });
            request.path.push_str(more);
        }
        Alteration::Without(header) => {
            request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(header));
            request.secret_headers.retain(|(name, _)| !name.eq_ignore_ascii_case(header));
        }
        Alteration::Cookie(value) => {
            request.secret_headers.retain(|(name, _)| *name != "Cookie");
            request.secret_headers.push(("Cookie", SecretString::from(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm::clients::http::{Method, Request, Settings, TlsSettings};
    use serde_json::json;

    use super::{Alteration, Wire, alter, error_code};

    #[test]
    fn a_call_that_is_refused_leaves_no_alteration_for_the_next_one() {
        let settings = Settings::new("127.0.0.1", 9, TlsSettings::default(), "test".to_owned());
        let (_, wire) = Wire::connect(settings, 1).unwrap();
        let altered = wire.alter(&[Alteration::Without("X")]);
        assert_eq!(wire.begin(), Some(vec![Alteration::Without("X")]));
        assert_eq!(wire.begin(), None, "the number of calls is used up");
        drop(altered);
        assert_eq!(wire.allow(1), 0);
        assert_eq!(wire.begin(), Some(vec![]));
    }

    #[test]
    fn a_call_is_altered_as_a_check_asks() {
        let mut request = Request::new(Method::GET, "/a", "test", Duration::from_secs(1));
        request.secret_headers = vec![("Cookie", "secret".into()), ("X-XSRF-TOKEN", "token".into())];
        alter(&mut request, Alteration::Query("b=c"));
        alter(&mut request, Alteration::Query("d=e"));
        alter(&mut request, Alteration::Without("x-xsrf-token"));
        alter(&mut request, Alteration::Cookie("JSESSIONID=0"));
        let headers: Vec<_> = request.secret_headers.iter().map(|(name, _)| *name).collect();
        assert_eq!((request.path.as_str(), headers), ("/a?b=c&d=e", vec!["Cookie"]));
    }

    #[test]
    fn a_code_is_a_number_or_its_text() {
        for (body, expected) in [
            (json!({"error_code": 98}), Some(98)),
            (json!({"error_code": "102"}), Some(102)),
            (json!({"error_code": null}), None),
            (json!([]), None),
        ] {
            assert_eq!(error_code(&body), expected, "{body}");
        }
    }
}
