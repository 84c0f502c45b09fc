//! The checks of an NSX Manager. They only read, unless `--write` is given.

pub mod beliefs;
mod journal;
mod lists;
mod objects;
mod session;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use ccm::clients::nsx::{Client, Error, Kind, LogIn, Login, NoLogin, Pace, Timeouts};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::belief::{Belief, Sheet};
use crate::interrupts::say;
use crate::options::WriteRequest;
use crate::report::{Cleanup, ServerReport};
use crate::servers::{NsxProof, NsxServer};
use crate::vcenter::{Ended, ended_by};
use crate::wire::{Exchange, Wire};
use crate::{INTERRUPTED, Limits, NO_LOGIN, RunSettings, UNUSABLE_SETTINGS};
use journal::{Journal, Removal};

/// Upper limit of calls if nothing is written.
pub const MOST_CALLS: usize = 60;

/// Additional calls for the objects that are written. Most of them wait for states.
const WRITE_CALLS: usize = 450;

/// Calls reserved for the removal and the logout.
const REMOVAL_CALLS: usize = 600;
const LOGOUT_CALLS: usize = 1;

/// Description of the checks, for the announcement.
pub const WHAT: &str = "One login. It reads lists of profiles, gateways, services and virtual servers, and the realized state \
                        of one. It shows the manager cookies that are not valid, which are no logins";

/// Upper limit of calls, without those for removal and logout.
#[must_use]
pub fn most_calls(write: Option<&WriteRequest>) -> usize {
    MOST_CALLS + write.map_or(0, |_| WRITE_CALLS)
}

/// Number of calls that remove what was created and log out.
#[must_use]
pub fn tidying_calls(write: Option<&WriteRequest>) -> usize {
    LOGOUT_CALLS + write.map_or(0, |_| REMOVAL_CALLS)
}

/// Returns the objects that will be created, one a line.
#[must_use]
pub fn announced(write: &WriteRequest) -> Vec<String> {
    writes::announced(write)
}

/// Rate limit in calls per second. The product's default is 80.
const PACE: u32 = 10;

struct Check {
    client: Client,
    sheet: Sheet,
    wire: Arc<Wire>,
    login: Option<Login>,
    once: Arc<Once>,
    limits: Limits,
    journal: Journal,
    /// Paths of existing objects whose ids this run would use.
    existing: Vec<String>,
    /// Reason why nothing was written, although a write was requested.
    not_written: Option<String>,
}

/// Returns the report of a manager to which nothing is sent. The reason contains no names.
fn untested(server: &NsxServer, why: &str) -> ServerReport {
    let findings = Sheet::new(beliefs::ALL).findings(why);
    let (title, timings, ended_early) = (server.title.clone(), Vec::new(), Some(why.to_owned()));
    ServerReport { title, product: String::new(), findings, timings, ended_early, cleanup: Cleanup::default() }
}

/// Runs the checks.
pub async fn check(server: &NsxServer, settings: &RunSettings) -> ServerReport {
    let Ok(proof) = &server.login else { return untested(server, NO_LOGIN) };
    let (write, limits, interrupts) = (settings.write.as_ref(), settings.limits, &settings.interrupts);
    let Ok((http, wire)) = Wire::connect(server.http.clone(), most_calls(write).min(limits.calls)) else {
        return untested(server, UNUSABLE_SETTINGS);
    };
    let (pace, once) = (Arc::new(Pace::new(PACE)), Arc::new(Once::default()));
    let log_in = Arc::clone(&once) as Arc<dyn LogIn>;
    let client = Client::new(http, server.prefix.clone(), pace, log_in, Timeouts::default());
    let prefix = write.map(|write| write.prefix.as_str()).unwrap_or_default();
    let mut check = Check {
        client,
        sheet: Sheet::new(beliefs::ALL),
        wire,
        login: None,
        once,
        limits,
        journal: Journal::new(prefix, limits, interrupts.clone()),
        existing: Vec::new(),
        not_written: None,
    };
    let outcome = interrupts.until_first(check.run(server, proof, write)).await;
    let left = check.wire.allow(REMOVAL_CALLS);
    let _ = interrupts.until_second(check.remove(proof)).await;
    check.wire.allow(left);
    let outcome = match outcome {
        // The first signal does not end the logout.
        Some(Ok(())) => interrupts.until_second(session::end(&mut check)).await,
        other => other,
    };
    check.wire.allow(LOGOUT_CALLS);
    interrupts.log_out(&server.title, check.log_out()).await;
    let why = outcome.unwrap_or_else(|| Err(Ended(INTERRUPTED.to_owned()))).err().map(|Ended(why)| why);
    let command = |path: &str| removal_command(&check.client, server, proof, path);
    ServerReport {
        title: server.title.clone(),
        product: String::new(),
        timings: check.wire.timings(),
        cleanup: Cleanup {
            leftovers: check.journal.leftovers().map(command).collect(),
            // In reverse order of creation, because this is the order in which they can be removed.
            existing: check.existing.iter().rev().map(|path| command(path)).collect(),
        },
        findings: check.sheet.findings(why.as_deref().unwrap_or("not reached")),
        ended_early: why.or(check.not_written),
    }
}

