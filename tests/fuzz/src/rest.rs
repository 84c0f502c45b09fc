//! Fuzz targets for JSON answers of vCenter's REST API and of session managers.

use ccm::clients::session_manager;
use ccm::clients::vapi::{Client, Error};
use ccm::clients::vim::MoRef;
use secrecy::{ExposeSecret, SecretString};

use crate::laws::{SECRET, is_in_proportion, is_told_well};
use crate::memory::{Answer, Read, client, run};

const REST: &str = "/rest/com/vmware/cis/session";
const API: &str = "/api/session";

/// Makes a client with a session over `/rest` or over `/api`. The given status and body answer its next calls.
fn logged_in(is_rest: bool, status: u16, body: &[u8]) -> Client {
    let body = body.to_vec();
    let session = format!("\"{SECRET}\"");
    let vcenter = Client::new(client(move |request| match request.path.as_str() {
        REST if is_rest => Answer::new(200, format!("{{\"value\":{session}}}")),
        REST => Answer::new(404, ""),
        API => Answer::new(200, session.clone()),
        _ => Answer::new(status, body.clone()),
    }));
    run(vcenter.login("user", &SecretString::from(SECRET))).expect("the server takes every login");
    vcenter
}

/// Checks a result: an answer with an error status is not a value. `is_absent` recognizes the value that a 404 may
/// become.
fn judge<T: std::fmt::Debug>(status: u16, bytes: &[u8], answer: Result<T, Error>, is_absent: impl Fn(&T) -> bool) {
    match answer {
        Ok(value) if status == 200 => {
            assert!(!is_absent(&value), "a success says that something has vanished");
            is_in_proportion(&value, bytes);
        }
        Ok(value) => {
            assert!(status == 404 && is_absent(&value), "HTTP status {status} is taken for an answer: {value:?}");
        }
        Err(error) => is_told_well(&error),
    }
}

/// The functions that read an answer, by name.
pub const READS: &[Read] = &[
    ("categories of vCenter", |status, bytes| drop(run(logged_in(false, status, bytes).list_categories()))),
    ("a tag of vCenter", |status, bytes| drop(run(logged_in(true, status, bytes).fetch_tag("t")))),
    ("associations of vCenter", |status, bytes| {
        drop(run(logged_in(false, status, bytes).list_attached_objects_on_tags(&["t".to_owned()])));
    }),
];

/// Reads categories, tags and associations in both framings.
pub fn tagging(bytes: &[u8]) {
    // Text of the server in an error may be reported; the session id may not.
    let bytes = String::from_utf8_lossy(bytes).replace(SECRET, "");
    let bytes = bytes.as_bytes();
    for is_rest in [true, false] {
        for status in [200, 302, 400, 401, 404, 503] {
            let vcenter = logged_in(is_rest, status, bytes);
            let never = |_: &_| false;
            judge(status, bytes, run(vcenter.list_categories()), never);
            judge(status, bytes, run(vcenter.fetch_category("c")), Option::is_none);
            judge(status, bytes, run(vcenter.fetch_tag("t")), Option::is_none);
            judge(status, bytes, run(vcenter.list_tags_of_category("c")), Option::is_none);
            judge(status, bytes, run(vcenter.list_attached_objects_on_tags(&["t".to_owned()])), |_| false);
            let host = [MoRef::new("HostSystem", "host-1")];
            judge(status, bytes, run(vcenter.list_attached_tags_on_objects(&host)), |_| false);
        }
    }
}

/// Reads answers to logins. They can contain a session id, even if they are malformed.
pub fn login(bytes: &[u8]) {
    for (is_rest, status) in [(true, 200), (false, 200), (true, 401), (false, 503)] {
        let body = bytes.to_vec();
        let vcenter = Client::new(client(move |request| match request.path.as_str() {
            REST if !is_rest => Answer::new(404, ""),
            _ => Answer::new(status, body.clone()),
        }));
        let result = run(vcenter.login("user", &SecretString::from("password")));
        assert_eq!(vcenter.has_session(), result.is_ok(), "there is a session after a login and only then");
        match result {
            Ok(()) => assert_eq!(status, 200, "HTTP status {status} is taken for a session"),
            Err(error) if status == 200 => is_told_well(&error),
            Err(error) => assert!(error.to_string().len() < 1024, "{error}"),
        }
    }
}

/// Reads tickets of a session manager.
pub fn ticket(bytes: &[u8]) {
    for status in [200, 204, 500] {
        let body = bytes.to_vec();
        let vcenter = client(move |_| Answer::new(status, body.clone()));
        let token = SecretString::from(SECRET);
        match run(session_manager::fetch_ticket(&vcenter, "https://manager.example.com/session?x=1", &token)) {
            Ok(ticket) => {
                assert_eq!(status, 200, "HTTP status {status} is taken for a ticket");
                assert!(!ticket.expose_secret().is_empty(), "a ticket is not empty");
            }
            Err(error) => is_told_well(&error),
        }
    }
}
