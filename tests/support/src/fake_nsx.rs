//! A fake NSX Manager in this process. It has the part of the Policy API that this program calls, checks requests
//! strictly, and can inject every fault.
//!
//! It rejects everything that a real manager rejects and more: unknown fields, wrong types, unknown parameters,
//! references to missing objects, old revisions. Where real managers differ, or their behaviour is not documented,
//! [`Behaviour`] has a switch. The rules are those of `nsx.md` 3.19.

mod access;
mod answer;
mod behaviour;
mod call;
mod constraints;
pub mod go;
pub mod go_rules;
mod hierarchy;
mod kinds;
mod limits;
mod listing;
mod managers;
mod manual_changes;
mod model;
mod pools;
mod realization;
mod record;
mod refusal;
mod schema;
mod server_fields;
mod store;
mod switches;
mod trouble;
mod world;
mod writes;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

pub use crate::api_proxy::Side;
pub use crate::fake_server::barriers::Hold;
pub use access::Sessions;
pub use behaviour::{
    BEHAVIOUR_VARIABLE, Behaviour, Capacity, Conflict, Cursor, DeadSession, Deletion, EqualNames, HierarchicalPatch,
    LastCursor, PendingAnswer, ResultCount,
};
pub use managers::Balance;
pub use model::Model;
pub use realization::Realization;
pub use record::{NsxCounts, Recorded};
pub use store::ObjectVersion;
pub use switches::Certificate;
pub use trouble::{Substitute, Trouble};

use crate::fake_server::Server;
use crate::fake_server::identity::{self, identity_asking_for_client};
use crate::fake_vcenter::LoginAttempt;
use answer::{Endpoint, Shared};
use world::World;

/// Name in its certificate, under which a client reaches it through a proxy.
pub const NAME: &str = identity::NAME;

/// Path at which the token service exchanges refresh tokens.
const TOKEN_PATH: &str = "/csp/gateway/am/api/auth/api-tokens/authorize";

/// Returns the certificate of a PEM text as DER.
fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

/// Makes a certificate for a principal identity and its key, both as PEM.
#[must_use]
pub fn client_identity(name: &str) -> (String, String) {
    identity::client_identity(name)
}

/// A running fake. It ends with the test's runtime, or when it is dropped.
pub struct FakeNsx {
    shared: Arc<Shared>,
    server: Server<Endpoint>,
    token_service: Server<Endpoint>,
    user: String,
    ca_pem: String,
    token_ca_pem: String,
}

impl FakeNsx {
    /// Starts it on free ports of 127.0.0.1.
    pub async fn start(model: Model) -> Self {
        let world = World {
            behaviour: model.behaviour,
            prefix: model.prefix,
            serves_sessions: model.sessions,
            access: model.access,
            limits: limits::Limits::default(),
            managers: model.managers,
            rules: crate::fake_server::rules::Rules::default(),
            records: record::Records::default(),
            logins: crate::fake_vcenter::logins::Logins::default(),
            store: store::Store::default(),
            pools: pools::Pools::default(),
            plans: realization::RealizationPlans::default(),
            over_capacity: BTreeMap::new(),
            realized_before: BTreeMap::new(),
            usages: BTreeMap::new(),
            edge_credits: BTreeMap::new(),
            delay: None,
        };
        let shared = Shared::new(world);
        let ((acceptor, ca_pem), (token_acceptor, token_ca_pem)) = (identity_asking_for_client(), identity::identity());
        let front = |is_token_service| Arc::new(Endpoint { shared: Arc::clone(&shared), is_token_service });
        let server = Server::start(front(false), acceptor);
        let token_service = Server::start(front(true), token_acceptor);
        let fake = Self { shared, server, token_service, user: model.user, ca_pem, token_ca_pem };
        for (path, body) in model.objects {
            fake.put_by_hand("system", &path, body);
        }
        for path in model.system_owned {
            fake.shared.world().store.set_system_owned(&path);
        }
        fake
    }

