//! The faults of the campaign: what each is, where it is drawn, and how long it lasts.

use std::ops::Range;

use fastrand::Rng;

/// Replicas of the daemon.
pub const REPLICAS: usize = 3;
/// vCenters.
pub const VCENTERS: usize = 2;

/// What goes wrong for a while. What is drawn with it stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A vCenter does not listen.
    Down,
    /// A vCenter takes calls and answers none; those are never answered.
    Hangs,
    /// A vCenter serves every call so many milliseconds later.
    Slow(u64),
    /// A proxy answers 503 instead of a vCenter.
    Unavailable,
    /// A login portal answers 200 with a page instead of a vCenter.
    Portal,
    /// All sessions end, so many times with a second in between.
    SessionsKilled,
    /// A vCenter comes back with another id for every object, and without sessions.
    OtherIds,
    /// The password is changed on the server; at the end it stands in the configuration. These sessions end with it.
    Password(Sessions),
    /// Rights are taken from the account, and given back.
    Permission(Right),

    /// NSX does not listen.
    NsxDown,
    /// NSX takes calls and answers none; those are never answered.
    NsxHangs,
    /// NSX serves every call so many milliseconds later.
    NsxSlow(u64),
    /// NSX answers 429.
    NsxThrottles,
    /// A proxy answers 503 instead of NSX.
    NsxUnavailable,
    /// A login portal answers 200 with a page instead of NSX.
    NsxPortal,
    /// NSX carries writes out, and the connection is reset before the answer.
    NsxResets,
    /// NSX refuses writes with 412, as if somebody else had written before.
    NsxConflicts,
    /// All sessions at NSX end.
    NsxSessionsKilled,
    /// The passwords of all replicas are changed at NSX, and their sessions end; at the end they are in the
    /// configuration.
    NsxPassword,
    /// The accounts lose the permission to use routes and pools, or only to write them, and get it back.
    NsxPermission {
        /// Whether they may still read.
        is_readable: bool,
    },
    /// So many routes of the cluster are deleted by hand.
    NsxDeleted(usize),
    /// Other programs take all addresses that are left, and give them back.
    NsxExhausted,
    /// Addresses are assigned so many milliseconds after they were asked for.
    NsxLateAddresses(u64),

    /// The API server and its etcd are killed, and started again at the end.
    ApiServerKilled,
    /// The API server serves every request so many milliseconds later.
    ApiServerSlow(u64),
    /// The API server answers 429, with a Retry-After of so many seconds if that is not zero.
    TooManyRequests(u32),
    /// All watches are cut, at the beginning and at the end.
    WatchesCut,
    /// So many watches are told that their resource version is too old; those that are open end.
    WatchesExpired(u32),
    /// The API server takes requests and answers none.
    ApiServerHangs,
    /// All connections to the API server are cut.
    ConnectionsCut,

    /// SIGKILL, and started again at the end.
    Killed(Whom),
    /// SIGTERM, and started again at the end.
    Terminated(Whom),
    /// SIGSTOP for longer than a Lease lasts, then SIGCONT.
    Frozen(Whom),
    /// The wall clock jumps by so many seconds, and back at the end.
    Clock(Whom, i64),

    /// The configuration is replaced by one that cannot be read, and back.
    ConfigBroken,
    /// The configuration is replaced by one without this vCenter, and back.
    ConfigWithout(usize),
    /// This vCenter shows another certificate; its CA file is replaced at the end.
    CertificateReplaced(usize),
}

/// Which sessions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// That of one replica, which is killed and started again while the configuration has the old password.
    OfOne(usize),
    /// All of this vCenter.
    All,
}

/// What the account may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The datacenter and all below it.
    Tree,
    /// One of the machines.
    Machine(usize),
    /// The category of zones.
    Category,
    /// What tags are attached to.
    Attachments,
}

/// Which replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The one that leads when the fault begins.
    Leader,
    /// This one.
    Number(usize),
}

