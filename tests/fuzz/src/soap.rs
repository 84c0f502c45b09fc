//! Fuzz targets for SOAP answers of vCenter and of its token service.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm::clients::sts;
use ccm::clients::vim::{Client, Error, FilterSpec, MoRef, Value, decode_name};
use ccm::providers::vsphere::nodes::metadata::addresses::candidate_ips;
use jiff::Timestamp;
use secrecy::SecretString;

use crate::laws::{SECRET, cuts, is_in_proportion, is_told_well};
use crate::memory::{Answer, client, run};

/// Makes the call with each relevant status. An answer with an error status is never a result. A truncated answer is an
/// error or has the same result.
fn ask<T: std::fmt::Debug + PartialEq>(bytes: &[u8], call: impl Fn(u16, Vec<u8>) -> Result<T, Error>) -> Option<T> {
    // Text of the server may be reported; text that the client sent may not.
    let text = String::from_utf8_lossy(bytes).replace(SECRET, "");
    let bytes = text.as_bytes();
    for status in [500, 503] {
        match call(status, bytes.to_vec()) {
            Ok(value) => panic!("HTTP status {status} is taken for an answer: {value:?}"),
            Err(error) => is_told_well(&error),
        }
    }
    match call(200, bytes.to_vec()) {
        Err(error) => {
            is_told_well(&error);
            None
        }
        Ok(value) => {
            is_in_proportion(&value, bytes);
            for cut in cuts(bytes) {
                if let Ok(part) = call(200, cut.to_vec()) {
                    assert_eq!(part, value, "a part of an answer is taken for another one");
                }
            }
            Some(value)
        }
    }
}

fn vcenter(status: u16, body: Vec<u8>) -> Client {
    Client::new(client(move |_| Answer::new(status, body.clone())))
}

fn look_at(value: &Value) {
    if let Value::Nics(nics) = value {
        let _ = candidate_ips(nics).count();
    }
    if let Some(text) = value.as_str() {
        assert!(decode_name(text).len() <= text.len(), "a decoded name is no longer than the name");
    }
}

/// Reads changes of the inventory.
pub fn updates(bytes: &[u8]) {
    let collector = MoRef::new("PropertyCollector", "propertyCollector");
    let set = ask(bytes, |status, body| {
        run(vcenter(status, body).wait_for_updates(&collector, "", Duration::from_secs(1), 100))
    });
    let filters = set.flatten().into_iter().flat_map(|set| set.filters);
    for change in filters.flat_map(|filter| filter.objects).flat_map(|object| object.changes) {
        change.value.iter().for_each(look_at);
    }
}

/// Reads properties page by page: all pages or none.
pub fn properties(bytes: &[u8]) {
    const PAGES: usize = 3;
    let spec = FilterSpec::of_object(&MoRef::new("VirtualMachine", "vm-17"), &["name"]);
    let objects = ask(bytes, |status, body| {
        let next = String::from_utf8_lossy(&body).replace("RetrievePropertiesEx", "ContinueRetrievePropertiesEx");
        let pages = AtomicUsize::new(0);
        // A page with a continuation token always names a next page, so the server fails after some pages.
        let vcenter = Client::new(client(move |_| match pages.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::new(status, body.clone()),
            page if page < PAGES => Answer::new(status, next.clone()),
            _ => Answer::new(503, ""),
        }));
        run(vcenter.retrieve_properties(&spec))
    });
    for object in objects.iter().flatten() {
        object.properties.iter().for_each(|(_, value)| look_at(value));
    }
}

