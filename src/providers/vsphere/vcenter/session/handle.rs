//! One SOAP session, its REST session, and a count of their users.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clients::vim::AboutInfo;
use crate::clients::{vapi, vim};
use crate::providers::vsphere::login::credentials::Credential;
use crate::providers::vsphere::vcenter::stale_subscriptions::Leftovers;

/// The clients of one session, and its credential.
pub(in super::super) struct SessionHandle {
    pub(super) soap: vim::Client,
    pub(super) rest: vapi::Client,
    uses: watch::Sender<u32>,
    leftovers: Leftovers,
    observations: Mutex<SessionObservations>,
}

/// Facts that are recorded while the session is in use. Their mutex is never locked across an await.
#[derive(Default)]
struct SessionObservations {
    credential: Option<Arc<Credential>>,
    about: AboutInfo,
    is_borrowing: bool,
}

impl SessionHandle {
    pub(super) fn new(soap: vim::Client, rest: vapi::Client) -> Arc<Self> {
        Arc::new(Self {
            soap,
            rest,
            uses: watch::Sender::default(),
            leftovers: Leftovers::default(),
            observations: Mutex::default(),
        })
    }

    /// Returns the credential of the session; `None` before the first login.
    pub(super) fn credential(&self) -> Option<Arc<Credential>> {
        self.observations.lock().credential.clone()
    }

    pub(super) fn set_credential(&self, credential: Arc<Credential>) {
        self.observations.lock().credential = Some(credential);
    }

    /// Returns the server's description from the last connect.
    pub(super) fn about(&self) -> AboutInfo {
        self.observations.lock().about.clone()
    }

    pub(super) fn set_about(&self, about: AboutInfo) {
        self.observations.lock().about = about;
    }

    /// Whether REST uses the SOAP session.
    pub(super) fn is_borrowing(&self) -> bool {
        self.observations.lock().is_borrowing
    }

    pub(super) fn set_borrowing(&self, is_borrowing: bool) {
        self.observations.lock().is_borrowing = is_borrowing;
    }

    /// Returns the SOAP client. The client counts as a user until it is dropped.
    pub(in super::super) fn soap(self: &Arc<Self>) -> ClientInUse<vim::Client> {
        ClientInUse::new(self, self.soap.clone())
    }

    pub(super) fn rest(self: &Arc<Self>) -> ClientInUse<vapi::Client> {
        ClientInUse::new(self, self.rest.clone())
    }

    /// Completes when the session has no users.
    pub(super) async fn unused(&self) {
        let mut uses = self.uses.subscribe();
        // Cannot fail, because `self` owns the sender.
        let _ = uses.wait_for(|count| *count == 0).await;
    }
}

/// A client in use. The logout of its session waits until the client is dropped.
pub struct ClientInUse<C> {
    client: C,
    pub(super) handle: Arc<SessionHandle>,
}

impl<C> ClientInUse<C> {
    fn new(handle: &Arc<SessionHandle>, client: C) -> Self {
        handle.uses.send_modify(|count| *count = count.saturating_add(1));
        Self { client, handle: Arc::clone(handle) }
    }

    pub(in super::super) fn about(&self) -> AboutInfo {
        self.handle.about()
    }

    pub(in super::super) fn leftovers(&self) -> &Leftovers {
        &self.handle.leftovers
    }
}

impl<C> Drop for ClientInUse<C> {
    fn drop(&mut self) {
        self.handle.uses.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl<C> Deref for ClientInUse<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.client
    }
}
