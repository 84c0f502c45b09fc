//! The checks of an NSX Manager. They read only, unless `--write` is given.

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

/// More calls are not sent where nothing is written.
pub const MOST_CALLS: usize = 60;

/// More calls about what is written. Most of them wait for states.
const WRITE_CALLS: usize = 450;

/// Calls for the removal, and for the logout, which the others cannot use up.
const REMOVAL_CALLS: usize = 600;
const LOGOUT_CALLS: usize = 1;

/// What the checks do, for the announcement.
pub const WHAT: &str = "One login. It reads lists of profiles, gateways, services and virtual servers, and the realized state \
                        of one. It shows the manager cookies that are not valid, which are no logins";

/// More calls are not sent, without those that tidy up.
#[must_use]
pub fn most_calls(write: Option<&WriteRequest>) -> usize {
    MOST_CALLS + write.map_or(0, |_| WRITE_CALLS)
}

/// Calls that remove what was made and log out.
#[must_use]
pub fn tidying_calls(write: Option<&WriteRequest>) -> usize {
    LOGOUT_CALLS + write.map_or(0, |_| REMOVAL_CALLS)
}

/// What will be made, one object a line.
#[must_use]
pub fn announced(write: &WriteRequest) -> Vec<String> {
    writes::announced(write)
}

/// Calls a second. The product's default is 80.
const PACE: u32 = 10;

/// What the checks of one manager share.
struct Check {
    client: Client,
    sheet: Sheet,
    wire: Arc<Wire>,
    /// What the calls are logged in with.
    login: Option<Login>,
    once: Arc<Once>,
    limits: Limits,
    journal: Journal,
    /// The paths of objects that were there before and have ids of this run.
    existing: Vec<String>,
    /// Why nothing was written, if something was to be.
    not_written: Option<String>,
}

/// What is reported of a manager to which nothing is sent, for this reason, which has no names.
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
        // The first signal does not end it: it logs out.
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
            // The last one first, as it can be removed.
            existing: check.existing.iter().rev().map(|path| command(path)).collect(),
        },
        findings: check.sheet.findings(why.as_deref().unwrap_or("not reached")),
        ended_early: why.or(check.not_written),
    }
}

/// What is escaped in the path of a URL. An id can have any of it, and would name another object otherwise.
const OUTSIDE_OF_PATHS: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':').remove(b'/');

/// The command that deletes an object. It has no credentials.
fn removal_command(client: &Client, server: &NsxServer, proof: &NsxProof, path: &str) -> String {
    let login = match proof {
        NsxProof::Password(..) => "--user USER",
        NsxProof::Certificate => "--cert FILE --key FILE",
        NsxProof::Token { .. } => "--header 'Authorization: Bearer TOKEN'",
    };
    let path = escaped(path);
    format!("curl --request DELETE {login} 'https://{}{}/policy/api/v1{path}'", client.endpoint(), server.prefix)
}

/// As part of a URL between single quotes.
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

    /// Removes what was made. A session that is over is renewed once: the credentials were accepted before.
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

    /// A call failed on which this belief depends. Without an answer, and with credentials that are refused, the test ends.
    fn failed(&mut self, belief: &'static Belief, error: &Error) -> Result<(), Ended> {
        self.ends(error)?;
        self.sheet.judge(belief, false, format!("refused: {}", told(error)));
        Ok(())
    }

    /// Whether the test of the server ends with this error.
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

    /// The last exchange of this operation since the last time.
    fn last(&self, operation: &str) -> Option<Exchange> {
        self.wire.take().into_iter().rev().find(|exchange| exchange.operation == operation)
    }

    /// Best effort: what is left of a session ends with its idle time.
    async fn log_out(&mut self) {
        self.client.leave();
        if let Some(login) = self.login.take() {
            let _ = self.client.end(login).await;
        }
    }
}

/// An error without names: what it means, with status and code.
fn told(error: &Error) -> String {
    let status = error.status().map(|status| format!(", status {status}")).unwrap_or_default();
    let code = error.code().map(|code| format!(", code {code}")).unwrap_or_default();
    format!("{}{status}{code}", error.reason())
}

/// Never logs in again: a session that is over ends the check that found it.
#[derive(Default)]
struct Once {
    is_rejected: AtomicBool,
}

impl Once {
    /// Whether the credentials were rejected, which must not be tried again.
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
