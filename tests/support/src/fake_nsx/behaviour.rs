//! Switches for behaviour that differs between real managers or is not documented.

use std::time::Duration;

/// Answer of `realized-entities` before an object is realized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingAnswer {
    /// An empty list.
    Empty,
    /// 404 with code 600.
    NotFound,
    /// A row with state `UNREALIZED` and without attributes.
    Unrealized,
}

/// Rejection of a PUT with an old `_revision`, or without one if one is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// 412 with code 206.
    PreconditionFailed,
    /// 409 without a code.
    ConcurrentChange,
    /// 400 with this code: 500087, 500232 or 100148. Without a revision the code is 500127.
    BadRequest(i64),
}

/// The cursor of the last page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCursor {
    /// The last page has none.
    Absent,
    /// The last page has one. The page after it is empty and has the same cursor.
    Present,
}

/// Position at which a cursor continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At an index. If an earlier object is deleted meanwhile, the list misses one object.
    Position,
    /// After the last object of the previous page.
    Object,
}

/// The pages that have `result_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCount {
    /// The first page.
    FirstPage,
    /// All pages.
    EveryPage,
    /// No page.
    Missing,
}

/// The order of objects with equal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EqualNames {
    /// By id.
    ById,
    /// The newest first.
    NewestFirst,
    /// A different order at each request.
    Unstable,
}

/// The effect of a DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object is removed at once. No Policy API does this.
    AtOnce,
    /// The object is marked for deletion: reads do not show it, and its id cannot be used until the purge.
    Marked {
        /// Time during which the network still implements the object.
        realized_for: Duration,
        /// Time until the purge. The Policy API purges every five minutes.
        purged_after: Duration,
    },
}

/// The effect of exceeding the size of a load balancer service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The write is rejected with 400.
    Refused,
    /// The write is accepted, and the object is realized as `ERROR` with an alarm.
    Alarm,
    /// No effect.
    Unlimited,
}

/// Rejection of a request with a session that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadSession {
    /// 403 with code 403, as for wrong credentials. The same applies to a session without its XSRF token, and to a
    /// token of VMware Cloud.
    Rejected,
    /// 403 with code 98, as for a wrong XSRF token.
    BadToken,
    /// 401.
    Unauthenticated,
    /// No rejection: 200 with a login page, as from a portal in front of the manager.
    LoginPage,
    /// No rejection: 302 to a login page.
    LoginRedirect,
}

/// Answer to a PATCH of `/infra` with children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HierarchicalPatch {
    /// The request is served.
    Served,
    /// 403 with code 401: the role does not allow it.
    Forbidden,
    /// 404 with a page, as for a path that the manager does not have.
    NotFound,
    /// 405.
    NotAllowed,
}

