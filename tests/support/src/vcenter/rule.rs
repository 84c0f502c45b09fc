//! Rules that replace, delay or cut the simulator's answer to an operation.

use std::time::Duration;

use serde::Serialize;

/// A rule of the simulator's HTTP layer. The first rule that matches a call applies.
///
/// Operations have the same names as in the counts: a SOAP method (`FindAllByUuid`, `WaitForUpdatesEx`, `Login`),
/// `REST:` and a name (`REST:session-login`, `REST:list-attached-tags-on-objects`, `REST:get-category`), `STS:Issue`,
/// or `*`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    operation: String,
    delay_ms: u64,
    fault: String,
    status: u16,
    body: String,
    hang: bool,
    drop: bool,
    cut: bool,
    times: u32,
}

impl Rule {
    fn of(operation: &str) -> Self {
        Self { operation: operation.to_owned(), ..Self::default() }
    }

    /// Answers with a SOAP fault of this type, such as `NotAuthenticated`.
    #[must_use]
    pub fn fault(operation: &str, kind: &str) -> Self {
        Self { fault: kind.to_owned(), ..Self::of(operation) }
    }

    /// Answers with this HTTP status and HTML body, as a proxy does.
    #[must_use]
    pub fn status(operation: &str, status: u16, body: &str) -> Self {
        Self { status, body: body.to_owned(), ..Self::of(operation) }
    }

    /// Serves the call after this time.
    #[must_use]
    pub fn delay(operation: &str, time: Duration) -> Self {
        Self { delay_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), ..Self::of(operation) }
    }

    /// Sends no answer until the rule is cleared, and serves the call then.
    #[must_use]
    pub fn hang(operation: &str) -> Self {
        Self { hang: true, ..Self::of(operation) }
    }

    /// Closes the connection without serving the call.
    #[must_use]
    pub fn drop(operation: &str) -> Self {
        Self { drop: true, ..Self::of(operation) }
    }

    /// Serves the call, and closes the connection in the middle of the answer.
    #[must_use]
    pub fn cut(operation: &str) -> Self {
        Self { cut: true, ..Self::of(operation) }
    }

    /// Limits the rule to this many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }
}
