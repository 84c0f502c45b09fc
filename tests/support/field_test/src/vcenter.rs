//! The checks of a vCenter. They only read. The property collector, filters and view that they create belong to the
//! session and end with it.

pub mod beliefs;
mod collector;
mod search;
mod session;
mod tags;

use std::sync::Arc;

use ccm::clients::http::{self, Error as HttpError};
use ccm::clients::token::Token;
use ccm::clients::{vapi, vim};
use ccm::providers::vsphere::login::credentials::Login;

use crate::belief::{Belief, Sheet};
use crate::report::{Cleanup, ServerReport};
use crate::servers::VcenterServer;
use crate::wire::Wire;
use crate::{INTERRUPTED, NO_LOGIN, RunSettings, UNUSABLE_SETTINGS};

/// Upper limit of calls.
pub const MOST_CALLS: usize = 60;

/// Calls reserved for the logout: one over SOAP, one over REST, and one afterwards that the server must reject.
pub const LOGOUT_CALLS: usize = 3;

/// Description of the checks, for the announcement.
pub const WHAT: &str = "One login over SOAP; one over REST where the SOAP session is not accepted there. It reads the names \
                        of folders and datacenters, some VMs, and tags. It searches for one VM";

/// Reason why the test of a server ends before all checks. It contains no name or text of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended(pub String);

struct Check {
    http: http::Client,
    soap: vim::Client,
    rest: vapi::Client,
    sheet: Sheet,
    wire: Arc<Wire>,
    /// Token from the exchange of the certificate, if the login uses one.
    token: Option<Token>,
}

/// Returns the report of a vCenter to which nothing is sent. The reason contains no names.
pub(crate) fn untested(server: &VcenterServer, why: &str) -> ServerReport {
    let findings = Sheet::new(beliefs::ALL).findings(why);
    let (title, ended_early) = (server.title.clone(), Some(why.to_owned()));
    let (timings, cleanup) = (Vec::new(), Cleanup::default());
    ServerReport { title, product: String::new(), findings, timings, ended_early, cleanup }
}

/// Runs the checks.
pub async fn check(server: &VcenterServer, settings: &RunSettings) -> ServerReport {
    // The announcement already named the missing credentials or the unusable settings.
    let Ok(login) = &server.login else { return untested(server, NO_LOGIN) };
    let Ok((client, wire)) = Wire::connect(server.http.clone(), MOST_CALLS.min(settings.limits.calls)) else {
        return untested(server, UNUSABLE_SETTINGS);
    };
    let sheet = Sheet::new(beliefs::ALL);
    let ended = |sheet: Sheet, product: String, timings, why: Option<String>| ServerReport {
        title: server.title.clone(),
        product,
        findings: sheet.findings(why.as_deref().unwrap_or("not reached")),
        timings,
        ended_early: why,
        cleanup: Cleanup::default(),
    };
    let (soap, rest) = (vim::Client::new(client.clone()), vapi::Client::new(client.clone()));
    let mut check = Check { http: client, soap, rest, sheet, wire, token: None };
    let mut product = String::new();
    let checks = check.run(server, login, &mut product);
    let outcome = settings.interrupts.until_first(checks).await;
    // A client drops its session at the logout, even if the logout is not sent.
    check.wire.allow(LOGOUT_CALLS);
    let outcome = match outcome {
        // The first signal does not end the logout.
        Some(Ok(())) => settings.interrupts.until_second(session::end(&mut check)).await,
        other => other,
    };
    let outcome = outcome.unwrap_or_else(|| Err(Ended(INTERRUPTED.to_owned())));
    settings.interrupts.log_out(&server.title, check.log_out()).await;
    let timings = check.wire.timings();
    ended(check.sheet, product, timings, outcome.err().map(|Ended(why)| why))
}

impl Check {
    async fn run(&mut self, server: &VcenterServer, login: &Login, product: &mut String) -> Result<(), Ended> {
        let content = session::begin(self, server, login).await?;
        product.clone_from(&content.about.full_name);
        session::rights(self, &content).await?;
        let samples = collector::first_machines(self, &content).await?;
        search::machines(self, &samples).await?;
        collector::reads(self, &samples).await?;
        collector::view(self, &samples).await?;
        tags::read(self, &content, login, &samples).await
    }

    /// Records that a call failed which this belief depends on. Without an answer the test ends.
    fn failed(&mut self, belief: &'static Belief, error: &vim::Error) -> Result<(), Ended> {
        if let vim::Error::Http(error) = error {
            ended_by(error)?;
        }
        self.sheet.judge(belief, false, format!("refused: {}", error.reason()));
        Ok(())
    }

    /// Like [`Check::failed`], for a call over REST.
    fn failed_rest(&mut self, belief: &'static Belief, error: &vapi::Error) -> Result<(), Ended> {
        if let vapi::Error::Http(error) = error {
            ended_by(error)?;
        }
        self.sheet.judge(belief, false, format!("refused: {}", rest_reason(error)));
        Ok(())
    }

    /// Logs out, best effort: a session that remains ends after its idle timeout.
    async fn log_out(&self) {
        let _ = self.rest.logout().await;
        let _ = self.soap.logout().await;
    }
}

/// Returns an error if the test of the server must end: for a network error, but not for an unexpected status.
pub(crate) fn ended_by(error: &HttpError) -> Result<(), Ended> {
    match error {
        HttpError::Status(..) | HttpError::TooLarge(..) | HttpError::TooManyValues(..) => Ok(()),
        HttpError::NotPermitted(..) => Err(Ended("the announced number of calls is used up".to_owned())),
        other => Err(Ended(format!("the server gave no answer: {}", no_names(other)))),
    }
}

/// Returns the kind of a failure, as the product names it.
fn no_names(error: &http::Error) -> &'static str {
    error.reason()
}

fn rest_reason(error: &vapi::Error) -> String {
    match error {
        vapi::Error::Refused { status, .. } => format!("{}, status {status}", error.reason()),
        _ => error.reason().to_owned(),
    }
}
