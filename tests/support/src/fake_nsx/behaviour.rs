//! Switches for behaviour that differs between real managers or is not documented.

use std::time::Duration;

/// What `realized-entities` answers before an object is realized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingAnswer {
    /// An empty list.
    Empty,
    /// 404 with code 600.
    NotFound,
    /// A row with state `UNREALIZED` and without attributes.
    Unrealized,
}

/// How a PUT with an old `_revision` is refused, or without one where one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// 412 with code 206.
    PreconditionFailed,
    /// 409 without a code.
    ConcurrentChange,
    /// 400 with this code: 500087, 500232 or 100148. Without a revision it is 500127.
    BadRequest(i64),
}

/// The cursor of the last page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCursor {
    /// There is none.
    Absent,
    /// There is one; the page after it is empty and has the same cursor.
    Present,
}

/// Where a cursor continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At a position: a list misses one object while an object before it is deleted.
    Position,
    /// After the last object of the page before.
    Object,
}

/// Which pages have `result_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCount {
    /// The first one.
    FirstPage,
    /// All.
    EveryPage,
    /// None.
    Missing,
}

/// The order of objects with equal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EqualNames {
    /// By id.
    ById,
    /// The newest first.
    NewestFirst,
    /// Another one with each request.
    Unstable,
}

/// What a DELETE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object is gone at once. No Policy API does this.
    AtOnce,
    /// The object is marked: reads do not show it and its id cannot be used until the purge.
    Marked {
        /// How long the network goes on as if the object were there.
        realized_for: Duration,
        /// When it is purged; the Policy API does this every five minutes.
        purged_after: Duration,
    },
}

/// What happens when a load balancer service has more than its size permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The write is refused with 400.
    Refused,
    /// The write is accepted, and the object is realized as `ERROR` with an alarm.
    Alarm,
    /// Nothing.
    Unlimited,
}

/// How a request with a session that has ended is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadSession {
    /// 403 with code 403, as wrong credentials are. The same for a session without its XSRF token, and for a token of
    /// VMware Cloud.
    Rejected,
    /// 403 with code 98, as a wrong XSRF token is.
    BadToken,
    /// 401.
    Unauthenticated,
    /// Not at all: a login page comes with 200, as of a portal before the manager.
    LoginPage,
    /// Not at all: 302 to a login page.
    LoginRedirect,
}

/// What a PATCH of `/infra` with children is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HierarchicalPatch {
    /// It is served.
    Served,
    /// 403 with code 401: the role does not allow it.
    Forbidden,
    /// 404 with a page, as a path that the manager does not have.
    NotFound,
    /// 405.
    NotAllowed,
}