/// Switches for behaviour that is not the same in all managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Answer of `realized-entities` before an object is realized.
    pub pending: PendingAnswer,
    /// Whether a PATCH with an old `_revision` is rejected.
    pub refuses_stale_patch: bool,
    /// Whether a PATCH of an existing object needs `_revision`; without one it is rejected with 400 and code 500127.
    pub patch_needs_revision: bool,
    /// Whether a PATCH keeps the fields that are not in its body.
    pub patch_merges: bool,
    /// Answer to a PATCH of `/infra` with children.
    pub hierarchical_patch: HierarchicalPatch,
    /// Whether a rewritten object keeps the realized state of its old revision until the new revision is realized.
    /// Otherwise it has no realized state until then.
    pub keeps_old_realization: bool,
    /// Whether the realized status contains the realized revision.
    pub shows_intent_version: bool,
    /// Rejection of a revision conflict.
    pub conflict: Conflict,
    /// Whether a PUT without `_revision` of an existing object is always rejected with 400 and code 500127.
    pub exists_with_500127: bool,
    /// Whether a reference to a missing object is rejected with 400 and code 500012 instead of 404 and code 600.
    pub missing_with_500012: bool,
    /// Whether PATCH and DELETE answer with 204 instead of 200 and an empty body.
    pub answers_no_content: bool,
    /// The cursor of the last page of a list.
    pub last_cursor: LastCursor,
    /// Position at which a cursor continues.
    pub cursor: Cursor,
    /// The pages that have `result_count`.
    pub result_count: ResultCount,
    /// The order of objects with equal names.
    pub equal_names: EqualNames,
    /// Upper limit of objects in a page, whatever the request asks for.
    pub page_limit: usize,
    /// The effect of a DELETE.
    pub deletion: Deletion,
    /// Whether an object that is marked for deletion still prevents the deletion of the objects that it refers to.
    pub marked_objects_refer: bool,
    /// Whether a second DELETE of a marked object is rejected with 400 and code 500045 instead of 404.
    pub refuses_second_delete: bool,
    /// The effect of exceeding the size of a load balancer service.
    pub capacity: Capacity,
    /// Whether a group with several `IPAddressExpression` is rejected.
    pub refuses_several_expressions: bool,
    /// Whether groups have no field `group_type`, as in old versions.
    pub lacks_group_type: bool,
    /// Whether a PATCH of `/infra` creates a missing child, even if its revision is sent and checked.
    pub creates_absent_children: bool,
    /// Whether `service-usage` has its counters in `results`.
    pub usage_in_results: bool,
    /// Longest age of the counters of `service-usage`.
    pub usage_lag: Duration,
    /// Whether `service-usage` has no counters for a new load balancer service.
    pub usage_comes_late: bool,
    /// Whether the manager adds fields to an object that a client writes: ids and paths of expressions,
    /// `port_overload`, `_links`.
    pub fills_in: bool,
    /// Whether a realized allocation shows `allocated_ip`.
    pub shows_allocated_ip: bool,
    /// Whether a requested address is accepted although it is outside the pool or allocated.
    pub accepts_any_wish: bool,
    /// Whether a PATCH of an allocation whose id is marked for deletion succeeds without any effect.
    pub swallows_marked_allocation: bool,
    /// Whether a row of the realized state names its intent.
    pub rows_name_intents: bool,
    /// Whether wrong credentials are answered with 401 instead of 403 and code 403.
    pub rejects_with_401: bool,
    /// Rejection of a session that has ended.
    pub dead_session: DeadSession,
    /// Whether a new session is answered with 201 instead of 200.
    pub creates_with_201: bool,
    /// Whether an unknown client certificate is answered with 500 and code 99 instead of 403 and code 403.
    pub distrusts_with_99: bool,
    /// Whether `expires_in` of a token is a text instead of a number.
    pub expires_in_is_text: bool,
}

impl Behaviour {
    /// The behaviour of most observed managers.
    pub const USUAL: Self = Self {
        pending: PendingAnswer::Empty,
        refuses_stale_patch: false,
        patch_needs_revision: false,
        patch_merges: false,
        hierarchical_patch: HierarchicalPatch::Served,
        keeps_old_realization: true,
        shows_intent_version: true,
        conflict: Conflict::PreconditionFailed,
        exists_with_500127: false,
        missing_with_500012: false,
        answers_no_content: false,
        last_cursor: LastCursor::Absent,
        cursor: Cursor::Position,
        result_count: ResultCount::FirstPage,
        equal_names: EqualNames::ById,
        page_limit: 1000,
        deletion: Deletion::Marked { realized_for: Duration::from_secs(2), purged_after: Duration::from_secs(5) },
        marked_objects_refer: false,
        refuses_second_delete: false,
        capacity: Capacity::Refused,
        refuses_several_expressions: false,
        lacks_group_type: false,
        creates_absent_children: false,
        usage_in_results: true,
        usage_lag: Duration::ZERO,
        usage_comes_late: false,
        fills_in: true,
        shows_allocated_ip: false,
        accepts_any_wish: false,
        swallows_marked_allocation: false,
        rows_name_intents: true,
        rejects_with_401: false,
        dead_session: DeadSession::Rejected,
        creates_with_201: false,
        distrusts_with_99: false,
        expires_in_is_text: false,
    };

