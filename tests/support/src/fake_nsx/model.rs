//! Builder for the initial state of a fake manager.

use serde_json::{Value, json};

use super::access::{Access, Account, Sessions};
use super::behaviour::Behaviour;
use super::managers::Managers;

/// The initial state of a fake manager.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) behaviour: Behaviour,
    pub(super) prefix: String,
    pub(super) sessions: Sessions,
    pub(super) access: Access,
    pub(super) managers: Managers,
    /// The account of `FakeNsx::user`.
    pub(super) user: String,
    pub(super) objects: Vec<(String, Value)>,
    pub(super) system_owned: Vec<String>,
}

impl Model {
    /// Makes a manager with the user `admin` and the predefined objects.
    #[must_use]
    pub fn empty() -> Self {
        let mut model = Self {
            behaviour: Behaviour::of_process(),
            prefix: String::new(),
            sessions: Sessions::Served,
            access: Access::default(),
            managers: Managers::default(),
            user: "admin".to_owned(),
            objects: Vec::new(),
            system_owned: Vec::new(),
        };
        for (path, resource_type) in [
            ("/infra/sites/default", "Site"),
            ("/infra/domains/default", "Domain"),
            ("/infra/lb-app-profiles/default-tcp-lb-app-profile", "LBFastTcpProfile"),
            ("/infra/lb-app-profiles/default-udp-lb-app-profile", "LBFastUdpProfile"),
            ("/infra/lb-app-profiles/default-http-lb-app-profile", "LBHttpProfile"),
        ] {
            model.objects.push((path.to_owned(), json!({"resource_type": resource_type})));
            model.system_owned.push(path.to_owned());
        }
        model.user("admin", "Correct-Horse-7")
    }

    /// Like [`Self::empty`], with the tier-1 gateway `t1` on an edge cluster, and the IP pool `p1`, named `pool1`, with
    /// 192.0.2.5 to 192.0.2.104.
    #[must_use]
    pub fn small() -> Self {
        Self::empty().tier1("t1").ip_pool("p1", "pool1", "192.0.2.0/24", &[("192.0.2.5", "192.0.2.104")])
    }

    /// Adds a local user. The first is `admin`. The last one is returned by `FakeNsx::user`.
    #[must_use]
    pub fn user(self, name: &str, password: &str) -> Self {
        self.account(name, password, false)
    }

    /// Adds a vIDM user, whose scheme is `Remote`.
    #[must_use]
    pub fn remote_user(self, name: &str, password: &str) -> Self {
        self.account(name, password, true)
    }

    fn account(mut self, name: &str, password: &str, is_remote: bool) -> Self {
        self.access.accounts.insert(name.to_owned(), Account { password: password.to_owned(), is_remote });
        name.clone_into(&mut self.user);
        self
    }

    /// Adds a VMC user with this refresh token.
    #[must_use]
    pub fn cloud_user(mut self, name: &str, refresh_token: &str) -> Self {
        self.access.refresh_tokens.insert(refresh_token.to_owned(), name.to_owned());
        self
    }

    /// Adds a principal identity with this certificate (PEM).
    #[must_use]
    pub fn principal(mut self, name: &str, certificate: &str) -> Self {
        self.access.principals.insert(super::der(certificate), name.to_owned());
        self
    }

    /// Sets whether sessions are served.
    #[must_use]
    pub fn sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = sessions;
        self
    }

    /// Makes a cluster of this many managers over one store of objects. The address sends requests to them in turn, and
    /// each accepts only its own sessions.
    #[must_use]
    pub fn managers(mut self, count: usize) -> Self {
        self.managers = Managers::in_turn(count);
        self
    }

    /// Sets a prefix of all paths, as behind the reverse proxy of VMC: `/vmc/reverse-proxy`.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets the switches for behaviour that is not the same in all managers.
    #[must_use]
    pub fn behaviour(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    /// Adds a tier-1 gateway with an edge cluster. It advertises the addresses of load balancers.
    #[must_use]
    pub fn tier1(self, id: &str) -> Self {
        let edge_cluster = "/infra/sites/default/enforcement-points/default/edge-clusters/edge-1";
        let advertised = json!({"route_advertisement_types": ["TIER1_CONNECTED", "TIER1_LB_VIP"]});
        self.object(&format!("/infra/tier-1s/{id}"), advertised)
            .object(&format!("/infra/tier-1s/{id}/locale-services/default"), json!({"edge_cluster_path": edge_cluster}))
    }

    /// Adds a tier-0 gateway.
    #[must_use]
    pub fn tier0(self, id: &str) -> Self {
        self.object(&format!("/infra/tier-0s/{id}"), json!({}))
    }

    /// Adds an IP pool with one static subnet.
    #[must_use]
    pub fn ip_pool(self, id: &str, display_name: &str, cidr: &str, ranges: &[(&str, &str)]) -> Self {
        let range = |(start, end): &(&str, &str)| json!({"start": start, "end": end});
        let ranges: Vec<Value> = ranges.iter().map(range).collect();
        let pool = format!("/infra/ip-pools/{id}");
        let subnet = json!({"resource_type": "IpAddressPoolStaticSubnet", "cidr": cidr, "allocation_ranges": ranges});
        self.object(&pool, json!({"display_name": display_name})).object(&format!("{pool}/ip-subnets/s1"), subnet)
    }

    /// Adds an IP block, and an IP pool with one subnet of this many addresses from it. No other pool uses the block.
    #[must_use]
    pub fn block_pool(self, id: &str, display_name: &str, cidr: &str, size: u64) -> Self {
        let (block, pool) = (format!("/infra/ip-blocks/{id}"), format!("/infra/ip-pools/{id}"));
        let subnet = json!({"resource_type": "IpAddressPoolBlockSubnet", "ip_block_path": block, "size": size});
        self.object(&block, json!({"cidr": cidr}))
            .object(&pool, json!({"display_name": display_name}))
            .object(&format!("{pool}/ip-subnets/s1"), subnet)
    }

    /// Adds any object without checks.
    #[must_use]
    pub fn object(mut self, path: &str, body: Value) -> Self {
        self.objects.push((path.to_owned(), body));
        self
    }
}
