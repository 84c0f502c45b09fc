//! A process ends at any write. The next process reaches the same state with the same address, and no object is left
//! over. A write of the ended process that arrives after that changes nothing.

use std::net::IpAddr;

use ccm::cloud::Error;
use k8s_openapi::api::core::v1::Service;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, HierarchicalPatch, Side};

use super::world::*;
use crate::routes::world::node;
use crate::world::SOON;

const OF_GO: &str = "192.0.2.77";

/// Change of the load balancer of the Service `ns/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// SEQ-01.
    Create,
    /// SEQ-16.
    CreateBoth,
    /// SEQ-02.
    AddPort,
    /// SEQ-05.
    MovePort,
    /// SEQ-04.
    MoveNodePort,
    /// SEQ-07.
    Delete,
    /// SEQ-07 of a Service that got another type: the API server has removed its status.
    DeleteOfOtherType,
    /// SEQ-08 with one request for both pools.
    ChangeNodes,
    /// SEQ-08 with one request for each pool.
    ChangeNodesOneByOne,
}

/// Creator of the existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Here,
    ByGo,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    work: Work,
    made: Made,
    uid: Option<&'static str>,
}

/// Final state.
#[derive(Debug, PartialEq, Eq)]
struct End {
    counted: [usize; 5],
    address: Option<IpAddr>,
    held: usize,
    wrong_for_go: Vec<String>,
    members: Vec<std::collections::BTreeSet<String>>,
}

fn ports(work: Work) -> Vec<(&'static str, u16, u16)> {
    match work {
        Work::Create | Work::Delete | Work::DeleteOfOtherType => vec![("TCP", 80, 30080)],
        Work::CreateBoth | Work::ChangeNodes | Work::ChangeNodesOneByOne => {
            vec![("TCP", 80, 30080), ("UDP", 80, 30081)]
        }
        Work::AddPort => vec![("TCP", 80, 30080), ("TCP", 443, 30443)],
        Work::MovePort => vec![("TCP", 81, 30080)],
        Work::MoveNodePort => vec![("TCP", 80, 30090)],
    }
}

impl Case {
    /// Whether pool and monitor have no evidence of their owner. The daemon does not delete them, and the Go program
    /// would adopt them.
    fn is_half_made(self) -> bool {
        self.made == Made::ByGo && self.is_new()
    }

    fn is_deletion(self) -> bool {
        matches!(self.work, Work::Delete | Work::DeleteOfOtherType)
    }

    fn is_new(self) -> bool {
        matches!(self.work, Work::Create | Work::CreateBoth)
    }

    /// Ends the process, and starts the next one.
    fn restart(self, world: &mut World) {
        world.restart_with(self.work != Work::ChangeNodesOneByOne);
    }

    /// Returns a world with the existing objects, and the desired Service.
    async fn prepare(self) -> (World, Service) {
        let mut world = World::start(self.uid).await;
        self.restart(&mut world);
        let wanted = service("ns/s", &ports(self.work));
        let is_change_of_nodes = matches!(self.work, Work::ChangeNodes | Work::ChangeNodesOneByOne);
        let existing = ports(if is_change_of_nodes { self.work } else { Work::Create });
        let of_other_type = self.work == Work::DeleteOfOtherType;
        let address = OF_GO.parse().unwrap();
        match (self.made, self.is_new()) {
            (Made::Here, true) => return (world, wanted),
            (Made::Here, false) => {
                let before = world.ensured(&service("ns/s", &existing)).await;
                let status = status_of(&before);
                let wanted = if of_other_type { of_another_type(wanted) } else { with_status(wanted, status) };
                return (world, wanted);
            }
            (Made::ByGo, true) => {
                // The Go program ended after monitor, pool and address.
                GoBalancer::new(NAME, "ns/s", address).put_half_made(&world.fake, "go", 3);
            }
            (Made::ByGo, false) => {
                GoBalancer::new(NAME, "ns/s", address).ports(&existing).put(&world.fake, "go");
            }
        }
        if of_other_type {
            return (world, of_another_type(wanted));
        }
        (world, reporting(wanted, OF_GO))
    }

    async fn act(self, world: &World, service: &Service) -> Result<Option<IpAddr>, Error> {
        match self.work {
            Work::Delete | Work::DeleteOfOtherType => world.delete(service).await.map(|()| None),
            Work::ChangeNodes | Work::ChangeNodesOneByOne => {
                // The first sync of a term ensures the load balancer. Then the nodes change.
                world.ensure(service).await?;
                world.cluster.remove("n2");
                world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
                world.update(&[service]).await.pop().unwrap()?;
                Ok(addresses(&world.ensure(service).await?).pop())
            }
            _ => Ok(addresses(&world.ensure(service).await?).pop()),
        }
    }

