//! Every part of the program that reads bytes from outside, as functions of bytes. `cargo fuzz` and the property tests
//! of `tests/properties.rs` call them.
//!
//! A target panics if the program would panic, or if the property in its row of `docs/fuzzing.md` is violated. It uses
//! the program's public functions. Answers of servers come through the transport in memory.

#![allow(clippy::panic, reason = "a broken law is told by a panic")]

mod config;
mod credentials;
mod flags;
mod guest;
mod heap;
mod large;
mod laws;
mod leases;
mod memory;
mod nodes;
mod nsx;
mod port;
mod requests;
mod rest;
mod services;
mod soap;
mod socket;
mod watch;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also the name of its corpus, its fuzz target and its row in `docs/fuzzing.md`.
    pub name: &'static str,
    /// Reads the bytes, and panics if a property is violated.
    pub run: fn(&[u8]),
    /// Number of inputs of each kind in the property tests. Targets that are slow in a debug build have fewer.
    pub cases: u32,
}

/// Defines the table of targets, and one function for each.
macro_rules! targets {
    ($($name:ident = $run:path, $cases:literal;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $run, cases: $cases }),*];

        $(
            #[doc = concat!("The target `", stringify!($name), "` by itself, for `cargo fuzz`.")]
            pub fn $name(bytes: &[u8]) {
                $run(bytes);
            }
        )*
    };
}

targets! {
    vim_updates = soap::updates, 200;
    vim_properties = soap::properties, 200;
    vim_content = soap::content, 200;
    vim_session = soap::session, 200;
    vim_search = soap::search, 200;
    sts = soap::token, 60;
    vapi = rest::tagging, 100;
    vapi_login = rest::login, 200;
    session_manager = rest::ticket, 200;
    vsphere_conf = config::vsphere_conf, 300;
    nsx_config = config::nsx_config, 300;
    nsx_list = nsx::list, 100;
    nsx_object = nsx::object, 200;
    nsx_error = nsx::error, 60;
    nsx_session = nsx::session, 100;
    guest_metadata = guest::metadata, 200;
    large_document = large::document, 3;
    large_answer = large::answer, 3;
    secret = credentials::secret, 300;
    flags = flags::flags, 60;
    leader_migration = flags::migration, 200;
    proxy = flags::proxy, 200;
    node = nodes::object, 200;
    node_watch = watch::nodes, 200;
    service = services::object, 200;
    service_watch = watch::services, 200;
    value = nodes::value, 300;
    login_record = leases::logins, 200;
    election = leases::election, 100;
    request_headers = port::headers, 60;
    client_certificate = port::certificate, 100;
    token_review = port::review, 150;
    client_authorities = port::client_authorities, 60;
    pem = port::pem, 100;
    socket_frame = socket::frame, 300;
    socket_request = requests::request, 300;
}
