//! The faults of the campaign, their tracks and their durations.

use std::ops::Range;

use fastrand::Rng;

/// Number of replicas of the daemon.
pub const REPLICAS: usize = 3;
/// Number of vCenters.
pub const VCENTERS: usize = 2;

/// A temporary fault, with its random parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A vCenter does not listen.
    Down,
    /// A vCenter accepts calls and never answers them.
    Hangs,
    /// A vCenter delays every call by this many milliseconds.
    Slow(u64),
    /// A proxy answers 503 in place of a vCenter.
    Unavailable,
    /// A login portal answers 200 with an HTML page in place of a vCenter.
    Portal,
    /// All sessions end this many times, one second apart.
    SessionsKilled,
    /// A vCenter comes back with another id for every object, and without sessions.
    OtherIds,
    /// The password is changed on the server, and at the end also in the configuration. These sessions end with the
    /// change.
    Password(Sessions),
    /// The account loses this right and gets it back at the end.
    Permission(Right),

    /// NSX does not listen.
    NsxDown,
    /// NSX accepts calls and never answers them.
    NsxHangs,
    /// NSX delays every call by this many milliseconds.
    NsxSlow(u64),
    /// NSX answers 429.
    NsxThrottles,
    /// A proxy answers 503 in place of NSX.
    NsxUnavailable,
    /// A login portal answers 200 with an HTML page in place of NSX.
    NsxPortal,
    /// NSX executes writes and then resets the connection before the answer.
    NsxResets,
    /// NSX rejects writes with 412, as after a concurrent write.
    NsxConflicts,
    /// All sessions at NSX end.
    NsxSessionsKilled,
    /// The passwords of all replicas are changed at NSX, and their sessions end. At the end the configuration gets the
    /// new passwords.
    NsxPassword,
    /// The accounts lose the permission to read and write routes and pools, or only to write them. They get it back at
    /// the end.
    NsxPermission {
        /// Whether the accounts may still read.
        is_readable: bool,
    },
    /// This many routes of the cluster are deleted by hand.
    NsxDeleted(usize),
    /// Other programs take all free addresses, and release them at the end.
    NsxExhausted,
    /// NSX assigns addresses this many milliseconds after the request.
    NsxLateAddresses(u64),

    /// The API server and its etcd are killed, and started again at the end.
    ApiServerKilled,
    /// The API server delays every request by this many milliseconds.
    ApiServerSlow(u64),
    /// The API server answers 429, with a Retry-After of this many seconds if it is not zero.
    TooManyRequests(u32),
    /// All watches are cut, at the startning and at the end.
    WatchesCut,
    /// This many watches get the error that their resource version is too old. Open watches end.
    WatchesExpired(u32),
    /// The API server accepts requests and never answers them.
    ApiServerHangs,
    /// All connections to the API server are cut.
    ConnectionsCut,

    /// SIGKILL, and a new start at the end.
    Killed(Whom),
    /// SIGTERM, and a new start at the end.
    Terminated(Whom),
    /// SIGSTOP for longer than the lease duration, then SIGCONT.
    Frozen(Whom),
    /// The wall clock jumps by this many seconds, and back at the end.
    Clock(Whom, i64),

    /// An invalid configuration replaces the configuration until the end.
    ConfigBroken,
    /// The configuration lacks this vCenter until the end.
    ConfigWithout(usize),
    /// This vCenter shows another certificate. Its CA file is replaced at the end.
    CertificateReplaced(usize),
}

/// The sessions that end with a password change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// The session of one replica, which is killed and started again while the configuration has the old password.
    OfOne(usize),
    /// All sessions of this vCenter.
    All,
}

/// Objects that the account may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The datacenter and all objects below it.
    Tree,
    /// One of the machines.
    Machine(usize),
    /// The category of zones.
    Category,
    /// The objects that tags are attached to.
    Attachments,
}

/// The replica that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The leader at the start of the fault.
    Leader,
    /// The replica with this number.
    Number(usize),
}

/// Faults of one track follow each other. Faults of different tracks overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// A vCenter and its account.
    Vcenter(usize),
    /// NSX and the replicas' accounts.
    Nsx,
    /// The connections between the replicas and the API server.
    ApiServer,
    /// The processes.
    Replicas,
    /// The wall clocks of the replicas.
    Clocks,
    /// The files of the replicas.
    Files,
}

pub const TRACKS: [Track; 7] =
    [Track::Vcenter(0), Track::Vcenter(1), Track::ApiServer, Track::Replicas, Track::Clocks, Track::Files, Track::Nsx];

/// Seconds before the last new password. vCenter rejects the wrong password of the three replicas three times. Then no
/// replica tries a new password for 200 s, so that the account is not locked. With jitter that pause ends after this
/// time.
const BUDGET_IS_BACK: u64 = 280;

impl Track {
    /// Returns one fault of each kind. Every kind is drawn once before any kind is drawn again. `left` is the remaining
    /// time of the campaign in seconds.
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

    /// Range of the pause between two faults of the track, in milliseconds.
    pub fn pause(self) -> Range<u64> {
        match self {
            Track::Vcenter(_) | Track::ApiServer => 1_000..5_000,
            // The NSX track has more kinds of faults, so its pauses are short.
            Track::Nsx => 400..1_000,
            Track::Replicas | Track::Files => 3_000..9_000,
            Track::Clocks => 5_000..10_000,
        }
    }
}

impl Fault {
    /// Range of the duration of the fault, in milliseconds.
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

    /// Whether the fault can prevent writes of routes.
    pub fn delays_routes(self, track: Track) -> bool {
        match track {
            Track::Nsx => !matches!(self, Fault::NsxExhausted | Fault::NsxLateAddresses(_)),
            Track::ApiServer | Track::Replicas => true,
            // A replica that has to start waits until the configuration is valid again.
            Track::Files => self == Fault::ConfigBroken,
            Track::Vcenter(_) | Track::Clocks => false,
        }
    }

    /// Name of the fault in the output and in `docs/chaos.md`.
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