    /// Returns the port, which never changes.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns `127.0.0.1:<port>` with the prefix of the model, which is the `host` of the configuration.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}{}", self.server.port(), self.shared.world().prefix)
    }

    /// Returns the address of the Policy API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/policy/api/v1", self.address())
    }

    /// Returns host and path of the token service, which are the `vmcAuthHost` of the configuration.
    #[must_use]
    pub fn token_address(&self) -> String {
        format!("127.0.0.1:{}{TOKEN_PATH}", self.token_service.port())
    }

    /// Returns the manager's initial self-signed certificate as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the token service's own certificate as PEM.
    #[must_use]
    pub fn token_ca_pem(&self) -> &str {
        &self.token_ca_pem
    }

    /// Returns the last user of the model.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the current password of that user.
    ///
    /// # Panics
    ///
    /// If the user has none.
    #[must_use]
    pub fn password(&self) -> String {
        self.shared.world().access.accounts[&self.user].password.clone()
    }

    /// Returns a section `[NSXT]` of `vsphere.conf` for this manager and its user. Writes its CA into `folder`.
    #[must_use]
    pub fn ini_section(&self, folder: &Path) -> String {
        let ca_file = folder.join(format!("nsx-{}.pem", self.port()));
        std::fs::write(&ca_file, &self.ca_pem).unwrap();
        format!(
            "[NSXT]\nhost = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\nca-file = \"{}\"\n",
            self.address(),
            self.user(),
            self.password(),
            ca_file.display()
        )
    }

    /// Returns the last 100,000 requests, in their order.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.requests_from(0)
    }

    /// Returns the requests with this number or a later one, in their order.
    #[must_use]
    pub fn requests_from(&self, number: u64) -> Vec<Recorded> {
        self.shared.world().records.from(number)
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> NsxCounts {
        let world = self.shared.world();
        NsxCounts {
            sessions: world.access.sessions(),
            most_sessions: world.access.most_sessions,
            in_flight: world.limits.all_in_flight,
            most_in_flight: world.limits.most_in_flight,
            most_of_client: world.limits.most_of_client,
            ..world.records.counts.clone()
        }
    }

    /// Resets the counts of requests, bytes and times, and drops the requests so far.
    pub fn reset_counts(&self) {
        let mut world = self.shared.world();
        world.records.reset();
        world.access.most_sessions = world.access.sessions();
        (world.limits.most_in_flight, world.limits.most_of_client) = (0, 0);
    }

    /// Returns the last 10,000 logins with user and password, in their order. With `Basic` or `Remote` each request is
    /// a login.
    #[must_use]
    pub fn login_attempts(&self) -> Vec<LoginAttempt> {
        self.shared.world().logins.all()
    }

    /// Returns all objects by path, as a user who does not own them reads them. They include those that are marked for
    /// deletion.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let mut world = self.shared.world();
        world.purge();
        world.store.all().map(|stored| world.read(stored, "")).collect()
    }

    /// Returns the objects below a path, such as `/infra/tier-1s/t1/static-routes`.
    #[must_use]
    pub fn objects_below(&self, path: &str) -> Vec<Value> {
        let mut world = self.shared.world();
        world.purge();
        world.store.below(path).map(|stored| world.read(stored, "")).collect()
    }

    /// Returns one object, if it exists and is not marked for deletion.
    #[must_use]
    pub fn object(&self, path: &str) -> Option<Value> {
        let mut world = self.shared.world();
        world.purge();
        world.store.get(path).map(|stored| world.read(stored, ""))
    }

    /// Returns the address of an allocation, even if it is not realized.
    #[must_use]
    pub fn allocated_address(&self, allocation: &str) -> Option<IpAddr> {
        self.shared.world().pools.assigned(allocation)?.ok()
    }

    /// Returns the number of object versions so far.
    #[must_use]
    pub fn versions(&self) -> usize {
        self.shared.world().store.versions()
    }

    /// Drops the first `seen` versions. The others keep their indexes. For long runs with large objects.
    pub fn forget_versions(&self, seen: usize) {
        self.shared.world().store.forget(seen);
    }

    /// Returns every version of every object that was not dropped, in the order of the writes.
    #[must_use]
    pub fn history(&self) -> Vec<ObjectVersion> {
        self.shared.world().store.history(0).to_vec()
    }

    /// Returns the versions after the first `seen` ones that a write made. The purge of a deleted object is not a
    /// write.
    #[must_use]
    pub fn written_from(&self, seen: usize) -> Vec<ObjectVersion> {
        self.history_from(seen).into_iter().filter(|version| version.user != store::PURGE).collect()
    }

    /// Returns the versions after the first `seen` ones.
    #[must_use]
    pub fn history_from(&self, seen: usize) -> Vec<ObjectVersion> {
        self.shared.world().store.history(seen).to_vec()
    }
}