/// Characters that are escaped in the path of a URL. An id may contain any of them, and unescaped it would address
/// another object.
const OUTSIDE_OF_PATHS: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':').remove(b'/');

/// Returns the command that deletes an object. It contains no credentials.
fn removal_command(client: &Client, server: &NsxServer, proof: &NsxProof, path: &str) -> String {
    let login = match proof {
        NsxProof::Password(..) => "--user USER",
        NsxProof::Certificate => "--cert FILE --key FILE",
        NsxProof::Token { .. } => "--header 'Authorization: Bearer TOKEN'",
    };
    let path = escaped(path);
    format!("curl --request DELETE {login} 'https://{}{}/policy/api/v1{path}'", client.endpoint(), server.prefix)
}

/// Escapes a path for a URL between single quotes.
fn escaped(path: &str) -> String {
    utf8_percent_encode(path, &OUTSIDE_OF_PATHS).to_string()
}

impl Check {
    async fn run(&mut self, server: &NsxServer, proof: &NsxProof, write: Option<&WriteRequest>) -> Result<(), Ended> {
        session::begin(self, proof).await?;
        lists::pages(self).await?;
        lists::marked(self).await?;
        objects::gateway(self, server.gateway.as_deref()).await?;
        objects::service(self, server.lb_service.as_deref()).await?;
        objects::realized(self).await?;
        objects::absent(self).await?;
        match write {
            None => beliefs::WRITING.iter().for_each(|belief| self.sheet.skip(belief, "it needs --write PREFIX")),
            Some(write) => writes::objects(self, server, write).await?,
        }
        Ok(())
    }

    /// Removes what was created. If the session has expired, it logs in once more, because the credentials were
    /// accepted before.
    async fn remove(&mut self, proof: &NsxProof) {
        self.journal.settle().await;
        if self.journal.leftovers().next().is_none() {
            return;
        }
        let deadline = Instant::now() + self.limits.removal;
        say(&format!("Removing what was made in NSX, for at most {} s.", self.limits.removal.as_secs()));
        let Some(login) = self.login.clone().filter(|_| !self.once.is_rejected()) else { return };
        self.client.adopt(login);
        if self.journal.remove_all(&self.client, deadline).await == Removal::SessionOver {
            self.login = session::again(&self.client, proof).await;
            let Some(login) = self.login.clone() else { return };
            self.client.adopt(login);
            self.journal.remove_all(&self.client, deadline).await;
        }
    }

    /// Records that a call failed which this belief depends on. The test ends if there was no answer or the credentials
    /// were rejected.
    fn failed(&mut self, belief: &'static Belief, error: &Error) -> Result<(), Ended> {
        self.ends(error)?;
        self.sheet.judge(belief, false, format!("refused: {}", told(error)));
        Ok(())
    }

    /// Returns an error if this error ends the test of the server.
    fn ends(&self, error: &Error) -> Result<(), Ended> {
        if let Some(http) = error.http_error() {
            ended_by(http)?;
        }
        match error.kind {
            Kind::Rejected => Err(Ended("the credentials were rejected; they are not tried again".to_owned())),
            Kind::SessionOver => Err(Ended("the session was over; this program logs in only once".to_owned())),
            _ => Ok(()),
        }
    }

    /// Returns the last exchange of this operation since the last call of this function.
    fn last(&self, operation: &str) -> Option<Exchange> {
        self.wire.take().into_iter().rev().find(|exchange| exchange.operation == operation)
    }

    /// Logs out, best effort: a session that remains ends after its idle timeout.
    async fn log_out(&mut self) {
        self.client.take();
        if let Some(login) = self.login.take() {
            let _ = self.client.end(login).await;
        }
    }
}

/// Returns an error without names: its meaning, with status and code.
fn told(error: &Error) -> String {
    let status = error.status().map(|status| format!(", status {status}")).unwrap_or_default();
    let code = error.code().map(|code| format!(", code {code}")).unwrap_or_default();
    format!("{}{status}{code}", error.reason())
}

/// A login that never logs in again. A session that has expired ends the check that notices it.
#[derive(Default)]
struct Once {
    is_rejected: AtomicBool,
}

impl Once {
    /// Returns true if the credentials were rejected. They must not be tried again then.
    fn is_rejected(&self) -> bool {
        self.is_rejected.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl LogIn for Once {
    async fn log_in(&self, _client: &Client, _over: Option<&Login>) -> Result<(), NoLogin> {
        Err(NoLogin { kind: Kind::SessionOver, reason: "this program logs in only once".to_owned() })
    }

    fn rejected(&self, _login: &Login) {
        self.is_rejected.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_command_names_the_object_whatever_its_id_has() {
        assert_eq!(escaped("/infra/ip-pools/p-1_a.b~c:d/x"), "/infra/ip-pools/p-1_a.b~c:d/x");
        assert_eq!(escaped("/infra/ip-pools/a?b#c d'[{"), "/infra/ip-pools/a%3Fb%23c%20d%27%5B%7B");
    }
}
