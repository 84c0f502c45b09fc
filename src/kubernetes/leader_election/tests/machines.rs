//! Tests with machines that have their own clocks. Each candidate has a runtime with a paused clock that the test
//! moves. So the test can suspend one machine with its clock while time continues for the others. Standbys use
//! watches. The server uses the clock of the test.

use super::server::Fate;
use super::*;
use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

/// Time of one step of the test.
const STEP: Duration = Duration::from_millis(100);

/// An answer, which may be the event stream of a watch.
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type Reply = oneshot::Sender<Answer>;

/// Messages in flight between the machines and the server.
struct Network {
    server: SharedServer,
    now: Duration,
    fates: Vec<Fate>,
    sent: usize,
    there: VecDeque<(Duration, Fate, Call)>,
    back: Vec<(Duration, Reply, Answer)>,
    watches: Vec<Watch>,
    /// Number of delivered events.
    heard: usize,
}

struct Call {
    method: Method,
    uri: Uri,
    body: Bytes,
    reply: Reply,
}

/// The watch of a standby. Its events have a delay. `None` means that the connection is dead, without an error.
struct Watch {
    events: mpsc::UnboundedSender<Bytes>,
    delay: Option<Duration>,
    under_way: VecDeque<(Duration, Bytes)>,
}

type Net = Arc<Mutex<Network>>;

impl Network {
    fn new(fates: Vec<Fate>) -> Net {
        Arc::new(Mutex::new(Self {
            server: Server::shared(),
            now: Duration::ZERO,
            fates,
            sent: 0,
            there: VecDeque::new(),
            back: Vec::new(),
            watches: Vec::new(),
            heard: 0,
        }))
    }

    fn send(&mut self, call: Call) {
        self.sent += 1;
        let fate = if self.fates.is_empty() { Fate::GOOD } else { self.fates[self.sent % self.fates.len()] };
        self.there.push_back((self.now + fate.there, fate, call));
    }

