//! Creates the load balancer of a Service, or brings it up to date.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node};
use tokio::time::Instant;

use super::{Seen, ServiceCall};
use crate::cloud::{Error, Reason};
use crate::providers::vsphere::config::{CompleteClass, Pool, Profile};
use crate::providers::vsphere::load_balancer::backend::{Full, Parts, Usage};
use crate::providers::vsphere::load_balancer::inventory::Need;
use crate::providers::vsphere::load_balancer::layout::{Port, Protocol};
use crate::providers::vsphere::load_balancer::objects::Allocation;
use crate::providers::vsphere::load_balancer::plan::{self, Step, Wanted, WantedPort};
use crate::providers::vsphere::load_balancer::wanted::Features;
use crate::providers::vsphere::load_balancer::{LATER, config_wrong, members, status, wanted};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::routes::Adoption;

/// How old the reading may be in which a name of the configuration is not found.
const RECENT: Duration = Duration::from_secs(60);

impl ServiceCall<'_> {
    pub(in crate::providers::vsphere::load_balancer) async fn ensure(
        mut self,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        wanted::check_class(&self.of.config, wanted::class_of(self.service))?;
        let ports = wanted::ports_of(self.service)?;
        let features = wanted::features_of(self.service, self.of.config.snat_disabled)?;
        self.check(Need::Any)?;
        let (mut creating, mut allocated, mut has_room) = (None, false, false);
        for _ in 0..self.most_steps() {
            let seen = self.observe();
            if let Err(unusable) = &seen.lb_service {
                return Err(self.unless_outdated(config_wrong(unusable.to_string())));
            }
            // Its address would be found in vain if it is one of these; and beside one that is ours, one of both is surplus.
            let is_needed = seen.judged.ours.servers.is_empty() || !seen.judged.ours.allocations.is_empty();
            if is_needed && self.read_one(&seen.judged.unread).await? {
                continue;
            }
            let (wanted, parts) =
                self.wanted(&seen, &ports, &features, nodes).map_err(|error| self.unless_outdated(error))?;
            let Some(step) = plan::next(&wanted, &seen.known(&self.layout)) else {
                return self.completed(&wanted, &seen);
            };
            self.check_missed(&step)?;
            if is_creation(&step) && !has_room {
                self.check_room(&seen, &wanted).await?;
                has_room = true;
            }
            if matches!(step, Step::CreateLbService | Step::CreateServer { .. }) && creating.is_none() {
                creating = Some(self.inventory().create()?);
            }
            match self.perform(Some(&parts), &step).await {
                Ok(()) => allocated |= matches!(step, Step::Allocate { .. }),
                // It is beside the address in use, and may never get one.
                Err(error) if is_reading_of_surplus(&step, &seen) && error.reason() == reason::NSXUnavailable => {
                    return self.completed(&wanted, &seen);
                }
                Err(error) => self.failed(&seen, &step, allocated, error).await?,
            }
        }
        Err(self.endless())
    }

    /// Nothing is left to do.
    fn completed(&self, wanted: &Wanted, seen: &Seen) -> Result<LoadBalancerStatus, Error> {
        self.inventory().completed(&self.key);
        let address = plan::address(wanted, &seen.judged.ours);
        let ignored = plan::ignored(wanted, &seen.known(&self.layout));
        self.inventory().remark(&self.key, &ignored);
        match address.filter(|_| ignored.is_empty()) {
            Some(address) => wanted::check_address(&wanted.features, address).map(|()| status(Some(address))),
            None => Ok(status(address)),
        }
    }

    /// One reading may miss objects: of a Service that has an address nothing is created, and no address is released, before
    /// a second one has missed them, too.
    fn check_missed(&self, step: &Step<'_>) -> Result<(), Error> {
        let may_exist = is_creation(step) && !self.ingress.is_empty();
        let matters = may_exist || matches!(step, Step::Release(_));
        if matters && !self.inventory().was_complete(&self.key) { self.check(Need::Second) } else { Ok(()) }
    }

    /// What the configuration names may be there meanwhile: a recent reading decides.
    fn unless_outdated(&self, error: Error) -> Error {
        let is_of_names = error.reason() == reason::LoadBalancerConfigWrong;
        match Instant::now().checked_sub(RECENT).filter(|_| is_of_names) {
            Some(moment) => self.check(Need::After(moment)).err().unwrap_or(error),
            None => error,
        }
    }

    /// Whether the load balancer service has room for what is to be created. Where it does not say, NSX does when it is full.
    async fn check_room(&self, seen: &Seen, wanted: &Wanted) -> Result<(), Error> {
        let Ok(Some(lb_service)) = &seen.lb_service else { return Ok(()) };
        let has_server =
            |port: &&WantedPort| seen.judged.ours.servers.iter().any(|one| one.marks.port == Some(port.port));
        let ports = wanted.ports.len() - wanted.ports.iter().filter(has_server).count();
        if ports == 0 {
            return Ok(());
        }
        let needed = Usage::of_ports(ports, wanted.members.len());
        let mut taken = self.inventory().take_room(&needed);
        if taken.is_none()
            && let Ok(usage) = self.of.backend.usage(&lb_service.path).await
        {
            self.inventory().note_usage(usage);
            taken = self.inventory().take_room(&needed);
        }
        let Some(Err(Full { what, used, allowed })) = taken else { return Ok(()) };
        self.inventory().wait_for_room(&self.key);
        let message = format!(
            "the load balancer service {} has {used} of {allowed} {what}, and {ports} ports of the Service are to be created",
            lb_service.path
        );
        Err(Error::Exhausted { reason: reason::LoadBalancerCapacity, message, after: LATER })
    }

    /// What follows from a step that failed. It is no failure of the load balancer if it concerned what serves nothing.
    async fn failed(&self, seen: &Seen, step: &Step<'_>, allocated: bool, error: Error) -> Result<(), Error> {
        if error.reason() == reason::AddressUnavailable {
            if !seen.judged.ours.servers.is_empty() {
                return Ok(());
            }
            self.inventory().wait_for_address(&self.key);
        }
        if let (Step::CreateServer { address, .. }, true) = (step, allocated && is_refusal(error.reason())) {
            let known = seen.known(&self.layout);
            let is_free = |one: &&Allocation| one.address == Some(*address) && !known.has_server_on(one);
            if let Some(allocation) = known.ours.allocations.iter().find(is_free) {
                self.perform(None, &Step::Release(allocation)).await?;
            }
        }
        Err(error)
    }

    /// The load balancer as it is to be, and what it is made of.
    fn wanted(
        &self,
        seen: &Seen,
        ports: &[(Port, u16)],
        features: &Features,
        nodes: &[Arc<Node>],
    ) -> Result<(Wanted, Parts), Error> {
        let requested = wanted::class_of(self.service);
        let servers = &seen.judged.ours.servers;
        let class = servers.iter().map(|server| &*server.class).find(|class| !class.is_empty()).unwrap_or(requested);
        if class != requested {
            let annotation = wanted::ANNOTATION_CLASS;
            let message = format!(
                "the load balancer has the class {class:?}, and the annotation {annotation} asks for {requested:?}: the class \
                 of a load balancer cannot change; set the annotation back, or delete the Service and create it again"
            );
            return Err(Error::Invalid { reason: reason::LoadBalancerClassFixed, message });
        }
        wanted::check_class(&self.of.config, class)?;
        let complete =
            self.of.config.class(class).ok_or_else(|| config_wrong(format!("the class {class:?} is not complete")))?;
        let named = servers.iter().map(|server| &*server.address_pool).find(|pool| !pool.is_empty());
        let address_pool = match named {
            Some(pool) => pool.to_owned(),
            None => self.pool(complete.pool)?,
        };
        let wanted_port = |(port, node_port): &(Port, u16)| {
            Ok(WantedPort { port: *port, node_port: *node_port, profile: self.profile(&complete, port.protocol)? })
        };
        let mut wanted = Wanted {
            ports: ports.iter().map(wanted_port).collect::<Result<_, Error>>()?,
            members: Vec::new(),
            ingress: self.ingress.clone(),
            cluster_uid: self.layout.cluster_uid.clone(),
            service_uid: self.uid().map(str::to_owned),
            features: features.clone(),
            adopts_fully: self.of.adoption == Adoption::Full,
        };
        let is_ipv4 = plan::address(&wanted, &seen.judged.ours).is_none_or(|address: IpAddr| address.is_ipv4());
        wanted.members = members::of_nodes(nodes, is_ipv4);
        let parts = Parts {
            class: class.to_owned(),
            address_pool,
            members: wanted.members.clone(),
            size: self.of.config.size.as_str(),
            tier1: self.of.config.tier1.clone(),
        };
        Ok((wanted, parts))
    }

    fn pool(&self, pool: &Pool) -> Result<String, Error> {
        match pool {
            Pool::Id(id) => Ok(id.clone()),
            Pool::Name(name) => {
                let names = self.inventory().names();
                only(names.pools.get(name), || format!("the IP pool named {name:?}"))
            }
        }
    }

    fn profile(&self, class: &CompleteClass<'_>, protocol: Protocol) -> Result<String, Error> {
        let (profile, kind) = match protocol {
            Protocol::Tcp => (class.tcp, "TCP"),
            Protocol::Udp => (class.udp, "UDP"),
        };
        match profile {
            Profile::Path(path) => Ok(path.clone()),
            Profile::Name(name) => {
                let names = self.inventory().names();
                let found = names.profiles.get(&(protocol, name.clone()));
                only(found, || format!("the {kind} application profile named {name:?}"))
            }
        }
    }
}

