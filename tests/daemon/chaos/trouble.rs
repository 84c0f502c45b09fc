//! Start and end of the faults.

use std::time::{Duration, Instant};

use support::{Fault as SoapFault, Trouble};

use super::fault::{Fault, Right, Sessions, Track, Whom};
use super::script::Planned;
use super::world::World;

impl World {
    /// Begins the fault with this number.
    pub async fn begin(&mut self, number: usize, planned: &Planned, follows: bool) {
        let hit = match planned.fault {
            Fault::Killed(whom) | Fault::Terminated(whom) | Fault::Frozen(whom) | Fault::Clock(whom, _) => {
                self.who(number, whom).await
            }
            _ => 0,
        };
        self.tell(format!("begin #{number} {:?} {:?} (replica {hit})", planned.track, planned.fault));
        if planned.fault.delays_routes(planned.track) {
            self.watch.faults.insert(number, (Instant::now(), None));
        }
        match planned.track {
            Track::Vcenter(vcenter) => return self.begin_at(vcenter, planned.fault, follows).await,
            Track::Nsx => return self.begin_at_nsx(planned.fault).await,
            _ => {}
        }
        if cuts_off(planned.fault) {
            self.apart.push((Instant::now(), None));
        }
        let proxies = self.replicas.iter().map(|replica| &replica.proxy);
        match planned.fault {
            Fault::ApiServerKilled => {
                self.is_served = false;
                self.server.kill().await;
            }
            Fault::ApiServerSlow(milliseconds) => {
                proxies.for_each(|proxy| proxy.slow(Duration::from_millis(milliseconds)));
            }
            Fault::TooManyRequests(seconds) => {
                proxies.for_each(|proxy| proxy.too_many(Some(seconds).filter(|seconds| *seconds > 0)));
            }
            Fault::WatchesCut => proxies.for_each(support::ApiProxy::cut_watches),
            Fault::WatchesExpired(count) => proxies.for_each(|proxy| {
                proxy.expire_watches(count);
                proxy.end_watches();
            }),
            Fault::ApiServerHangs => proxies.for_each(support::ApiProxy::hang),
            Fault::ConnectionsCut => proxies.for_each(support::ApiProxy::cut_all),
            Fault::Killed(_) => self.kill_replica(hit).await,
            Fault::Terminated(_) => self.stop_replica(hit).await,
            Fault::Frozen(_) => self.signal(hit, "STOP").await,
            Fault::Clock(_, seconds) => {
                self.judged.proofs.clock_is_ahead(seconds);
                self.replicas[hit].clock.set_ahead(seconds);
            }
            Fault::ConfigBroken => {
                self.site.is_broken = true;
                self.site.write();
            }
            Fault::ConfigWithout(vcenter) => {
                self.site.without = Some(vcenter);
                self.site.write();
            }
            Fault::CertificateReplaced(vcenter) => {
                self.site.certificates[vcenter] = self.site.fakes[vcenter].change_certificate();
            }
            other => panic!("{other:?} is of another track"),
        }
    }

    /// Ends the fault with this number.
    pub async fn end(&mut self, number: usize, planned: &Planned, follows: bool) {
        let hit = self.hit.get(&number).copied().unwrap_or_default();
        self.tell(format!("end   #{number} {:?} {:?} (replica {hit})", planned.track, planned.fault));
        match planned.track {
            Track::Vcenter(vcenter) => return self.end_at(vcenter, planned.fault).await,
            Track::Nsx => {
                self.end_at_nsx(planned.fault).await;
                self.watch.ended(number, planned.fault);
                return;
            }
            _ => {}
        }
        let proxies = self.replicas.iter().map(|replica| &replica.proxy);
        match planned.fault {
            Fault::ApiServerKilled => {
                self.server.restart().await;
                self.is_served = true;
            }
            Fault::WatchesCut => proxies.for_each(support::ApiProxy::cut_watches),
            Fault::ApiServerSlow(_)
            | Fault::TooManyRequests(_)
            | Fault::WatchesExpired(_)
            | Fault::ApiServerHangs
            | Fault::ConnectionsCut => proxies.for_each(support::ApiProxy::clear),
            Fault::Killed(_) | Fault::Terminated(_) => self.start_replica(hit, follows),
            Fault::Frozen(_) => self.signal(hit, "CONT").await,
            Fault::Clock(..) => self.replicas[hit].clock.set_ahead(0),
            Fault::ConfigBroken => {
                self.site.is_broken = false;
                self.site.write();
            }
            Fault::ConfigWithout(_) => {
                self.site.without = None;
                self.site.write();
            }
            Fault::CertificateReplaced(vcenter) => self.site.write_authority(vcenter),
            other => panic!("{other:?} is of another track"),
        }
        self.watch.ended(number, planned.fault);
        if cuts_off(planned.fault)
            && let Some((_, end)) = self.apart.last_mut()
        {
            *end = Some(Instant::now());
        }
    }

