//! Tests of the formats of times and texts. The tests of the clients compare whole messages with golden files.

use jiff::Timestamp;

use super::{Ids, escaped, escaped_attribute, time};

#[test]
fn times_have_exactly_three_fraction_digits() {
    let cases = [
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00.000Z"),
        ("2026-03-01T10:00:00.1239Z", "2026-03-01T10:00:00.123Z"),
        ("2026-03-01T11:00:00.99999+01:00", "2026-03-01T10:00:00.999Z"),
    ];
    for (at, written) in cases {
        assert_eq!(time(at.parse::<Timestamp>().unwrap()), written, "{at}");
    }
}

#[test]
fn text_and_attributes_are_escaped_as_the_canonical_form_has_it() {
    assert_eq!(escaped("a&b<c>d\"e'\r\n\t\u{1}"), "a&amp;b&lt;c&gt;d\"e'&#xD;\n\t\u{fffd}");
    assert_eq!(escaped_attribute("a&b<c>d\"e'\r\n\t"), "a&amp;b&lt;c>d&quot;e'&#xD;&#xA;&#x9;");
}

#[test]
fn fresh_ids_differ_and_are_names_of_xml() {
    let (one, other) = (Ids::fresh(), Ids::fresh());
    let mut all: Vec<String> = Vec::new();
    for Ids { timestamp, body, certificate, signature } in [one, other] {
        all.extend([timestamp, body, certificate, signature]);
    }
    assert!(all.iter().all(|id| id.starts_with('_')), "{all:?}");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8);
}