    /// Delivers all messages that are due now.
    fn deliver(&mut self, now: Duration) {
        self.now = now;
        for _ in 0..self.there.len() {
            let Some((at, fate, call)) = self.there.pop_front() else { break };
            if at > now {
                self.there.push_back((at, fate, call));
            } else if fate.arrives {
                self.arrive(fate, call);
            }
        }
        let (due, rest): (Vec<_>, Vec<_>) = self.back.drain(..).partition(|(at, ..)| *at <= now);
        self.back = rest;
        due.into_iter().for_each(|(_, reply, response)| drop(reply.send(response)));
        for watch in &mut self.watches {
            while watch.under_way.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, line)) = watch.under_way.pop_front() else { break };
                self.heard += 1;
                let _ = watch.events.send(line);
            }
        }
        self.watches.retain(|watch| !watch.events.is_closed());
    }

    fn arrive(&mut self, fate: Fate, call: Call) {
        let Call { method, uri, body, reply } = call;
        let query = uri.query().unwrap_or_default();
        let before = self.server.lock().unwrap().version();
        let response = if query.contains("watch=") {
            self.watch(query, fate)
        } else {
            let answer = self.server.lock().unwrap().answer(&method, &uri, &body);
            answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
        };
        self.tell_since(before);
        if let Some(back) = fate.back {
            self.back.push((self.now + back, reply, response));
        }
    }

    fn watch(&mut self, query: &str, fate: Fate) -> Answer {
        let (events, mut lines) = mpsc::unbounded_channel();
        let since = query.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next()?.parse().ok());
        let mut watch = Watch { events, delay: fate.back, under_way: VecDeque::new() };
        let server = self.server.lock().unwrap();
        if since.is_none_or(|since: u64| since < server.version()) {
            watch.tell(self.now, server.event(LEASE));
        }
        self.watches.push(watch);
        let stream = futures::stream::poll_fn(move |context| lines.poll_recv(context));
        let frames = futures::StreamExt::map(stream, |line| Ok::<_, BoxError>(Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn tell_since(&mut self, before: u64) {
        let server = self.server.lock().unwrap();
        if server.version() != before {
            let event = server.event(LEASE);
            self.watches.iter_mut().for_each(|watch| watch.tell(self.now, event.clone()));
        }
    }
}

impl Watch {
    fn tell(&mut self, now: Duration, event: serde_json::Value) {
        let Some(delay) = self.delay else { return };
        let last = self.under_way.back().map_or(Duration::ZERO, |(at, _)| *at);
        self.under_way.push_back((last.max(now + delay), Bytes::from(format!("{event}\n"))));
    }
}

fn client(net: &Net) -> Client {
    let net = net.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let net = net.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (reply, answer) = oneshot::channel();
            net.lock().unwrap().send(Call { method: parts.method, uri: parts.uri, body, reply });
            match answer.await {
                Ok(response) => Ok::<_, BoxError>(response),
                // The message is lost. The client gets no error.
                Err(_) => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// Periods of the test clock: start and duration in milliseconds.
type Times = Vec<(u64, u64)>;

fn holds(times: &Times, at: Duration) -> bool {
    let at = u64::try_from(at.as_millis()).unwrap();
    times.iter().any(|(from, lasts)| *from <= at && at < from + lasts)
}

/// Interruptions of one machine.
#[derive(Clone, Debug, Default)]
struct Life {
    /// Periods in which tasks do not run and the monotonic clock stands still. The wall clock continues.
    suspended: Times,
    /// Periods in which tasks do not run but both clocks continue.
    frozen: Times,
}

struct Machine {
    runtime: Runtime,
    leadership: Leadership,
    wall_clock: WallClock,
    life: Life,
    /// Time by which the monotonic clock is behind after a frozen period.
    owed: Duration,
}

impl Machine {
    fn start(net: &Net, identity: &str, life: Life) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let wall_clock = WallClock::default();
        let guard = runtime.enter();
        let (elector, leadership) = LeaderElector::by_clock(client(net), config(identity), wall_clock.clone()).unwrap();
        runtime.spawn(elector.run(CancellationToken::new()));
        let server = net.lock().unwrap().server.clone();
        runtime.spawn(node_writer(server, identity.to_owned(), LEASE, leadership.clone()));
        drop(guard);
        Self { runtime, leadership, wall_clock, life, owed: Duration::ZERO }
    }

    fn step(&mut self, at: Duration) {
        self.wall_clock.jump(STEP);
        if holds(&self.life.suspended, at) {
            return;
        }
        self.owed += STEP;
        if holds(&self.life.frozen, at) {
            return;
        }
        let owed = std::mem::take(&mut self.owed);
        self.runtime.block_on(async {
            tokio::time::advance(owed).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn is_leader(&self) -> bool {
        let _guard = self.runtime.enter();
        self.leadership.is_leader()
    }
}

struct World {
    net: Net,
    machines: Vec<Machine>,
    at: Duration,
}

impl World {
    fn new(fates: Vec<Fate>, lives: Vec<Life>) -> Self {
        let net = Network::new(fates);
        let start = |(number, life)| Machine::start(&net, &format!("host_{number}"), life);
        let machines = lives.into_iter().enumerate().map(start).collect();
        Self { net, machines, at: Duration::ZERO }
    }

    /// Runs one step. Returns the leader after the step, and checks that there is at most one.
    fn step(&mut self) -> Option<usize> {
        self.at += STEP;
        self.net.lock().unwrap().deliver(self.at);
        let at = self.at;
        self.machines.iter_mut().for_each(|machine| machine.step(at));
        let leaders: Vec<usize> =
            self.machines.iter().enumerate().filter(|(_, one)| one.is_leader()).map(|(number, _)| number).collect();
        assert!(leaders.len() < 2, "two leaders {at:?} after the start");
        leaders.first().copied()
    }

    fn run(&mut self, time: Duration) -> Vec<Option<usize>> {
        let end = self.at + time;
        let mut seen = Vec::new();
        while self.at < end {
            seen.push(self.step());
        }
        seen
    }

    fn assert_safe(&self) {
        let net = self.net.lock().unwrap();
        let server = net.server.lock().unwrap();
        assert_eq!(server.intruders.first(), None, "{} in all", server.intruders.len());
        assert!(server.writes(LEASE) > 0 && net.heard > 0, "{} writes, {} events", server.writes(LEASE), net.heard);
    }
}

/// Suspends the leader for different times. Either the same machine or another one leads afterwards, never both.
#[test]
fn a_machine_that_was_suspended_never_leads_beside_another() {
    for seconds in [5, 9, 12, 14, 16, 20, 40] {
        for offset in 0..10 {
            let from = 20_000 + 200 * offset;
            let life = Life { suspended: vec![(from, seconds * 1_000)], ..Life::default() };
            let mut world = World::new(Vec::new(), vec![life]);
            world.run(Duration::from_secs(5));
            let net = world.net.clone();
            world.machines.push(Machine::start(&net, "host_1", Life::default()));
            let seen = world.run(Duration::from_secs(95));
            let first = seen.iter().flatten().next();
            assert_eq!(first, Some(&0), "{seconds} s");
            assert!(seen.last().unwrap().is_some(), "{seconds} s: somebody leads");
            let other = seen.iter().position(|leader| *leader == Some(1)).map(|steps| 5_000 + 100 * steps as u64);
            // A standby that sees each renewal becomes the leader one lease duration after the last renewal.
            let after = other.map(|at| at.saturating_sub(from));
            let fits = match seconds {
                ..=12 => after.is_none(),
                20.. => after.is_some_and(|after| (12_500..=15_500).contains(&after)),
                _ => true,
            };
            assert!(fits, "{seconds} s from {from} ms: another leads {after:?} ms later");
            world.assert_safe();
        }
    }
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let time = prop_oneof![6 => 0..50u64, 2 => 50..4_000u64, 1 => 4_000..25_000u64];
    let fate = (time.clone(), prop::bool::weighted(0.9), prop::option::weighted(0.9, time)).prop_map(
        |(there, arrives, back)| Fate {
            there: Duration::from_millis(there),
            arrives,
            back: back.map(Duration::from_millis),
        },
    );
    prop::collection::vec(fate, 20..80)
}

fn life() -> impl Strategy<Value = Life> {
    let lasts = prop_oneof![2 => 100..40_000u64, 1 => Just(12_000u64)];
    let times = || prop::collection::vec((0..120_000u64, lasts.clone()), 0..3);
    (times(), times()).prop_map(|(suspended, frozen)| Life { suspended, frozen })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_of_machines_with_clocks_of_their_own_has_two_leaders(
        fates in fates(),
        lives in prop::collection::vec(life(), 2..=3),
    ) {
        let mut world = World::new(fates, lives);
        world.run(Duration::from_secs(130));
        world.net.lock().unwrap().fates.clear();
        let calm = world.run(Duration::from_secs(100));
        prop_assert!(calm.last().is_some_and(Option::is_some), "somebody leads when all is well");
        world.assert_safe();
    }
}
