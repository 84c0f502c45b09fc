//! The checks of an NSX Manager. They read only.

pub mod beliefs;
mod lists;
mod objects;
mod session;

use std::sync::Arc;

use async_trait::async_trait;
use ccm::clients::nsx::{Client, Error, Kind, LogIn, Login, NoLogin, Pace, Timeouts};

use crate::belief::{Belief, Sheet};
use crate::report::ServerReport;
use crate::servers::{NsxProof, NsxServer};
use crate::vcenter::{Ended, ended_by};
use crate::wire::{Exchange, Wire};
use crate::{INTERRUPTED, NO_LOGIN, UNUSABLE_SETTINGS, until_interrupted};

/// More calls are not sent.
pub const MOST_CALLS: usize = 60;

/// What the checks do, for the announcement.
pub const WHAT: &str = "One login. It reads lists of profiles, gateways, services and virtual servers, and the realized state \
                        of one. It shows the manager cookies that are not valid, which are no logins";

/// Calls a second. The product's default is 80.
const PACE: u32 = 10;

/// What the checks of one manager share.
struct Check {
    client: Client,
    sheet: Sheet,
    wire: Arc<Wire>,
    /// What the calls are logged in with.
    login: Option<Login>,
}

/// Runs the checks.
pub async fn check(server: &NsxServer) -> ServerReport {
    let report = |sheet: Sheet, product: String, timings, why: Option<String>| ServerReport {
        title: server.title.clone(),
        product,
        findings: sheet.findings(why.as_deref().unwrap_or("not reached")),
        timings,
        ended_early: why,
    };
    let sheet = Sheet::new(beliefs::ALL);
    let proof = match &server.login {
        Ok(proof) => proof,
        Err(_) => return report(sheet, String::new(), Vec::new(), Some(NO_LOGIN.to_owned())),
    };
    let Ok((http, wire)) = Wire::connect(server.http.clone(), MOST_CALLS) else {
        return report(sheet, String::new(), Vec::new(), Some(UNUSABLE_SETTINGS.to_owned()));
    };
    let pace = Arc::new(Pace::new(PACE));
    let client = Client::new(http, server.prefix.clone(), pace, Arc::new(Once), Timeouts::default());
    let mut check = Check { client, sheet, wire, login: None };
    let outcome = until_interrupted(check.run(server, proof)).await;
    let outcome = outcome.unwrap_or_else(|| Err(Ended(INTERRUPTED.to_owned())));
    check.log_out().await;
    let timings = check.wire.timings();
    report(check.sheet, String::new(), timings, outcome.err().map(|Ended(why)| why))
}

impl Check {
    async fn run(&mut self, server: &NsxServer, proof: &NsxProof) -> Result<(), Ended> {
        session::begin(self, proof).await?;
        lists::pages(self).await?;
        lists::marked(self).await?;
        objects::gateway(self, server.gateway.as_deref()).await?;
        objects::service(self, server.lb_service.as_deref()).await?;
        objects::realized(self).await?;
        objects::absent(self).await?;
        session::end(self).await
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
struct Once;

#[async_trait]
impl LogIn for Once {
    async fn log_in(&self, _client: &Client, _over: Option<&Login>) -> Result<(), NoLogin> {
        Err(NoLogin { kind: Kind::SessionOver, why: "this program logs in only once".to_owned() })
    }

    fn rejected(&self, _login: &Login) {}
}
