//! Faults that a test injects into calls.

use std::time::Duration;

use super::refusal::Refusal;
use crate::fake_server::http::Reply;

/// A fault of a call.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Another answer. The call has no effect.
    Instead(Substitute),
    /// The session of the call ends, and the manager answers as for an unknown session. Calls without a session are
    /// served.
    EndSession,
    /// No answer. The call has no effect.
    Hang,
    /// The connection is closed without a byte. The call has no effect.
    Drop,
    /// The call takes effect, but its answer is lost: the connection is closed without a byte.
    Lose,
    /// The call takes effect. Only this many bytes of the answer's body are sent, then the connection is closed.
    Cut(usize),
    /// The call takes effect. Its answer is sent after this time.
    Late(Duration),
    /// The call takes effect. The body of the answer is sent slowly, with this time between two bytes.
    Slow(Duration),
    /// The call takes effect. Another answer is sent.
    Afterwards(Substitute),
    /// The call takes effect. The body of its answer is rewritten before it is sent.
    Rewrite(fn(&str) -> String),
}

/// An answer from a test.
#[derive(Clone, Debug)]
pub struct Substitute(pub(super) Reply);

impl Substitute {
    /// Adds a header, such as `Retry-After`.
    #[must_use]
    pub fn header(self, name: &'static str, value: &str) -> Self {
        Self(self.0.header(name, value.to_owned()))
    }
}

impl From<Substitute> for Trouble {
    fn from(substitute: Substitute) -> Self {
        Trouble::Instead(substitute)
    }
}

impl Trouble {
    /// Makes an answer with this status, media type and body.
    #[must_use]
    pub fn answer(status: u16, media_type: &'static str, body: &str) -> Substitute {
        Substitute(Reply::new(status, media_type, body.to_owned()))
    }

    /// Makes an error in the wording of NSX, with or without `error_code`.
    #[must_use]
    pub fn error(status: u16, code: Option<i64>) -> Substitute {
        Substitute(Refusal::new(status, code, format!("the fake answers {status}")).reply())
    }

    /// 429 with code 102, as text: the client sends too many requests per second.
    #[must_use]
    pub fn throttled() -> Substitute {
        Substitute(Refusal::throttled("the fake answers 429").reply())
    }

    /// 503 from NSX itself.
    #[must_use]
    pub fn overloaded() -> Substitute {
        Self::error(503, None)
    }

    /// 503 with code 101: services of the manager are down.
    #[must_use]
    pub fn components_down() -> Substitute {
        Substitute(Refusal::components_down().reply())
    }

    /// 500 with code 98: the manager is starting.
    #[must_use]
    pub fn starting() -> Substitute {
        Substitute(Refusal::starting().reply())
    }

    /// 403 with code 505: the licence does not include the feature.
    #[must_use]
    pub fn unlicensed() -> Substitute {
        Substitute(Refusal::unlicensed().reply())
    }

    /// 403 with code 401: the role does not allow it.
    #[must_use]
    pub fn not_permitted() -> Substitute {
        Substitute(Refusal::no_permission().reply())
    }

    /// 500 with code 607: the transaction was aborted.
    #[must_use]
    pub fn aborted() -> Substitute {
        Self::error(500, Some(607))
    }

    /// 412 with code 206: the revision is old.
    #[must_use]
    pub fn conflict() -> Substitute {
        Self::error(412, Some(206))
    }

    /// 401: the session has expired. The session stays open in the manager.
    #[must_use]
    pub fn expired() -> Substitute {
        Self::error(401, Some(401))
    }

    /// 403 with code 403: the session has expired, or the password is wrong. A session stays open in the manager.
    #[must_use]
    pub fn rejected() -> Substitute {
        Substitute(Refusal::rejected(false).reply())
    }

    /// 302 to a login page, as portals do.
    #[must_use]
    pub fn login_redirect() -> Substitute {
        Self::answer(302, "text/html", "<html><body>Found</body></html>").header("Location", "/login.jsp")
    }

    /// 503 with a proxy's page.
    #[must_use]
    pub fn unavailable() -> Substitute {
        Self::answer(503, "text/html", "<html><body><h1>503 Service Unavailable</h1></body></html>")
    }

    /// 200 with a page instead of an answer, as login portals do.
    #[must_use]
    pub fn portal() -> Substitute {
        Self::answer(200, "text/html", "<html><head><title>Sign in</title></head><body>Hello</body></html>")
    }

    /// Returns true if the fault affects the answer and not the call.
    pub(super) fn is_late(&self) -> bool {
        use Trouble::{Afterwards, Cut, Late, Lose, Rewrite, Slow};
        matches!(self, Lose | Cut(_) | Late(_) | Slow(_) | Afterwards(_) | Rewrite(_))
    }
}