/// How a manager behaves where more than one way is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// What `realized-entities` answers before an object is realized.
    pub pending: PendingAnswer,
    /// Whether a PATCH with an old `_revision` is refused.
    pub refuses_stale_patch: bool,
    /// Whether a PATCH of an object that exists needs `_revision`; it is refused with 400 and code 500127 otherwise.
    pub patch_needs_revision: bool,
    /// Whether a PATCH keeps the fields that it does not name.
    pub patch_merges: bool,
    /// What a PATCH of `/infra` with children is answered.
    pub hierarchical_patch: HierarchicalPatch,
    /// Whether the realized state of an object that is rewritten stays that of the old revision until the new one is realized.
    /// It shows none meanwhile otherwise.
    pub keeps_old_realization: bool,
    /// Whether the realized status names the revision that is realized.
    pub shows_intent_version: bool,
    /// How a revision conflict is refused.
    pub conflict: Conflict,
    /// Whether a PUT without `_revision` of an object that exists is refused with 400 and code 500127 in any case.
    pub exists_with_500127: bool,
    /// Whether a reference to an object that is not there is refused with 400 and code 500012, and not with 404 and code 600.
    pub missing_with_500012: bool,
    /// Whether PATCH and DELETE answer 204, and not 200 with an empty body.
    pub answers_no_content: bool,
    /// The cursor of the last page of a list.
    pub last_cursor: LastCursor,
    /// Whether a search has a cursor on its last page.
    pub search_has_last_cursor: bool,
    /// Where a cursor continues.
    pub cursor: Cursor,
    /// Which pages have `result_count`.
    pub result_count: ResultCount,
    /// The order of objects with equal names.
    pub equal_names: EqualNames,
    /// The most objects of a page, whatever the request names.
    pub page_limit: usize,
    /// What a DELETE does.
    pub deletion: Deletion,
    /// Whether an object that is marked for deletion still keeps what it refers to from being deleted.
    pub marked_objects_refer: bool,
    /// Whether the DELETE of an object that is marked already is refused with 400 and code 500045, and not with 404.
    pub refuses_second_delete: bool,
    /// What happens when a load balancer service is full.
    pub capacity: Capacity,
    /// Whether a group with several `IPAddressExpression` is refused.
    pub refuses_several_expressions: bool,
    /// Whether groups have no member `group_type`, as in old versions.
    pub lacks_group_type: bool,
    /// Whether a PATCH of `/infra` creates a child that is not there, also where its revision is sent and checked.
    pub creates_absent_children: bool,
    /// Whether `service-usage` has its counters in `results`.
    pub usage_in_results: bool,
    /// How old the counters of `service-usage` may be.
    pub usage_lag: Duration,
    /// Whether `service-usage` has no counters of a load balancer service that is new.
    pub usage_comes_late: bool,
    /// Whether the manager adds members to what a client writes: ids and paths of expressions, `port_overload`, `_links`.
    pub fills_in: bool,
    /// How long the search index is behind.
    pub index_delay: Duration,
    /// Whether a search term also matches a part of a value between separators.
    pub search_matches_words: bool,
    /// Whether an allocation shows `allocated_ip` when it is realized.
    pub shows_allocated_ip: bool,
    /// Whether a wished address that is outside of the pool or taken is accepted.
    pub accepts_any_wish: bool,
    /// Whether a PATCH of an allocation whose id is marked for deletion is answered as that of one that exists: nothing happens.
    pub swallows_marked_allocation: bool,
    /// Whether a row of realized state names the intent that it is of.
    pub rows_name_intents: bool,
    /// Whether wrong credentials are answered with 401, and not with 403 and code 403.
    pub rejects_with_401: bool,
    /// How a session that has ended is refused.
    pub dead_session: DeadSession,
    /// Whether a new session is answered with 201, and not with 200.
    pub creates_with_201: bool,
    /// Whether an unknown client certificate is answered with 500 and code 99, and not with 403 and code 403.
    pub distrusts_with_99: bool,
    /// Whether `expires_in` of a token is text, and not a number.
    pub expires_in_is_text: bool,
}

impl Behaviour {
    /// As most managers that were seen.
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
        search_has_last_cursor: true,
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
        index_delay: Duration::from_secs(2),
        search_matches_words: false,
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

    /// Each switch in another position than in [`Self::USUAL`].
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
        search_has_last_cursor: false,
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
        index_delay: Duration::ZERO,
        search_matches_words: true,
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

    /// The two, and the third positions of the switches that have one, for suites that run with each.
    pub const ALL: [(&'static str, Self); 3] =
        [("usual", Self::USUAL), ("opposite", Self::OPPOSITE), ("third", Self::THIRD)];

    /// As [`Self::USUAL`], with the positions that are in neither of the others.
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

/// [`Behaviour::USUAL`] with each of these switches alone as in [`Behaviour::OPPOSITE`].
macro_rules! each {
    ($($switch:ident),* $(,)?) => {{
        // Does not compile when a switch is missing from the list.
        let Behaviour { $($switch: _),* } = Behaviour::USUAL;
        vec![$((stringify!($switch), Behaviour { $switch: Behaviour::OPPOSITE.$switch, ..Behaviour::USUAL })),*]
    }};
}

impl Behaviour {
    /// [`Self::USUAL`] with one switch as in [`Self::OPPOSITE`], for each switch.
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
            search_has_last_cursor,
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
            index_delay,
            search_matches_words,
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

/// The variable that names how all managers of a test process behave: a name of [`Behaviour::ALL`] or a switch.
pub const BEHAVIOUR_VARIABLE: &str = "NSX_BEHAVIOUR";

impl Behaviour {
    /// How managers of this process behave unless a test says otherwise: [`Self::USUAL`] without [`BEHAVIOUR_VARIABLE`].
    ///
    /// # Panics
    ///
    /// When the variable names no behaviour.
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