    /// Every switch in a position other than in [`Self::USUAL`].
    pub const OPPOSITE: Self = Self {
        pending: PendingAnswer::NotFound,
        refuses_stale_patch: true,
        patch_needs_revision: true,
        patch_merges: true,
        hierarchical_patch: HierarchicalPatch::NotAllowed,
        keeps_old_realization: false,
        shows_intent_version: false,
        conflict: Conflict::BadRequest(500_087),
        exists_with_500127: true,
        missing_with_500012: true,
        answers_no_content: true,
        last_cursor: LastCursor::Present,
        cursor: Cursor::Object,
        result_count: ResultCount::Missing,
        equal_names: EqualNames::NewestFirst,
        page_limit: 7,
        deletion: Deletion::AtOnce,
        marked_objects_refer: true,
        refuses_second_delete: true,
        capacity: Capacity::Alarm,
        refuses_several_expressions: true,
        lacks_group_type: true,
        creates_absent_children: true,
        usage_in_results: false,
        usage_lag: Duration::from_secs(30),
        usage_comes_late: true,
        fills_in: false,
        shows_allocated_ip: true,
        accepts_any_wish: true,
        swallows_marked_allocation: true,
        rows_name_intents: false,
        rejects_with_401: true,
        dead_session: DeadSession::BadToken,
        creates_with_201: true,
        distrusts_with_99: true,
        expires_in_is_text: true,
    };

    /// Both behaviours above and [`Self::THIRD`], for suites that run with each.
    pub const ALL: [(&'static str, Self); 3] =
        [("usual", Self::USUAL), ("opposite", Self::OPPOSITE), ("third", Self::THIRD)];

    /// Like [`Self::USUAL`], with the positions of switches that neither of the others has.
    pub const THIRD: Self = Self {
        pending: PendingAnswer::Unrealized,
        hierarchical_patch: HierarchicalPatch::NotFound,
        conflict: Conflict::ConcurrentChange,
        result_count: ResultCount::EveryPage,
        equal_names: EqualNames::Unstable,
        deletion: Deletion::Marked { realized_for: Duration::from_secs(120), purged_after: Duration::from_secs(300) },
        marked_objects_refer: true,
        refuses_second_delete: true,
        capacity: Capacity::Unlimited,
        dead_session: DeadSession::Unauthenticated,
        ..Self::USUAL
    };
}

/// Returns [`Behaviour::USUAL`] once for each of these switches, with only that switch as in [`Behaviour::OPPOSITE`].
macro_rules! each {
    ($($switch:ident),* $(,)?) => {{
        // This does not compile if the list lacks a switch.
        let Behaviour { $($switch: _),* } = Behaviour::USUAL;
        vec![$((stringify!($switch), Behaviour { $switch: Behaviour::OPPOSITE.$switch, ..Behaviour::USUAL })),*]
    }};
}

impl Behaviour {
    /// Returns [`Self::USUAL`] once for each switch, with only that switch as in [`Self::OPPOSITE`].
    #[must_use]
    pub fn each() -> Vec<(&'static str, Self)> {
        each![
            pending,
            refuses_stale_patch,
            patch_needs_revision,
            patch_merges,
            hierarchical_patch,
            keeps_old_realization,
            shows_intent_version,
            conflict,
            exists_with_500127,
            missing_with_500012,
            answers_no_content,
            last_cursor,
            cursor,
            result_count,
            equal_names,
            page_limit,
            deletion,
            marked_objects_refer,
            refuses_second_delete,
            capacity,
            refuses_several_expressions,
            lacks_group_type,
            creates_absent_children,
            usage_in_results,
            usage_lag,
            usage_comes_late,
            fills_in,
            shows_allocated_ip,
            accepts_any_wish,
            swallows_marked_allocation,
            rows_name_intents,
            rejects_with_401,
            dead_session,
            creates_with_201,
            distrusts_with_99,
            expires_in_is_text,
        ]
    }
}

/// Environment variable with the behaviour of all managers of a test process: a name in [`Behaviour::ALL`], or a
/// switch.
pub const BEHAVIOUR_VARIABLE: &str = "NSX_BEHAVIOUR";

impl Behaviour {
    /// Returns the default behaviour of managers in this process: [`Self::USUAL`], or the value of
    /// [`BEHAVIOUR_VARIABLE`].
    ///
    /// # Panics
    ///
    /// If the variable has an unknown value.
    #[must_use]
    pub fn of_process() -> Self {
        let Ok(name) = std::env::var(BEHAVIOUR_VARIABLE) else { return Self::USUAL };
        let mut all = Self::ALL.into_iter().chain(Self::each());
        let found = all.find(|(one, _)| *one == name);
        found.unwrap_or_else(|| panic!("{BEHAVIOUR_VARIABLE}={name}: there is no such behaviour")).1
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::USUAL
    }
}