    fn end(self, world: &World, service: &Service, address: Option<IpAddr>) -> End {
        let services = if self.is_deletion() { vec![] } else { vec![service] };
        End {
            counted: world.counted(),
            address,
            held: world.held(),
            wrong_for_go: if self.is_half_made() { vec![] } else { world.handed_back(&services) },
            members: world.objects("lb-pools").iter().map(World::members).collect(),
        }
    }

    /// Ends the process at the n-th write. Returns `None` if there are fewer writes. A late write waits until the next
    /// process has ended its work.
    async fn interrupted(self, n: u32, side: Side, is_late: bool) -> Option<End> {
        let (mut world, service) = self.prepare().await;
        let hold = world.fake.hold(n, side);
        tokio::select! {
            biased;
            () = hold.wait() => {}
            finished = self.act(&world, &service) => {
                finished.unwrap();
                return None;
            }
        }
        self.restart(&mut world);
        let late = Some(hold).filter(|_| is_late);
        let address = self.act(&world, &service).await.unwrap_or_else(|error| panic!("{self:?} {n} {side:?}: {error}"));
        if let Some(hold) = late {
            hold.release();
            support::eventually("the late write is over", SOON, async || {
                let open = world.fake.requests().into_iter().find(|request| request.status.is_none());
                open.map_or(Ok(()), |open| Err(format!("{} {}", open.method, open.path)))
            })
            .await;
        }
        Some(self.end(&world, &service, address))
    }

    async fn run(self) -> u32 {
        let (world, service) = self.prepare().await;
        let address = self.act(&world, &service).await.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let whole = self.end(&world, &service, address);
        let held = if self.is_half_made() { 2 } else { 0 };
        assert_eq!((whole.held, &whole.wrong_for_go), (held, &vec![]), "{self:?}: {whole:?}");
        if self.made == Made::ByGo && !self.is_deletion() {
            assert_eq!(whole.address, OF_GO.parse().ok(), "{self:?}");
        }
        // The load balancer service stays if the Go program created it, or if it has no UID.
        let is_kept = self.uid.is_none() || (self.made == Made::ByGo && self.work != Work::Create);
        if self.is_deletion() {
            assert_eq!(whole.counted, [usize::from(is_kept), 0, 0, 0, 0], "{self:?}");
        }
        let mut writes = 0;
        for n in 1.. {
            for (side, is_late) in [(Side::Request, false), (Side::Answer, false), (Side::Request, true)] {
                let Some(end) = self.interrupted(n, side, is_late).await else { return writes };
                assert_eq!(end, whole, "{self:?}: {side:?} of the write {n}, late: {is_late}");
            }
            writes = n;
        }
        writes
    }
}

fn of_another_type(mut service: Service) -> Service {
    service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    service
}

/// `expected` has the number of interrupted writes for each work.
async fn run_all(made: Made, uid: Option<&'static str>, mut expected: [u32; 9]) {
    let all = [
        Work::Create,
        Work::CreateBoth,
        Work::AddPort,
        Work::MovePort,
        Work::MoveNodePort,
        Work::Delete,
        Work::DeleteOfOtherType,
        Work::ChangeNodes,
        Work::ChangeNodesOneByOne,
    ];
    let mut writes = Vec::new();
    for work in all {
        writes.push(Case { work, made, uid }.run().await);
    }
    let behaviour = Behaviour::of_process();
    if behaviour.hierarchical_patch != HierarchicalPatch::Served {
        // NSX refuses the request for both pools, and they are written one by one.
        expected[7] = expected[8];
    }
    // A deletion that NSX refuses until a purge is repeated.
    let is_expected = |(writes, expected): (&u32, u32)| match behaviour.marked_objects_refer {
        true => (expected..=30 * expected).contains(writes),
        false => *writes == expected,
    };
    assert!(
        writes.iter().zip(expected).all(is_expected),
        "{made:?} {uid:?}: how many writes there are: {writes:?}, expected {expected:?}"
    );
}

#[tokio::test]
async fn what_is_made_here_survives_an_end_at_any_write() {
    run_all(Made::Here, Some(UID), [5, 7, 3, 6, 2, 5, 5, 1, 2]).await;
}

#[tokio::test]
async fn what_is_made_here_survives_an_end_at_any_write_without_a_uid() {
    run_all(Made::Here, None, [5, 7, 3, 10, 2, 6, 6, 1, 2]).await;
}

#[tokio::test]
async fn what_the_go_program_made_survives_an_end_at_any_write() {
    run_all(Made::ByGo, Some(UID), [4, 6, 3, 8, 2, 6, 6, 1, 2]).await;
}

#[tokio::test]
async fn what_the_go_program_made_survives_an_end_at_any_write_without_a_uid() {
    run_all(Made::ByGo, None, [4, 6, 3, 10, 2, 6, 6, 1, 2]).await;
}