/// The only one of a name.
fn only(found: Option<&Vec<String>>, what: impl Fn() -> String) -> Result<String, Error> {
    match found.map(Vec::as_slice) {
        Some([one]) => Ok(one.clone()),
        None | Some([]) => Err(config_wrong(format!("{} of the cloud config is not found in NSX", what()))),
        Some(several) => {
            let (what, count) = (what(), several.len());
            Err(config_wrong(format!(
                "{what} of the cloud config is not unique in NSX: {count} have the name; give its id or path"
            )))
        }
    }
}

fn is_reading_of_surplus(step: &Step<'_>, seen: &Seen) -> bool {
    matches!(step, Step::ReadAddress { .. }) && !seen.judged.ours.servers.is_empty()
}

fn is_creation(step: &Step<'_>) -> bool {
    matches!(
        step,
        Step::CreateMonitor { .. }
            | Step::CreatePool { .. }
            | Step::CreateGroup { .. }
            | Step::CreatePersistenceProfile { .. }
            | Step::Allocate { .. }
            | Step::CreateLbService
            | Step::CreateServer { .. }
    )
}

/// Whether NSX has refused the request itself.
fn is_refusal(reason: Reason) -> bool {
    reason == reason::NSXRefused || reason == reason::LoadBalancerConfigWrong
}