/// Faults of one track follow each other; those of different tracks come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// A vCenter and its account.
    Vcenter(usize),
    /// NSX and the replicas' accounts.
    Nsx,
    /// What is between the replicas and the API server.
    ApiServer,
    /// The processes.
    Replicas,
    /// Their clocks.
    Clocks,
    /// Their files.
    Files,
}

/// All tracks.
pub const TRACKS: [Track; 7] =
    [Track::Vcenter(0), Track::Vcenter(1), Track::ApiServer, Track::Replicas, Track::Clocks, Track::Files, Track::Nsx];

/// A password that is wrong for all three replicas at once is refused three times, and then nobody tries a new one
/// before 200 s have passed, so that the account is not locked: with the pauses' jitter that is over so long after.
const BUDGET_IS_BACK: u64 = 280;

impl Track {
    /// The kinds of faults, each of which is drawn once before any is drawn again. `left` is how many seconds the
    /// campaign still lasts.
    pub fn faults(self, random: &mut Rng, machines: usize, left: u64) -> Vec<Fault> {
        let mut whom = || match random.usize(..2 * REPLICAS) {
            number if number < REPLICAS => Whom::Number(number),
            _ => Whom::Leader,
        };
        match self {
            Track::Vcenter(_) => {
                let right =
                    [Right::Tree, Right::Machine(random.usize(..machines)), Right::Category, Right::Attachments];
                let sessions = match random.usize(..=REPLICAS) {
                    REPLICAS if left > BUDGET_IS_BACK => Sessions::All,
                    number => Sessions::OfOne(number % REPLICAS),
                };
                vec![
                    Fault::Down,
                    Fault::Hangs,
                    Fault::Slow(random.u64(200..2_000)),
                    Fault::Unavailable,
                    Fault::Portal,
                    Fault::SessionsKilled,
                    Fault::OtherIds,
                    Fault::Password(sessions),
                    Fault::Permission(right[random.usize(..right.len())]),
                ]
            }
            Track::Nsx => vec![
                Fault::NsxDown,
                Fault::NsxHangs,
                Fault::NsxSlow(random.u64(200..2_000)),
                Fault::NsxThrottles,
                Fault::NsxUnavailable,
                Fault::NsxPortal,
                Fault::NsxResets,
                Fault::NsxConflicts,
                Fault::NsxSessionsKilled,
                Fault::NsxPassword,
                Fault::NsxPermission { is_readable: random.bool() },
                Fault::NsxDeleted(random.usize(1..20)),
                Fault::NsxExhausted,
                Fault::NsxLateAddresses(random.u64(1_000..20_000)),
            ],
            Track::ApiServer => vec![
                Fault::ApiServerKilled,
                Fault::ApiServerSlow(random.u64(100..1_000)),
                Fault::TooManyRequests(random.u32(..3)),
                Fault::WatchesCut,
                Fault::WatchesExpired(random.u32(1..12)),
                Fault::ApiServerHangs,
                Fault::ConnectionsCut,
            ],
            Track::Replicas => vec![Fault::Killed(whom()), Fault::Terminated(whom()), Fault::Frozen(whom())],
            Track::Clocks => {
                let minutes = if random.bool() { random.i64(2..30) } else { -random.i64(2..30) };
                vec![Fault::Clock(
                    if random.bool() { Whom::Leader } else { Whom::Number(random.usize(..REPLICAS)) },
                    60 * minutes,
                )]
            }
            Track::Files => vec![
                Fault::ConfigBroken,
                Fault::ConfigWithout(random.usize(..VCENTERS)),
                Fault::CertificateReplaced(random.usize(..VCENTERS)),
            ],
        }
    }

