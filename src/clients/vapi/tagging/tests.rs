//! Tests that no input makes the readers of tags panic, or use unlimited time or memory.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::{collection, sample};

use super::super::Framing;
use super::super::exchange::decode;
use super::*;
use crate::clients::http::{FailedRequest, Response};

/// Answers of all tagging calls, in both framings.
const SEEDS: [&str; 9] = [
    r#"{"value":["urn:vmomi:InventoryServiceCategory:5f02:GLOBAL","urn:vmomi:InventoryServiceCategory:5f03:GLOBAL"]}"#,
    r#"{"value":{"id":"urn:c","name":"zone","description":"","cardinality":"SINGLE","associable_types":["HostSystem"],"used_by":[]}}"#,
    r#"{"value":{"id":"urn:t","name":"rack-7","description":"\u00e4","category_id":"urn:c","used_by":[]}}"#,
    r#"{"value":[{"tag_id":"urn:t","object_ids":[{"id":"host-9","type":"HostSystem"}]},{"tag_id":"urn:u","object_ids":null}]}"#,
    r#"[{"object_id":{"id":"domain-c8","type":"ClusterComputeResource"},"tag_ids":["urn:t"]},{"object_id":{"id":"vm-1","type":"VirtualMachine"},"tag_ids":null}]"#,
    r#"{"type":"com.vmware.vapi.std.errors.not_found","value":{"messages":[{"id":"a.b","default_message":"gone","args":["urn:t"]}]}}"#,
    r#"{"error_type":"UNAUTHENTICATED","messages":[{"id":"a","default_message":"b","args":[]}],"data":{}}"#,
    r#"{"value":null}"#,
    "null",
];

/// Passes the bytes to each reader and ignores the results.
fn read_as_everything(body: &[u8]) {
    for framing in [Framing::Rest, Framing::Api] {
        let _ = decode::<Vec<String>>(framing, body);
        let _ = decode::<Category>(framing, body);
        let _ = decode::<Tag>(framing, body);
        let _ = decode::<Vec<TagObjects>>(framing, body);
        let _ = decode::<Vec<ObjectTags>>(framing, body);
    }
    for status in [400, 401, 404, 500, 503] {
        let response = Response { status, headers: http::HeaderMap::new(), body: body.to_vec() };
        let request = FailedRequest { endpoint: "vc".to_owned(), operation: "tag.get" };
        let reported = Error::refused(request, &response).to_string();
        assert!(reported.len() < 2_000, "a refusal of {} bytes", reported.len());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_of_tags_panic(body in collection::vec(any::<u8>(), 0..300)) {
        read_as_everything(&body);
    }

    #[test]
    fn no_mutation_of_an_answer_makes_the_readers_of_tags_panic(
        seed in sample::select(SEEDS.to_vec()),
        other in sample::select(SEEDS.to_vec()),
        (from, to) in (any::<sample::Index>(), any::<sample::Index>()),
        junk in collection::vec(any::<u8>(), 0..8),
    ) {
        let (from, to) = (from.index(seed.len()), to.index(other.len()));
        for middle in [junk.as_slice(), &[]] {
            read_as_everything(&[&seed.as_bytes()[..from], middle, &other.as_bytes()[to..]].concat());
        }
    }
}

#[test]
fn hostile_answers_of_tags_are_read_in_linear_time() {
    let mib = 1 << 20;
    let many = |part: &str| part.repeat(mib / part.len());
    let refusal = |text: &str| format!(r#"{{"messages":[{{"id":"{text}","default_message":"{text}"}}]}}"#);
    for (case, body) in [
        ("open lists", many("[")),
        ("open objects", many("{\"value\":")),
        ("open messages", format!("{{\"value\":{}", many("{\"messages\":["))),
        ("nulls", format!("{{\"value\":[{}null]}}", many("null,"))),
        ("empty objects", format!("{{\"value\":[{}{{}}]}}", many("{},"))),
        ("many ids", format!("{{\"value\":[{}\"\"]}}", many("\"\","))),
        ("one long text", format!("{{\"value\":[\"{}\"]}}", many("\\u00e4"))),
        ("one open text", format!("{{\"value\":[\"{}", many("x"))),
        ("many keys", format!("{{{}\"value\":[]}}", many("\"k\":1,"))),
        ("one long number", format!("{{\"value\":{}}}", many("9"))),
        ("a long refusal", refusal(&many("x"))),
        ("many refusals", format!("{{\"messages\":[{}{{}}]}}", many("{\"default_message\":\"x\"},"))),
    ] {
        let began = Instant::now();
        read_as_everything(body.as_bytes());
        // Linear work takes much less time, also on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(20), "{case} took {:?}", began.elapsed());
    }
}

#[test]
fn every_list_may_be_null() {
    let rows: Vec<TagObjects> = decode(Framing::Rest, SEEDS[3].as_bytes()).unwrap();
    assert_eq!(rows.iter().map(|row| row.objects.len()).collect::<Vec<_>>(), [1, 0]);
    let rows: Vec<ObjectTags> = decode(Framing::Api, SEEDS[4].as_bytes()).unwrap();
    assert_eq!(rows.iter().map(|row| row.tag_ids.len()).collect::<Vec<_>>(), [1, 0]);
    assert!(decode::<Option<Vec<String>>>(Framing::Rest, SEEDS[7].as_bytes()).unwrap().is_none());
    assert!(decode::<Option<Vec<String>>>(Framing::Api, SEEDS[8].as_bytes()).unwrap().is_none());
}