    async fn who(&mut self, number: usize, whom: Whom) -> usize {
        let replica = match whom {
            Whom::Number(replica) => replica,
            Whom::Leader => self.leader().await,
        };
        self.hit.insert(number, replica);
        replica
    }

    /// Sends a signal to this replica, if it runs.
    async fn signal(&self, replica: usize, signal: &str) {
        if let Some(daemon) = &self.replicas[replica].daemon {
            daemon.signal(signal).await;
        }
    }

    async fn begin_at(&mut self, vcenter: usize, fault: Fault, follows: bool) {
        let fake = &self.site.fakes[vcenter];
        match fault {
            Fault::Down => fake.stop_listening().await,
            Fault::Hangs => fake.every("*", Trouble::Hang),
            Fault::Slow(milliseconds) => fake.delay_calls(Duration::from_millis(milliseconds)),
            Fault::Unavailable => fake.every("*", Trouble::unavailable()),
            Fault::Portal => fake.every("*", Trouble::portal()),
            Fault::SessionsKilled => self.end_sessions(vcenter),
            Fault::OtherIds => fake.restart_with_other_ids().await,
            Fault::Password(sessions) => {
                fake.set_password(&format!("Changed-Horse-{}", self.count));
                match sessions {
                    Sessions::All => self.end_sessions(vcenter),
                    Sessions::OfOne(replica) => {
                        self.kill_replica(replica).await;
                        self.start_replica(replica, follows);
                    }
                }
            }
            Fault::Permission(right) => self.permit(vcenter, right, false),
            other => panic!("{other:?} is of no vCenter"),
        }
    }

    async fn end_at(&mut self, vcenter: usize, fault: Fault) {
        let fake = &self.site.fakes[vcenter];
        match fault {
            Fault::Down => fake.resume_listening().await,
            Fault::Hangs | Fault::Unavailable | Fault::Portal => fake.clear(),
            Fault::Slow(_) => fake.delay_calls(Duration::ZERO),
            Fault::SessionsKilled => self.end_sessions(vcenter),
            Fault::OtherIds => {}
            Fault::Password(_) => {
                self.site.passwords[vcenter] = fake.password();
                self.site.write();
            }
            Fault::Permission(right) => self.permit(vcenter, right, true),
            other => panic!("{other:?} is of no vCenter"),
        }
    }

    fn end_sessions(&self, vcenter: usize) {
        self.site.fakes[vcenter].kill_soap_sessions(SoapFault::not_authenticated());
        self.site.fakes[vcenter].kill_rest_sessions();
    }

    fn permit(&self, vcenter: usize, right: Right, is_given: bool) {
        let fake = &self.site.fakes[vcenter];
        match right {
            Right::Tree => fake.set_tree_readable("Datacenter", "dc-1", is_given),
            Right::Machine(number) => {
                // Since then the machine may have moved to another vCenter, or been destroyed and created again. In
                // that case the machine did not lose the right.
                if super::world::vcenter_of(number) == vcenter && self.judged.machines[number].is_there {
                    fake.set_readable("VirtualMachine", &self.names[number], is_given);
                }
            }
            Right::Category => fake.set_category_readable("k8s-zone", is_given),
            Right::Attachments => fake.set_attachments_readable(is_given),
        }
    }
}

/// Whether the fault can prevent replicas from reaching their record of logins.
fn cuts_off(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::ApiServerKilled
            | Fault::ApiServerSlow(_)
            | Fault::TooManyRequests(_)
            | Fault::ApiServerHangs
            | Fault::ConnectionsCut
    )
}
