//! Methods by which a test changes a manager: faults, holds, credentials, permissions, restarts.

use std::time::Duration;

use tokio_rustls::TlsAcceptor;

use super::{Balance, Behaviour, FakeNsx, Hold, Realization, Side, Trouble};
use crate::fake_server::identity::identity_asking_for_client;

/// A server certificate with its key.
#[derive(Clone)]
pub struct Certificate(TlsAcceptor);

impl FakeNsx {
    /// Injects a fault into the next call of this operation, or `*` for any.
    pub fn next(&self, operation: &str, trouble: impl Into<Trouble>) {
        self.next_after(operation, 0, trouble);
    }

    /// Injects a fault into one call of this operation, after `skip` more calls of it.
    pub fn next_after(&self, operation: &str, skip: u32, trouble: impl Into<Trouble>) {
        self.shared.world().rules.add(operation, trouble.into(), skip, Some(1));
    }

    /// Injects a fault into every call of this operation, or `*` for any, until [`FakeNsx::clear`].
    pub fn every(&self, operation: &str, trouble: impl Into<Trouble>) {
        self.every_after(operation, 0, trouble);
    }

    /// Injects a fault into every call of this operation after `skip` more calls of it, until [`FakeNsx::clear`].
    pub fn every_after(&self, operation: &str, skip: u32, trouble: impl Into<Trouble>) {
        self.shared.world().rules.add(operation, trouble.into(), skip, None);
    }

    /// Ends all faults. Calls that hang keep hanging.
    pub fn clear(&self) {
        self.shared.world().rules.clear();
    }

    /// Holds the n-th write from now on (the next write has n = 1), before its work or before its answer.
    #[must_use]
    pub fn hold(&self, n: u32, side: Side) -> Hold {
        self.hold_operation("*", n, side)
    }

    /// Holds the n-th write of this operation from now on.
    #[must_use]
    pub fn hold_operation(&self, operation: &str, n: u32, side: Side) -> Hold {
        self.shared.holds.add(operation, n, side)
    }

