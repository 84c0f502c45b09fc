//! Pure: the checks of the connection to one vCenter: network, TLS, login, permissions and tags.

use super::catalogue::CheckId;
use super::configuration::{SecretFacts, with_other_login};
use super::{CheckResult, CheckStatus, read_only};
use crate::app::reports::status::{PauseStatus, VcenterStatus};
use crate::app::reports::text::{count, duration, far_date, shell_word};
use crate::providers::vsphere::vcenter::AccountReads;
use crate::providers::vsphere::vcenter::snapshot::ConnectionStep;
use jiff::Timestamp;

const DAY: u64 = 24 * 60 * 60;

/// The sentence before a command about the network.
const ON_HOST: &str = "on the host of this process:";

/// Time before the expiry of a certificate from which on the check warns.
const WARNING: u64 = 30 * DAY;

/// Time before the expiry of a certificate from which on the check fails.
const FAILURE: u64 = 7 * DAY;

/// The checks of [`vcenter`].
pub const CHECKS: [CheckId; 10] = [
    CheckId::C07,
    CheckId::N01,
    CheckId::N02,
    CheckId::N03,
    CheckId::N04,
    CheckId::N05,
    CheckId::A02,
    CheckId::A03,
    CheckId::P01,
    CheckId::P04,
];

/// A vCenter.
#[derive(Clone, Debug, PartialEq)]
pub struct VcenterFacts {
    /// The connection, as `status` shows it.
    pub status: VcenterStatus,
    /// The step of the connection that failed; `None` while it works, and before the first attempt to connect.
    pub failed_step: Option<ConnectionStep>,
    /// What the account may see; `None` without a connection.
    pub account: Option<AccountReads>,
    /// Whether `vsphere.conf` has tag categories of zones and regions.
    pub has_zones: bool,
    /// The user name of the account, if it has one.
    pub user: Option<String>,
    /// The Secret with the credentials; `None` if they are elsewhere, too.
    pub secret: Option<SecretFacts>,
}

impl VcenterFacts {
    fn subject(&self) -> String {
        format!("vCenter {}", self.status.server)
    }

    /// Whether changes arrive as they happen.
    fn is_current(&self) -> bool {
        self.status.inventory_age_seconds == Some(0) && self.status.failure.is_none()
    }

    fn failure(&self) -> &str {
        self.status.failure.as_deref().unwrap_or_default()
    }

    /// Returns host and port.
    fn host_and_port(&self) -> (&str, &str) {
        self.status.server.rsplit_once(':').unwrap_or((&self.status.server, "443"))
    }

    /// Returns the result of the check of one step: a step before the one that fails has passed, and a later one was
    /// not reached.
    fn step(&self, id: CheckId, step: ConnectionStep, passed: &str) -> CheckResult {
        let subject = self.subject();
        match self.failed_step {
            None if self.is_current() => CheckResult::passed(id, &subject, passed),
            None if id == CheckId::N01 => CheckResult::incomplete(id, &subject, "this process has not connected yet"),
            None => CheckResult::needs(id, &subject, CheckId::N01),
            Some(failed) if failed == step => CheckResult::failed(id, &subject, self.failure()),
            Some(failed) if failed > step => CheckResult::passed(id, &subject, passed),
            Some(failed) => CheckResult::needs(id, &subject, check_of(failed)),
        }
    }
}

/// Returns the check that fails if this step fails.
fn check_of(step: ConnectionStep) -> CheckId {
    match step {
        ConnectionStep::Resolution => CheckId::N01,
        ConnectionStep::Network => CheckId::N02,
        ConnectionStep::Certificate => CheckId::N03,
        ConnectionStep::Product => CheckId::N05,
        ConnectionStep::Credentials => CheckId::C05,
        ConnectionStep::Login | ConnectionStep::Reads => CheckId::A03,
    }
}