    /// Milliseconds between two faults of the track.
    pub fn pause(self) -> Range<u64> {
        match self {
            Track::Vcenter(_) | Track::ApiServer => 1_000..5_000,
            // There are more kinds of faults.
            Track::Nsx => 400..1_000,
            Track::Replicas | Track::Files => 3_000..9_000,
            Track::Clocks => 5_000..10_000,
        }
    }
}

impl Fault {
    /// For how many milliseconds it lasts.
    pub fn duration(self) -> Range<u64> {
        match self {
            Fault::SessionsKilled | Fault::OtherIds | Fault::ConnectionsCut => 0..1_500,
            Fault::NsxSessionsKilled | Fault::NsxDeleted(_) => 0..500,
            Fault::NsxDown
            | Fault::NsxHangs
            | Fault::NsxSlow(_)
            | Fault::NsxThrottles
            | Fault::NsxUnavailable
            | Fault::NsxPortal
            | Fault::NsxResets
            | Fault::NsxConflicts
            | Fault::NsxPassword
            | Fault::NsxPermission { .. }
            | Fault::NsxExhausted
            | Fault::NsxLateAddresses(_) => 1_000..4_500,
            Fault::Hangs | Fault::ApiServerHangs => 3_000..14_000,
            Fault::Frozen(_) => 7_000..12_000,
            Fault::Clock(..) => 10_000..25_000,
            _ => 2_000..9_000,
        }
    }

    /// Whether routes may not be written while it lasts.
    pub fn delays_routes(self, track: Track) -> bool {
        match track {
            Track::Nsx => !matches!(self, Fault::NsxExhausted | Fault::NsxLateAddresses(_)),
            Track::ApiServer | Track::Replicas => true,
            // A replica that is to be started waits.
            Track::Files => self == Fault::ConfigBroken,
            Track::Vcenter(_) | Track::Clocks => false,
        }
    }

    /// Its word in what is printed and in `docs/chaos.md`.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Down => "vcenter-down",
            Fault::Hangs => "vcenter-hangs",
            Fault::Slow(_) => "vcenter-slow",
            Fault::Unavailable => "vcenter-503",
            Fault::Portal => "vcenter-html",
            Fault::SessionsKilled => "sessions-killed",
            Fault::OtherIds => "other-ids",
            Fault::Password(_) => "password-changed",
            Fault::Permission(_) => "permission-removed",
            Fault::NsxDown => "nsx-down",
            Fault::NsxHangs => "nsx-hangs",
            Fault::NsxSlow(_) => "nsx-slow",
            Fault::NsxThrottles => "nsx-429",
            Fault::NsxUnavailable => "nsx-503",
            Fault::NsxPortal => "nsx-html",
            Fault::NsxResets => "nsx-reset-after-commit",
            Fault::NsxConflicts => "nsx-412",
            Fault::NsxSessionsKilled => "nsx-sessions-killed",
            Fault::NsxPassword => "nsx-password-changed",
            Fault::NsxPermission { .. } => "nsx-permission-removed",
            Fault::NsxDeleted(_) => "nsx-objects-deleted-by-hand",
            Fault::NsxExhausted => "nsx-pool-exhausted",
            Fault::NsxLateAddresses(_) => "nsx-allocation-late",
            Fault::ApiServerKilled => "api-server-killed",
            Fault::ApiServerSlow(_) => "api-server-slow",
            Fault::TooManyRequests(_) => "api-server-429",
            Fault::WatchesCut => "watches-cut",
            Fault::WatchesExpired(_) => "version-too-old",
            Fault::ApiServerHangs => "api-server-hangs",
            Fault::ConnectionsCut => "connections-cut",
            Fault::Killed(_) => "replica-killed",
            Fault::Terminated(_) => "replica-terminated",
            Fault::Frozen(_) => "replica-frozen",
            Fault::Clock(..) => "clock-off",
            Fault::ConfigBroken => "config-broken",
            Fault::ConfigWithout(_) => "config-without",
            Fault::CertificateReplaced(_) => "ca-replaced",
        }
    }
}