    /// Sets its behaviour from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.shared.world().behaviour = behaviour;
    }

    /// Returns its current behaviour.
    #[must_use]
    pub fn behaviour(&self) -> Behaviour {
        self.shared.world().behaviour
    }

    /// Sets how objects are realized: the object with this path, those of this collection, or `*` for all. This
    /// includes existing objects that are not realized yet.
    pub fn set_realization(&self, what: &str, realization: Realization) {
        self.shared.world().set_realization(what, realization);
    }

    /// Limits the capacity of this gateway's edges to this many credits: a SMALL load balancer service takes 1, a
    /// MEDIUM one 10, a LARGE one 40, an XLARGE one 80. A service that does not fit is accepted and realized as an
    /// error.
    pub fn set_edge_credits(&self, gateway: &str, credits: usize) {
        self.shared.world().edge_credits.insert(gateway.to_owned(), credits);
    }

    /// Delays every call from now on by this time. Calls above a limit are rejected at once.
    pub fn delay_calls(&self, time: Duration) {
        self.shared.world().delay = Some(time);
    }

    /// Sets whether requests are limited by rate and number. This is the default.
    pub fn set_limited(&self, is_limited: bool) {
        self.shared.world().limits.are_on = is_limited;
    }

    /// Sets whether five consecutive rejected logins lock an account. This is the default.
    pub fn set_locking(&self, is_locking: bool) {
        self.shared.world().access.locks = is_locking;
    }

    /// Returns true if an account is currently locked.
    #[must_use]
    pub fn is_locked(&self, user: &str) -> bool {
        self.shared.world().access.is_locked(user)
    }

    /// Accepts this password from now on. Open sessions stay.
    ///
    /// # Panics
    ///
    /// If the user has no password.
    pub fn set_password(&self, user: &str, password: &str) {
        let mut world = self.shared.world();
        let account = world.access.accounts.get_mut(user).unwrap_or_else(|| panic!("{user} has no password"));
        password.clone_into(&mut account.password);
    }

    /// Accepts only this certificate (PEM) for a principal from now on.
    pub fn set_principal(&self, name: &str, certificate: &str) {
        let principals = &mut self.shared.world().access.principals;
        principals.retain(|_, principal| principal != name);
        principals.insert(super::der(certificate), name.to_owned());
    }

    /// Accepts only this refresh token for a user from now on.
    pub fn set_refresh_token(&self, user: &str, refresh_token: &str) {
        let refresh_tokens = &mut self.shared.world().access.refresh_tokens;
        refresh_tokens.retain(|_, name| name != user);
        refresh_tokens.insert(refresh_token.to_owned(), user.to_owned());
    }

    /// Sets the lifetime of access tokens that are issued from now on.
    pub fn set_token_life(&self, life: Duration) {
        self.shared.world().access.token_life = life;
    }

    /// Sets whether a user is an auditor, who may only read.
    pub fn set_auditor(&self, user: &str, is_auditor: bool) {
        self.shared.world().access.set_auditor(user, is_auditor);
    }

    /// Denies a user the objects of a collection such as `static-routes`, a path and everything below it, or an
    /// operation such as `GET tier-1s`.
    pub fn deny(&self, user: &str, what: &str) {
        self.shared.world().access.deny(user, what, false);
    }

    /// Like [`FakeNsx::deny`], for writes only.
    pub fn deny_writes(&self, user: &str, what: &str) {
        self.shared.world().access.deny(user, what, true);
    }

    /// Removes the denial of exactly this.
    pub fn allow(&self, user: &str, what: &str) {
        self.shared.world().access.allow(user, what);
    }

    /// Ends every session.
    pub fn kill_sessions(&self) {
        self.shared.world().access.end_sessions(None);
    }

    /// Ends the sessions of one user.
    pub fn kill_sessions_of(&self, user: &str) {
        self.shared.world().access.end_sessions(Some(user));
    }

    /// Sets the manager to which the address sends requests from now on: another one, as after the move of a virtual
    /// IP, or each in turn.
    pub fn balance(&self, balance: Balance) {
        self.shared.world().managers.set_balance(balance);
    }

    /// Sets whether this manager of the cluster answers every request with 503 and code 101. Its sessions stay.
    pub fn set_failing(&self, manager: usize, is_failing: bool) {
        self.shared.world().managers.set_failing(manager, is_failing);
    }

    /// Ends the sessions of one manager of the cluster, as its restart does.
    pub fn kill_sessions_at(&self, manager: usize) {
        self.shared.world().access.end_sessions_at(manager);
    }

    /// Ends every access token of the token service.
    pub fn revoke_tokens(&self) {
        self.shared.world().access.end_tokens();
    }

    /// Closes every connection. Calls continue in the manager, and their answers are lost.
    pub fn sever(&self) {
        self.server.sever();
    }

    /// Stops the manager: closes the port and every connection.
    pub async fn stop_listening(&self) {
        self.server.stop_listening().await;
    }

    /// Starts the manager again on the same port.
    pub async fn resume_listening(&self) {
        self.server.resume_listening();
    }

    /// Restarts the manager: sessions end, and every connection is closed. Objects stay.
    pub async fn restart(&self) {
        self.stop_listening().await;
        self.kill_sessions();
        self.resume_listening().await;
    }

    /// Presents another self-signed certificate to new connections, and closes the existing ones. Returns it as PEM.
    pub fn change_certificate(&self) -> String {
        let (acceptor, pem) = identity_asking_for_client();
        self.server.use_acceptor(acceptor);
        pem
    }

    /// Returns the current certificate, for a later [`Self::use_certificate`].
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        Certificate(self.server.acceptor())
    }

    /// Presents this certificate to new connections, and closes the existing ones.
    pub fn use_certificate(&self, certificate: Certificate) {
        self.server.use_acceptor(certificate.0);
    }
}