/// Runs all checks of the connection, at this time.
pub fn vcenter(facts: &VcenterFacts, time: Timestamp) -> Vec<CheckResult> {
    let status = &facts.status;
    let (host, port) = facts.host_and_port();
    let mut resolution = facts.step(CheckId::N01, ConnectionStep::Resolution, "resolved, by this host or by the proxy");
    if resolution.status == CheckStatus::Failed {
        resolution = resolution.with_remedy(ON_HOST).with_command(format!("getent hosts {}", shell_word(host)));
    }
    let mut network = facts.step(CheckId::N02, ConnectionStep::Network, "answers");
    if network.status == CheckStatus::Failed {
        network = with_connection(network, host, port);
    }
    let trust = trust(facts);
    let expiry = expiry(&facts.subject(), status.certificate_expiry, time, CheckId::N03);
    let mut product = facts.step(CheckId::N05, ConnectionStep::Product, "is a vCenter");
    if product.status == CheckStatus::Failed {
        product = product.with_remedy("set server to the host name of the vCenter, not of an ESXi host or a portal");
    }
    let login = login(facts);
    let [datacenters, root] = account(facts, &login);
    let tags = tags(facts, &login);
    let pause = login_pause(&facts.subject(), status.login_pause.as_ref());
    vec![resolution, network, trust, expiry, product, pause, login, datacenters, root, tags]
}

/// Adds the command that tests a connection.
pub(super) fn with_connection(result: CheckResult, host: &str, port: &str) -> CheckResult {
    result.with_remedy(ON_HOST).with_command(format!("nc -vz {} {}", shell_word(host), shell_word(port)))
}

fn trust(facts: &VcenterFacts) -> CheckResult {
    const ID: CheckId = CheckId::N03;
    let status = &facts.status;
    let result = facts.step(ID, ConnectionStep::Certificate, "the certificate is verified");
    if result.status == CheckStatus::Failed {
        return result
            .with_command(format!("govc about.cert -k -thumbprint -u {}", shell_word(&status.server)))
            .with_remedy(
                "set ca-file to the CA of the certificate, or thumbprint to the thumbprint that you verified",
            );
    }
    match status.is_certificate_verified {
        true => result,
        false => not_verified(ID, &facts.subject(), "set ca-file or thumbprint in place of insecure-flag"),
    }
}

/// Returns the warning that the certificate of this server is not verified.
pub(super) fn not_verified(id: CheckId, subject: &str, remedy: &str) -> CheckResult {
    let message = "insecure-flag is on, so the certificate is not verified, and the credentials can be intercepted";
    CheckResult::warning(id, subject, message).with_remedy(remedy)
}

/// Checks the expiry of a certificate. `needed` is the check that passes once there is a certificate.
pub(super) fn expiry(subject: &str, expiry: Option<Timestamp>, time: Timestamp, needed: CheckId) -> CheckResult {
    const ID: CheckId = CheckId::N04;
    let Some(expiry) = expiry else { return CheckResult::needs(ID, subject, needed) };
    let left = expiry.as_second().saturating_sub(time.as_second());
    let date = expiry.strftime("%Y-%m-%d");
    let remedy = "renew the certificate of the server; with a thumbprint, add that of the new certificate first";
    let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else {
        return CheckResult::failed(ID, subject, format!("the certificate expired on {date}")).with_remedy(remedy);
    };
    let message = format!("the certificate expires in {}, on {date}", duration(left));
    if left < FAILURE {
        CheckResult::failed(ID, subject, message).with_remedy(remedy)
    } else if left < WARNING {
        CheckResult::warning(ID, subject, message).with_remedy(remedy)
    } else {
        let when = far_date(time, expiry).map_or_else(|| format!("in {}", duration(left)), |date| format!("on {date}"));
        CheckResult::passed(ID, subject, format!("the certificate expires {when}"))
    }
}

/// Checks the login throttle of one server.
pub(super) fn login_pause(subject: &str, pause: Option<&PauseStatus>) -> CheckResult {
    const ID: CheckId = CheckId::A02;
    let Some(pause) = pause else { return CheckResult::passed(ID, subject, "logins are not paused") };
    let PauseStatus { until, cause, reset_command } = pause;
    let message = format!("logins are paused until {until}, so that the account is not locked: {cause}");
    let result = CheckResult::failed(ID, subject, message)
        .with_remedy("correct the credentials of C05, or unlock the account; new credentials are tried at once");
    match reset_command {
        Some(command) => result.with_remedy("once they are correct, to retry before the end:").with_command(command),
        None => result.with_remedy("once they are correct, to retry before the end: restart this process"),
    }
}

