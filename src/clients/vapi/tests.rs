//! Tests of whole REST calls against a server in this process: both framings, sessions, and all kinds of failures.

use std::sync::atomic::{AtomicUsize, Ordering};

use secrecy::SecretString;

use super::{Client, Framing, ObjectTags, TagObjects};
use crate::clients::http::tests::server::{Received, Reply, TestServer};
use crate::clients::object::MoRef;

const REST_LOGIN: &str = "POST /rest/com/vmware/cis/session";

fn password() -> SecretString {
    SecretString::from("s3cret:x".to_owned())
}

/// Starts a server with this framing. `answer` returns the results of all calls except login and logout.
async fn start(framing: Framing, answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> TestServer {
    TestServer::start(move |received| match (framing, received.line.as_str()) {
        (Framing::Rest, REST_LOGIN) => Reply::json(200, "{\"value\":\"id-1\"}"),
        (Framing::Api, REST_LOGIN) => Reply::Whole(404, Vec::new(), Vec::new()),
        (Framing::Api, "POST /api/session") => Reply::json(201, "\"id-1\""),
        (_, line) if line.starts_with("DELETE ") => Reply::Whole(204, Vec::new(), Vec::new()),
        _ => answer(received),
    })
    .await
}

async fn logged_in(server: &TestServer) -> Client {
    let client = Client::new(server.client());
    client.login("ccm@vsphere.local", &password()).await.unwrap();
    client
}

#[tokio::test]
async fn every_call_is_written_in_both_framings() {
    let host = MoRef::new("HostSystem", "host-21");
    for framing in [Framing::Rest, Framing::Api] {
        let server = start(framing, move |received| {
            let is_get_of_one = received.line.starts_with("GET ") && received.line.contains("urn:");
            match framing {
                _ if is_get_of_one => Reply::json(404, "{}"),
                Framing::Rest => Reply::json(200, "{\"value\":null}"),
                Framing::Api => Reply::json(200, "null"),
            }
        })
        .await;
        let client = logged_in(&server).await;
        assert_eq!(client.list_categories().await.unwrap(), Vec::<String>::new());
        assert_eq!(client.fetch_category("urn:c:GLOBAL").await.unwrap(), None);
        assert_eq!(client.list_tags_of_category("urn:c:GLOBAL").await.unwrap(), Some(Vec::new()));
        assert_eq!(client.fetch_tag("urn:t/../x").await.unwrap(), None);
        assert_eq!(client.list_attached_objects_on_tags(&["urn:t".to_owned()]).await.unwrap(), Vec::new());
        assert_eq!(client.list_attached_tags_on_objects(std::slice::from_ref(&host)).await.unwrap(), Vec::new());
        client.logout().await.unwrap();
        let received = server.received();
        let calls: Vec<_> = received.iter().map(|request| (request.line.as_str(), request.body.as_str())).collect();
        let of_category = "{\"category_id\":\"urn:c:GLOBAL\"}";
        let on_objects = "{\"object_ids\":[{\"id\":\"host-21\",\"type\":\"HostSystem\"}]}";
        let expected = match framing {
            Framing::Rest => vec![
                (REST_LOGIN, ""),
                ("GET /rest/com/vmware/cis/tagging/category", ""),
                ("GET /rest/com/vmware/cis/tagging/category/id:urn:c:GLOBAL", ""),
                ("POST /rest/com/vmware/cis/tagging/tag/id:urn:c:GLOBAL?~action=list-tags-for-category", of_category),
                ("GET /rest/com/vmware/cis/tagging/tag/id:urn:t%2F..%2Fx", ""),
                (
                    "POST /rest/com/vmware/cis/tagging/tag-association?~action=list-attached-objects-on-tags",
                    "{\"tag_ids\":[\"urn:t\"]}",
                ),
                ("POST /rest/com/vmware/cis/tagging/tag-association?~action=list-attached-tags-on-objects", on_objects),
                ("DELETE /rest/com/vmware/cis/session", ""),
            ],
            Framing::Api => vec![
                (REST_LOGIN, ""),
                ("POST /api/session", ""),
                ("GET /api/cis/tagging/category", ""),
                ("GET /api/cis/tagging/category/urn:c:GLOBAL", ""),
                ("POST /api/cis/tagging/tag?action=list-tags-for-category", of_category),
                ("GET /api/cis/tagging/tag/urn:t%2F..%2Fx", ""),
                (
                    "POST /api/cis/tagging/tag-association?action=list-attached-objects-on-tags",
                    "{\"tag_ids\":[\"urn:t\"]}",
                ),
                ("POST /api/cis/tagging/tag-association?action=list-attached-tags-on-objects", on_objects),
                ("DELETE /api/session", ""),
            ],
        };
        assert_eq!(calls, expected, "{framing:?}");
        for request in &received {
            let is_login = request.header("authorization").is_some();
            assert_eq!(request.header("vmware-api-session-id"), (!is_login).then_some("id-1"), "{}", request.line);
            assert_eq!(request.header("cookie"), None, "{}", request.line);
        }
        let basic = Some("Basic Y2NtQHZzcGhlcmUubG9jYWw6czNjcmV0Ong=");
        assert_eq!(received[0].header("authorization"), basic);
    }
}

#[tokio::test]
async fn answers_are_read_with_nulls_and_unknown_fields() {
    let server = start(Framing::Rest, |received| match received.line.rsplit_once('=') {
        Some((_, "list-attached-objects-on-tags")) => Reply::json(
            200,
            r#"{"value":[{"tag_id":"t1","object_ids":[{"id":"host-1","type":"HostSystem"}]},{"tag_id":"t2","object_ids":null}]}"#,
        ),
        Some((_, "list-attached-tags-on-objects")) => Reply::json(
            200,
            r#"{"value":[{"object_id":{"id":"host-1","type":"HostSystem"},"tag_ids":["t1"],"new":1},{"object_id":{"id":"vm-1","type":"VirtualMachine"},"tag_ids":null}]}"#,
        ),
        Some(_) => Reply::json(200, r#"{"value":["t1","t2"]}"#),
        None => Reply::json(
            200,
            r#"{"value":{"id":"c1","name":"k8s-zone","cardinality":"SINGLE","associable_types":["HostSystem"],"category_id":"c1"}}"#,
        ),
    })
    .await;
    let client = logged_in(&server).await;
    let category = client.fetch_category("c1").await.unwrap().unwrap();
    assert_eq!((category.id.as_str(), category.name.as_str()), ("c1", "k8s-zone"));
    assert_eq!(client.fetch_tag("t1").await.unwrap().unwrap().category_id, "c1");
    assert_eq!(client.list_tags_of_category("c1").await.unwrap().unwrap(), ["t1", "t2"]);
    let host = MoRef::new("HostSystem", "host-1");
    let by_tag = client.list_attached_objects_on_tags(&["t1".to_owned(), "t2".to_owned()]).await.unwrap();
    let expected = [
        TagObjects { tag_id: "t1".to_owned(), objects: vec![host.clone()] },
        TagObjects { tag_id: "t2".to_owned(), objects: Vec::new() },
    ];
    assert_eq!(by_tag, expected);
    let by_object = client.list_attached_tags_on_objects(std::slice::from_ref(&host)).await.unwrap();
    let expected = [
        ObjectTags { object: host, tag_ids: vec!["t1".to_owned()] },
        ObjectTags { object: MoRef::new("VirtualMachine", "vm-1"), tag_ids: Vec::new() },
    ];
    assert_eq!(by_object, expected);
}

#[tokio::test]
async fn long_lists_of_ids_go_out_in_batches_and_empty_ones_not_at_all() {
    let server = start(Framing::Rest, |_| Reply::json(200, "{\"value\":[{\"tag_id\":\"t\",\"object_ids\":[]}]}")).await;
    let client = logged_in(&server).await;
    let ids: Vec<String> = (0..4_001).map(|number| format!("t{number}")).collect();
    assert_eq!(client.list_attached_objects_on_tags(&ids).await.unwrap().len(), 3);
    assert_eq!(client.list_attached_objects_on_tags(&[]).await.unwrap().len(), 0);
    let received = server.received();
    let sizes: Vec<usize> = received[1..].iter().map(|request| request.body.matches("\"t").count() - 1).collect();
    assert_eq!(sizes, [2_000, 2_000, 1]);
}

#[tokio::test]
async fn refusals_are_sorted_by_what_can_be_done_about_them() {
    let limit = r#"{"type":"com.vmware.vapi.std.errors.service_unavailable","value":{"messages":[{"id":"com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached","default_message":"too many"}]}}"#;
    let newer = r#"{"error_type":"UNAUTHORIZED","messages":[{"id":"x","default_message":"no right\nat all"}]}"#;
    let cases: [(&str, Reply, &str); 10] = [
        ("dead session", Reply::Whole(401, Vec::new(), Vec::new()), "Unauthenticated"),
        ("no privilege", Reply::json(403, newer), "Unauthorized"),
        ("bad request", Reply::json(400, "{}"), "InvalidRequest"),
        ("session limit", Reply::json(503, limit), "SessionLimit"),
        ("session limit as 500", Reply::json(500, limit), "SessionLimit"),
        ("proxy", Reply::html(503), "Unavailable"),
        ("trouble", Reply::json(500, "null"), "Internal"),
        ("redirect", Reply::html(302), "Status"),
        ("a page", Reply::html(200), "Malformed"),
        ("half", Reply::Half(b"{\"value\":[]}".to_vec()), "Broken"),
    ];
    for (name, reply, reason) in cases {
        let server = start(Framing::Rest, move |_| reply.clone()).await;
        let error = logged_in(&server).await.list_categories().await.unwrap_err();
        assert_eq!(error.reason(), reason, "{name}: {error}");
        assert_eq!(error.is_unauthenticated(), reason == "Unauthenticated", "{name}");
        assert!(!error.is_invalid_login(), "{name}");
        assert!(error.to_string().starts_with("category.list at 127.0.0.1:"), "{name}: {error}");
        assert!(!error.to_string().contains('\n'), "{name}: {error}");
    }
}

/// Returns the result of each call: `ok`, or the reason of the failure.
async fn outcomes(client: &Client) -> [&'static str; 6] {
    fn outcome<T>(result: Result<T, super::Error>) -> &'static str {
        result.map_or_else(|error| error.reason(), |_| "ok")
    }
    [
        outcome(client.list_categories().await),
        outcome(client.list_tags_of_category("c").await),
        outcome(client.list_attached_objects_on_tags(&["t".to_owned()]).await),
        outcome(client.list_attached_tags_on_objects(&[MoRef::new("HostSystem", "host-1")]).await),
        outcome(client.fetch_category("c").await),
        outcome(client.fetch_tag("t").await),
    ]
}

#[tokio::test]
async fn an_answer_without_its_result_is_broken_and_never_says_that_there_is_nothing() {
    const BROKEN: &str = "Malformed";
    let no_field = |row: &str| format!("[{row}]");
    // Name, result in the answer, and the outcome of each call: four lists, the category, and the tag.
    let cases: [(&str, String, [&str; 6]); 9] = [
        ("an empty list may be null", "null".to_owned(), ["ok", "ok", "ok", "ok", BROKEN, BROKEN]),
        ("an empty list", "[]".to_owned(), ["ok", "ok", "ok", "ok", BROKEN, BROKEN]),
        ("an object", "{}".to_owned(), [BROKEN; 6]),
        ("no name", r#"{"id":"c","category_id":"c"}"#.to_owned(), [BROKEN; 6]),
        ("no id", r#"{"name":"zone","category_id":"c"}"#.to_owned(), [BROKEN; 6]),
        ("no category", r#"{"id":"t","name":"zone"}"#.to_owned(), [BROKEN, BROKEN, BROKEN, BROKEN, "ok", BROKEN]),
        ("null for a name", r#"{"id":"t","name":null,"category_id":"c"}"#.to_owned(), [BROKEN; 6]),
        ("a tag without its list", no_field(r#"{"tag_id":"t"}"#), [BROKEN; 6]),
        ("an object without its list", no_field(r#"{"object_id":{"id":"h","type":"HostSystem"}}"#), [BROKEN; 6]),
    ];
    for framing in [Framing::Rest, Framing::Api] {
        for (name, result, expected) in cases.clone() {
            let body = match framing {
                Framing::Rest => format!("{{\"value\":{result}}}"),
                Framing::Api => result,
            };
            let server = start(framing, move |_| Reply::json(200, &body)).await;
            assert_eq!(outcomes(&logged_in(&server).await).await, expected, "{name}, {framing:?}");
        }
        for body in ["{}", "", "{\"Value\":[]}", "{\"type\":\"com.vmware.vapi.std.errors.not_found\"}"] {
            let server = start(framing, move |_| Reply::json(200, body)).await;
            assert_eq!(outcomes(&logged_in(&server).await).await, [BROKEN; 6], "{body}, {framing:?}");
        }
    }
    let server = start(Framing::Rest, |_| Reply::json(200, "{}")).await;
    let error = logged_in(&server).await.list_categories().await.unwrap_err();
    let reported = std::error::Error::source(&error).unwrap().to_string();
    assert!(reported.starts_with("missing field `value` at line 1"), "{reported}");
}

#[tokio::test]
async fn an_answer_to_a_login_without_an_id_is_no_session() {
    for (rest, api) in [("{}", None), ("{\"value\":null}", None), ("", Some("null")), ("", Some("{}"))] {
        let server = TestServer::start(move |received| match (received.line.as_str(), api) {
            (REST_LOGIN, None) => Reply::json(200, rest),
            (REST_LOGIN, Some(_)) => Reply::Whole(404, Vec::new(), Vec::new()),
            (_, api) => Reply::json(201, api.unwrap()),
        })
        .await;
        let client = Client::new(server.client());
        let error = client.login("ccm", &password()).await.unwrap_err();
        assert_eq!((error.reason(), error.is_invalid_login()), ("Malformed", false), "{rest} {api:?}: {error}");
        assert!(!client.has_session(), "{rest} {api:?}");
    }
}

#[tokio::test]
async fn what_has_vanished_is_a_value_and_a_missing_batch_call_an_error() {
    let server = start(Framing::Rest, |_| Reply::json(404, "{}")).await;
    let client = logged_in(&server).await;
    assert_eq!(client.fetch_tag("t").await.unwrap(), None);
    assert_eq!(client.fetch_category("c").await.unwrap(), None);
    assert_eq!(client.list_tags_of_category("c").await.unwrap(), None);
    assert_eq!(client.list_categories().await.unwrap_err().reason(), "NotFound");
    assert_eq!(client.list_attached_objects_on_tags(&["t".to_owned()]).await.unwrap_err().reason(), "NotFound");
}

#[tokio::test]
async fn a_rejected_login_is_told_from_a_dead_session_and_sent_once() {
    let server = TestServer::start(|_| Reply::Whole(401, Vec::new(), Vec::new())).await;
    let client = Client::new(server.client());
    let error = client.login("ccm", &password()).await.unwrap_err();
    assert!(error.is_invalid_login() && error.is_unauthenticated(), "{error}");
    assert_eq!(server.received().len(), 1);
    assert!(!client.has_session());
    assert!(!format!("{error:?}").contains("s3cret"));
    let error = client.list_categories().await.unwrap_err();
    assert!(error.is_unauthenticated() && !error.is_invalid_login(), "{error}");
    assert_eq!(server.received().len(), 1, "nothing is sent without a session");
}

#[tokio::test]
async fn what_is_no_answer_is_told_without_the_session_id_in_it() {
    for (body, reported) in [
        ("\"id-s3cret\"", "a value has another form than expected at line 1"),
        ("{\"value\": [\"id-s3cret\"]}", "a value has another form than expected at line 1"),
        ("{\"value\": \"id-s3cret", "EOF while parsing a string at line 1"),
    ] {
        let server = TestServer::start(move |_| Reply::json(200, body)).await;
        let error = Client::new(server.client()).login("ccm", &password()).await.unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().starts_with(reported), "{body}: {error:?}");
        assert!(!format!("{error:?}").contains("id-s3cret"), "{error:?}");
    }
    let server = start(Framing::Rest, |_| Reply::json(200, "{\"value\":[{\"tag\":1}]}")).await;
    let error = logged_in(&server).await.list_attached_objects_on_tags(&["t".to_owned()]).await.unwrap_err();
    let told = std::error::Error::source(&error).unwrap().to_string();
    assert!(told.starts_with("missing field `tag_id` at line 1"), "{told}");
}

#[tokio::test]
async fn a_session_that_died_is_replaced_by_a_new_login() {
    let calls = AtomicUsize::new(0);
    let server = start(Framing::Rest, move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Whole(401, Vec::new(), Vec::new()),
        _ => Reply::json(200, "{\"value\":[\"c\"]}"),
    })
    .await;
    let client = logged_in(&server).await;
    assert!(client.list_categories().await.unwrap_err().is_unauthenticated());
    client.login("ccm", &password()).await.unwrap();
    assert_eq!(client.list_categories().await.unwrap(), ["c"]);
}

#[tokio::test]
async fn a_borrowed_session_is_used_and_never_ended() {
    let server = start(Framing::Rest, |_| Reply::json(200, "{\"value\":[]}")).await;
    let client = Client::new(server.client());
    client.borrow_session(SecretString::from("soap".to_owned()));
    client.list_categories().await.unwrap();
    client.logout().await.unwrap();
    assert!(!client.has_session());
    let received = server.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].header("vmware-api-session-id"), Some("soap"));
}