/// Reads the service content of a vCenter and the list of its protocol versions.
pub fn content(bytes: &[u8]) {
    let content = ask(bytes, |status, body| {
        run(Client::new(client(move |request| match request.path.as_str() {
            "/sdk" => Answer::new(status, body.clone()),
            _ => Answer::new(404, ""),
        }))
        .connect())
    });
    if let Some(content) = content {
        assert_eq!(content.about.api_type, "VirtualCenter", "nothing else is talked to");
        assert!(content.about.is_api_at_least([0; 4]), "every version is at least none");
    }
    // A list of versions that cannot be read counts as no list. Every server supports one version.
    let body = bytes.to_vec();
    let versions = Client::new(client(move |request| match request.path.as_str() {
        "/sdk" => Answer::new(200, CONTENT),
        _ => Answer::new(200, body.clone()),
    }));
    assert!(run(versions.connect()).is_ok(), "no list of versions keeps us from a server");
}

const CONTENT: &str = "<Envelope><Body><RetrieveServiceContentResponse><returnval><about><apiType>VirtualCenter\
    </apiType></about></returnval></RetrieveServiceContentResponse></Body></Envelope>";

/// Reads logins and the calls after them: the first line is the cookie, the rest is the body.
pub fn session(bytes: &[u8]) {
    let (cookie, body) = match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&b""[..], bytes),
    };
    let cookie = cookie.to_vec();
    let answered = |status, method: &str, body: Vec<u8>| {
        let cookie = cookie.clone();
        let body = String::from_utf8_lossy(&body).replace("Login", method);
        Client::new(client(move |_| Answer::new(status, body.clone()).with_cookie(&cookie)))
    };
    let password = SecretString::from(SECRET);
    ask(body, |status, body| run(answered(status, "Login", body).login("user", &password)));
    ask(body, |status, body| run(answered(status, "CloneSession", body).clone_session(&password)));
    let body = String::from_utf8_lossy(body).replace(SECRET, "");
    let vcenter = answered(200, "Login", body.into_bytes());
    if run(vcenter.login("user", &password)).is_err() {
        assert!(vcenter.session_secret().is_none(), "a login that failed leaves a session behind");
    }
    if let Err(error) = run(vcenter.is_logged_in()) {
        is_told_well(&error);
    }
    if let Err(error) = run(vcenter.logout()) {
        is_told_well(&error);
    }
    assert!(vcenter.session_secret().is_none(), "after a logout there is no session");
}

/// Reads answers to searches. Only a valid answer can say that nothing was found.
pub fn search(bytes: &[u8]) {
    let uuid = "422e4956-ad22-1139-6d72-59cc8f26bc90";
    if ask(bytes, |status, body| run(vcenter(status, body).find_all_by_uuid(uuid))).is_some() {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains("FindAllByUuidResponse"), "something else says what was found");
    }
    let named = |method| String::from_utf8_lossy(bytes).replace("FindAllByUuid", method).into_bytes();
    ask(&named("FindAllByIp"), |status, body| run(vcenter(status, body).find_all_by_ip("10.0.0.1")));
    let view = ask(&named("CreateListView"), |status, body| run(vcenter(status, body).create_list_view(&[])));
    if let Some(view) = view {
        ask(&named("ModifyListView"), |status, body| run(vcenter(status, body).modify_list_view(&view, &[], &[])));
    }
}

/// Reads tokens of the token service. An error does not contain the token.
pub fn token(bytes: &[u8]) {
    let certificate = include_str!("../../golden/sts/holder.crt");
    let key = SecretString::from(include_str!("../../golden/sts/holder.key"));
    let now = Timestamp::from_second(1_700_000_000).expect("a time");
    for status in [500, 200] {
        let body = bytes.to_vec();
        match run(sts::issue(&client(move |_| Answer::new(status, body.clone())), certificate, &key, now)) {
            Ok(token) => {
                assert_eq!(status, 200, "HTTP status {status} is taken for a token");
                let text = String::from_utf8_lossy(bytes);
                assert!(text.contains("Assertion"), "something else is taken for a token");
                assert!(!token.id().is_empty(), "a token has an id");
                let shown = format!("{token:?}");
                assert!(shown.len() < 1024 + 2 * bytes.len(), "a token shows its assertion: {shown}");
            }
            Err(error) => is_told_well(&error),
        }
    }
}
