//! Tests with the upstream vectors by id, B27 to B40, and of the limits.

use std::io::Write as _;

use super::*;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn order(document: &str) -> Result<Vec<IpAddr>, MetadataError> {
    parse_static_order(Some(&encode(document)), Some("base64"))
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

const PLAIN: &str = "network: {ethernets: {id0: {addresses: [10.0.0.2/24]}}}";
const PAYLOAD: &str = "ethernets: {id0: {addresses: [10.0.0.2/24]}}";

// vectors: B31, B38
#[test]
fn metadata_without_an_order_changes_nothing() {
    let plain = encode(PLAIN);
    let rows = [
        ("other spelling of the encoding", Some(plain), Some("BASE64")),
        ("no metadata", None, Some("base64")),
        ("empty metadata", Some(String::new()), Some("base64")),
        ("B31", Some(encode(format!("network.encoding: base64\nnetwork: {}", encode(PLAIN)))), Some("base64")),
        ("B38 no network", Some(encode("instance-id: i")), Some("base64")),
        ("B38 no ethernets", Some(encode("network: {version: 2}")), Some("base64")),
        ("B38 no payload", Some(encode("network.encoding: base64")), Some("base64")),
        ("B38 nested", Some(encode(format!("network: {{config: {{{PAYLOAD}}}}}"))), Some("base64")),
        ("empty document", Some(encode("# nothing")), Some("base64")),
    ];
    for (id, metadata, encoding) in rows {
        assert_eq!(parse_static_order(metadata.as_deref(), encoding), Ok(Vec::new()), "{id}");
    }
}

/// B27, differs: Go reads metadata in `base64` only; this program reads all encodings that cloud-init reads.
// vectors: B27
#[test]
fn b27_every_encoding_of_cloud_init_is_read() {
    let packed = encode(gzip(PLAIN.as_bytes()));
    for (metadata, encoding) in [
        (encode(PLAIN), Some("base64")),
        (encode(PLAIN), Some("b64")),
        (packed.clone(), Some("gzip+base64")),
        (packed, Some("gz+b64")),
        (PLAIN.to_owned(), None),
        (PLAIN.to_owned(), Some("")),
    ] {
        assert_eq!(parse_static_order(Some(&metadata), encoding), Ok(addresses(&["10.0.0.2"])), "{encoding:?}");
    }
    let page = include_str!("../../../../../../docs/compatibility.md");
    assert!(page.contains("\n| encodings of guest metadata (B27) |"));
}

// vectors: B29, B33–B36, B39, B40
#[test]
fn the_order_is_read() {
    let broken = {
        let mut text = encode(PLAIN);
        text.insert_str(8, "\r\n");
        text
    };
    assert_eq!(parse_static_order(Some(&broken), Some("base64")), Ok(addresses(&["10.0.0.2"])), "B33");

    let three =
        "network: {ethernets: {c: {addresses: [10.0.0.1]}, a: {addresses: [10.0.0.2]}, b: {addresses: [10.0.0.3]}}}";
    let rows: Vec<(&str, String, &[&str])> = vec![
        ("B29 b64", format!("network.encoding: b64\nnetwork: {}", encode(PAYLOAD)), &["10.0.0.2"]),
        (
            "B29 gz+b64",
            format!("network.encoding: gz+b64\nnetwork: {}", encode(gzip(PAYLOAD.as_bytes()))),
            &["10.0.0.2"],
        ),
        ("B34", "network: {ethernets: {a: {addresses: ['fd01:0:0:0:0:0:0:5/64']}}}".to_owned(), &["fd01::5"]),
        ("B35", "network: {ethernets: {a: {addresses: [dhcp, 10.0.0.2/24]}}}".to_owned(), &["10.0.0.2"]),
        ("B36", r#"{"network": {"ethernets": {"a": {"addresses": ["10.0.0.2/24"]}}}}"#.to_owned(), &["10.0.0.2"]),
        ("B39", "network: {ethernets: {a: {addresses: [10.0.0.2]}}}".to_owned(), &["10.0.0.2"]),
        // differs: Go uses a random order of the ethernets; here it is the order of the document.
        ("B40", three.to_owned(), &["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        (
            "twice",
            "network: {ethernets: {a: {addresses: [10.0.0.2, 10.0.0.3, 10.0.0.2]}}}".to_owned(),
            &["10.0.0.2", "10.0.0.3"],
        ),
        ("null ethernet", "network: {ethernets: {a: , b: {addresses: [10.0.0.2]}}}".to_owned(), &["10.0.0.2"]),
    ];
    for (id, document, want) in rows {
        assert_eq!(order(&document), Ok(addresses(want)), "{id}");
    }
}

type Expected = fn(&MetadataError) -> bool;

/// differs: in Go the discovery of the node fails; here the caller logs the error and continues without an order.
// vectors: B28, B30, B32, B37
#[test]
fn unreadable_metadata_is_an_error() {
    use MetadataError::{Base64, Gzip, Shape, Utf8, Yaml};
    let unpadded = encode("network: {}").trim_end_matches('=').to_owned();
    assert_eq!(parse_static_order(Some("@@@"), Some("base64")), Err(Base64(METADATA)), "B28");
    assert_eq!(parse_static_order(Some(&unpadded), Some("base64")), Err(Base64(METADATA)), "B32");
    let utf8 = parse_static_order(Some(&encode([0xff, 0xfe, 0xfd])), Some("base64"));
    assert_eq!(utf8, Err(Utf8(METADATA)), "not UTF-8");
    let not_packed = parse_static_order(Some(&encode(PLAIN)), Some("gz+b64"));
    assert_eq!(not_packed, Err(Gzip(METADATA)), "not gzip");

    let is_shape: Expected = |error| matches!(error, Shape { .. });
    let rows: Vec<(&str, String, Expected)> = vec![
        ("B30", format!("network: {}", encode(PAYLOAD)), is_shape),
        ("B30 other spelling", format!("network.encoding: BASE64\nnetwork: {}", encode(PAYLOAD)), is_shape),
        ("B37 scalar", "network: {ethernets: {a: {addresses: 10.0.0.2}}}".to_owned(), is_shape),
        ("B37 list", "network: {ethernets: [a]}".to_owned(), is_shape),
        ("B37 hello", "hello".to_owned(), is_shape),
        ("mapping where text is expected", "network.encoding: b64\nnetwork: {}".to_owned(), is_shape),
        ("inner base64", "network.encoding: b64\nnetwork: '@@@'".to_owned(), |e| matches!(e, Base64(NETWORK))),
        ("inner gzip", format!("network.encoding: gz+b64\nnetwork: {}", encode("x")), |e| matches!(e, Gzip { .. })),
        ("YAML", "network: [".to_owned(), |e| matches!(e, Yaml { .. })),
    ];
    for (id, document, expected) in rows {
        let got = order(&document);
        assert!(got.as_ref().is_err_and(expected), "{id}: {got:?}");
    }
}

#[test]
fn a_small_text_cannot_become_a_large_document() {
    let bomb = encode(gzip(&vec![b' '; 64 << 20]));
    let outer = parse_static_order(Some(&bomb), Some("gz+b64"));
    assert_eq!(outer, Err(MetadataError::TooLarge(METADATA)));
    let document = format!("network.encoding: gz+b64\nnetwork: {bomb}");
    assert_eq!(order(&document), Err(MetadataError::TooLarge(NETWORK)));
    let long = "A".repeat(2 << 20);
    for encoding in [Some("base64"), None] {
        let got = parse_static_order(Some(&long), encoding);
        assert_eq!(got, Err(MetadataError::TooLarge(METADATA)), "{encoding:?}");
    }
}

#[test]
fn an_alias_costs_the_order_and_an_anchor_alone_does_not() {
    use MetadataError::Yaml;
    let copied = "a: &x 10.0.0.2\nnetwork: {ethernets: {id0: {addresses: [*x]}}}";
    assert_eq!(order(copied), Err(Yaml(METADATA, YamlError::Alias(2))));
    let inside = format!("network.encoding: base64\nnetwork: {}", encode("a: &x 1\nb: *x"));
    assert_eq!(order(&inside), Err(Yaml(NETWORK, YamlError::Alias(2))));
    assert_eq!(order("network: {ethernets: {id0: {addresses: [&x 10.0.0.2]}}}"), Ok(addresses(&["10.0.0.2"])));
}

#[test]
fn a_document_of_the_largest_size_is_read_in_every_encoding() {
    let document = format!("{PLAIN}{}", "\n".repeat(MAX_BYTES - PLAIN.len()));
    let packed = encode(gzip(document.as_bytes()));
    for (text, encoding) in [(document.clone(), None), (encode(&document), Some("base64")), (packed, Some("gz+b64"))] {
        assert_eq!(parse_static_order(Some(&text), encoding), Ok(addresses(&["10.0.0.2"])), "{encoding:?}");
    }
    let larger = encode(format!("{document}\n"));
    assert_eq!(parse_static_order(Some(&larger), Some("base64")), Err(MetadataError::TooLarge(METADATA)));
}