fn login(facts: &VcenterFacts) -> CheckResult {
    const ID: CheckId = CheckId::A03;
    let (subject, status) = (facts.subject(), &facts.status);
    // The login worked, and the first reads did not, so nothing is current.
    if facts.failed_step == Some(ConnectionStep::Reads) {
        return CheckResult::failed(ID, &subject, facts.failure()).with_command(read_only(facts.user.as_deref()));
    }
    let age = status.session_age_seconds.map(|age| format!(", session {}", duration(age))).unwrap_or_default();
    let result = facts.step(ID, ConnectionStep::Login, &format!("logged in{age}"));
    match (result.status, &status.rejected_credentials) {
        (CheckStatus::Failed, _) => with_other_login(result, facts.secret.as_ref()),
        (CheckStatus::Passed, Some(why)) => {
            let message = format!("newer credentials are rejected, and the session uses older ones: {why}");
            with_other_login(CheckResult::warning(ID, &subject, message), facts.secret.as_ref())
        }
        _ => result,
    }
}

/// Checks the configured datacenters, and the permissions on the root folder and the datacenters.
fn account(facts: &VcenterFacts, login: &CheckResult) -> [CheckResult; 2] {
    let subject = facts.subject();
    const IDS: [CheckId; 2] = [CheckId::C07, CheckId::P01];
    if !login.is_passed() {
        return IDS.map(|id| CheckResult::needs(id, &subject, CheckId::A03));
    }
    let Some(account) = &facts.account else {
        return IDS.map(|id| CheckResult::incomplete(id, &subject, "vCenter did not answer in time"));
    };
    let read_only = read_only(facts.user.as_deref());
    let (datacenters, root) = match (&account.datacenters, &account.reads_root) {
        (Err(reason), _) => (
            CheckResult::incomplete(CheckId::C07, &subject, reason),
            CheckResult::incomplete(CheckId::P01, &subject, reason),
        ),
        (Ok(0), _) => (
            CheckResult::needs(CheckId::C07, &subject, CheckId::P01),
            CheckResult::failed(CheckId::P01, &subject, "the account sees no datacenter").with_command(read_only),
        ),
        (Ok(number), root) => (named_datacenters(&subject, *number, account), root_folder(&subject, root, read_only)),
    };
    [datacenters, root]
}

fn named_datacenters(subject: &str, number: usize, account: &AccountReads) -> CheckResult {
    match &account.missing_datacenters {
        Some(text) => CheckResult::failed(CheckId::C07, subject, text).with_remedy(
            "correct datacenters in vsphere.conf, or give the account the role Read-only on the datacenter",
        ),
        None => {
            let message = format!("{} visible, all configured ones among them", count(number, "datacenter"));
            CheckResult::passed(CheckId::C07, subject, message)
        }
    }
}

fn root_folder(subject: &str, reads_root: &Result<Option<bool>, String>, command: String) -> CheckResult {
    const ID: CheckId = CheckId::P01;
    match reads_root {
        Ok(Some(true)) => CheckResult::passed(ID, subject, "the account reads the root folder"),
        Ok(Some(false)) => {
            let message = "the account has no System.Read on the root folder, so it may not see every folder: a VM \
                           that is registered again in a hidden folder appears to be destroyed";
            CheckResult::warning(ID, subject, message).with_command(command)
        }
        Ok(None) => CheckResult::incomplete(ID, subject, "vCenter does not report the permissions of the session"),
        Err(reason) => CheckResult::incomplete(ID, subject, reason),
    }
}

fn tags(facts: &VcenterFacts, login: &CheckResult) -> CheckResult {
    const ID: CheckId = CheckId::P04;
    let (subject, status) = (facts.subject(), &facts.status);
    if !facts.has_zones {
        return CheckResult::skipped(ID, &subject, "vsphere.conf has no tag categories of zone and region");
    }
    if !login.is_passed() {
        return CheckResult::needs(ID, &subject, CheckId::A03);
    }
    match (&status.tag_failure, status.tags_age_seconds) {
        (Some(failure), _) => CheckResult::failed(ID, &subject, failure).with_remedy(
            "vSphere Client > Administration > Access Control > Global Permissions > Add: the account, role Read-only, \
             Propagate to children",
        ),
        (None, None) => CheckResult::incomplete(ID, &subject, "tags were not read yet"),
        (None, Some(age)) => CheckResult::passed(ID, &subject, format!("tags were read {} ago", duration(age))),
    }
}

#[cfg(test)]
pub(super) mod tests;
