//! Tests that no text of a server survives, whatever its content and its place.

use std::time::Duration;

use ccm::clients::http::{self, Method};
use proptest::prelude::*;
use serde_json::json;

use super::exchange::{answer, request};
use super::tokens::Tokens;

/// Beginnings of values that are read in parts.
const BEGINNINGS: [&str; 12] = [
    "",
    "/infra/lb-pools/",
    "/infra/",
    "/orgs/default/projects/",
    "urn:vmomi:InventoryServiceTag:",
    "urn:vmomi:",
    "vim.VirtualMachine:",
    "The object ",
    "The path=[",
    "VMware vCenter Server ",
    "vm-",
    "10.0.0.1 ",
];

/// Generates words that are in no list, so that none of them may be in a recording.
fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("zq[a-z0-9]{4,9}", 1..5)
}

fn text(words: &[String], between: &str, beginning: &str) -> String {
    format!("{beginning}{}", words.join(between))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn json_of(text: &str) -> String {
    let fields =
        ["id", "path", "display_name", "state", "cursor", "error_message", "ports", "value", "password", "type"];
    let mut object = serde_json::Map::new();
    for field in fields {
        object.insert(field.to_owned(), json!([text, {"tag": text}]));
    }
    object.insert(text.to_owned(), json!(text));
    json!({ "results": [object, text], text: 1 }).to_string()
}

fn envelope_of(text: &str) -> String {
    let text = escaped(text);
    let fields =
        ["name", "val", "userName", "version", "faultstring", "token", "kind", "returnval", "key", "zqelement"];
    let fields: String = fields.iter().map(|name| format!("<{name}>{text}</{name}>")).collect();
    format!(
        "<Envelope xmlns=\"{text}\" secret=\"{text}\"><!-- zqcomment --><about><fullName>{text}</fullName></about>\
         <obj type=\"{text}\" xsi:type=\"{text}\">{text}</obj><propSet><name>runtime.powerState</name><val>{text}</val>\
         </propSet>{text}{fields}<![CDATA[zqcdata]]></Envelope>"
    )
}

/// Returns the whole recording of an exchange with this text in each place.
fn recorded(text: &str, encoded: &str) -> String {
    let tokens = &mut Tokens::default();
    let path =
        format!("/{encoded}/policy/api/v1/infra/lb-pools/{encoded}/x/{encoded}?cursor={encoded}&{encoded}={encoded}");
    let mut all = String::new();
    for body in [json_of(text), envelope_of(text), text.to_owned(), format!("<html>{text}")] {
        for operation in ["session.create", "Login", "test"] {
            let mut sent = http::Request::new(Method::POST, path.as_str(), "test", Duration::from_secs(1));
            sent.headers =
                vec![("Accept", text.to_owned()), ("X-Other", text.to_owned()), ("SOAPAction", text.to_owned())];
            sent.secret_headers = vec![("Cookie", text.into()), ("Authorization", text.into())];
            sent.body = body.clone().into();
            let mut got = http::Response { status: 200, headers: Default::default(), body: body.clone().into_bytes() };
            for name in ["set-cookie", "content-type", "retry-after", "server", "x-xsrf-token", "www-authenticate"] {
                if let Ok(value) = text.parse() {
                    got.headers.append(name, value);
                }
            }
            let sent = (request(tokens, &sent), answer(tokens, operation, &path, &got));
            all.push_str(&serde_json::to_string(&sent).unwrap());
        }
    }
    all + &format!("{:?}", tokens.counts())
}

/// Escapes everything but letters and digits.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_word_of_a_text_survives(
        words in words(),
        between in prop::sample::select(vec![" ", ".", "/", ":", "-", "_", "@", "=", "'", "<", "&", "]", ", ", "%2F", "\n"]),
        beginning in prop::sample::select(BEGINNINGS.to_vec()),
    ) {
        let text = text(&words, between, beginning);
        let all = recorded(&text, &encoded(&text));
        for word in words.iter().map(String::as_str).chain(["zqelement", "zqcomment", "zqcdata"]) {
            prop_assert!(!all.contains(word), "{word} of {text:?} is in {all}");
        }
    }

    #[test]
    fn no_address_no_uuid_and_no_large_number_survives(
        last in 100_u8..=255, middle in 100_u8..=255, group in 0x1000_u16..=0xffff,
        uuid in "[1-9a-f]{8}-[1-9a-f]{4}-[1-9a-f]{4}-[1-9a-f]{4}-[1-9a-f]{12}",
        number in 2_000_000_i64..=999_999_999,
    ) {
        let (four, six) = (format!("10.{middle}.{last}.7"), format!("fd00::{group:x}:77"));
        for text in [&four, &six, &uuid, &uuid.to_uppercase(), &format!("{four}/24"), &format!("see {four}, {uuid}")] {
            let all = recorded(text, &encoded(text)).to_lowercase();
            for part in [&four, &six, &uuid] {
                prop_assert!(!all.contains(part.as_str()), "{part} is in {all}");
            }
        }
        let body = json!({"weight": number, "_create_time": number, "cursor": number.to_string(), "id": number.to_string()});
        let got = http::Response { status: 200, headers: Default::default(), body: body.to_string().into_bytes() };
        let all = serde_json::to_string(&answer(&mut Tokens::default(), "test", "/", &got)).unwrap();
        prop_assert!(!all.contains(&number.to_string()), "{number} is in {all}");
    }

    #[test]
    fn any_bytes_are_recorded_as_something(bytes in any::<Vec<u8>>(), path in ".*", header in ".*") {
        let tokens = &mut Tokens::default();
        let mut sent = http::Request::new(Method::GET, path.as_str(), "test", Duration::from_secs(1));
        sent.headers = vec![("SOAPAction", header)];
        sent.body = bytes.clone().into();
        let got = http::Response { status: 200, headers: Default::default(), body: bytes };
        let first = (request(tokens, &sent), answer(tokens, "test", &path, &got));
        let text = serde_json::to_string(&first).unwrap();
        prop_assert!(serde_json::from_str::<(super::Request, super::Answer)>(&text).unwrap() == first);
    }
}
