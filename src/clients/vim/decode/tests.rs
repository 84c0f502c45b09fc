//! The pull decoder: prefixes, entities, limits, and that no bytes make it panic.

use proptest::prelude::{any, proptest};
use proptest::{collection, sample};

use super::{DecodeError, Decoder, MAX_DEPTH};
use crate::clients::vim::call::{read_envelope, return_values};
use crate::clients::vim::updates::{read_page, read_update_set};
use crate::clients::vim::version::read_offered;

fn leaf(document: &str) -> Result<String, DecodeError> {
    let mut decoder = Decoder::new(document);
    decoder.next_child()?.unwrap();
    decoder.text()
}

#[test]
fn what_is_told_of_a_broken_answer_is_short() {
    let name = "n".repeat(10_000);
    for document in [format!("<a></{name}>"), format!("<{name}>text")] {
        let error = leaf(&document).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}

#[test]
fn leaf_text_is_whole_and_untrimmed() {
    let cases = [
        ("spaces", "<a>  node 1 </a>", "  node 1 "),
        ("entities come between texts", "<a>x[&#34;g.m&#x22;]&amp;&lt;&gt;&quot;&apos;</a>", "x[\"g.m\"]&<>\"'"),
        ("character data section", "<a>1<![CDATA[<&]]>2</a>", "1<&2"),
        ("comment inside", "<a>1<!-- no -->2</a>", "12"),
        ("elements inside are skipped", "<a>1<b>x<c/></b>2</a>", "12"),
        ("empty", "<a/>", ""),
        ("references XML forbids", "<a>1&#0;&#xD800;&nbsp;2</a>", "1\u{fffd}\u{fffd}\u{fffd}2"),
    ];
    for (name, document, text) in cases {
        assert_eq!(leaf(document), Ok(text.to_owned()), "{name}");
    }
}

#[test]
fn plain_type_is_the_class_and_prefixed_type_the_xml_type() {
    let cases = [
        ("vCenter", "<v:val type=\"Folder\" xsi:type=\"vim25:ManagedObjectReference\" xmlns:xsi=\"x\">"),
        ("other order", "<val xsi:type='ManagedObjectReference' type='Folder'>"),
        (
            "simulator",
            "<val xmlns:_XMLSchema-instance=\"x\" _XMLSchema-instance:type=\"ManagedObjectReference\" type=\"Folder\">",
        ),
        ("old simulator", "<val XMLSchema-instance:type=\"ManagedObjectReference\" type=\"Folder\">"),
    ];
    for (name, start) in cases {
        let found = Decoder::new(start).next_child().unwrap().unwrap();
        assert_eq!(found.name, "val", "{name}");
        assert_eq!(found.object_type.as_deref(), Some("Folder"), "{name}");
        assert_eq!(found.xml_type.as_deref(), Some("ManagedObjectReference"), "{name}");
    }
}

#[test]
fn an_answer_that_is_cut_anywhere_is_refused() {
    let whole = "<e:Envelope><e:Body><XResponse><returnval>1</returnval></XResponse></e:Body></e:Envelope>";
    let read = |text: &str| read_envelope(text, "X", |decoder| return_values(decoder, |decoder, _| decoder.text()));
    assert_eq!(read(whole).unwrap().unwrap(), ["1"]);
    for end in 0..whole.len() {
        let cut = whole.get(..end).unwrap();
        assert!(read(cut).is_err(), "{cut}");
    }
    assert!(read(&whole.replace("XResponse", "YResponse")).is_err(), "the answer to another method");
    assert!(read("<html><body>no healthy upstream</body></html>").is_err());
}

#[test]
fn nesting_is_limited_and_mismatched_tags_are_refused() {
    let deep = "<a>".repeat(MAX_DEPTH + 1);
    assert_eq!(leaf(&deep), Err(DecodeError::TooDeep));
    assert!(matches!(leaf("<a><b></a></b>"), Err(DecodeError::Malformed(_))));
}

/// Pieces from which nearly valid answers are made.
const PIECES: [&str; 22] = [
    "<Envelope>",
    "</Envelope>",
    "<Body>",
    "</Body>",
    "<XResponse>",
    "</XResponse>",
    "<returnval>",
    "</returnval>",
    "<filterSet>",
    "</filterSet>",
    "<objectSet>",
    "<kind>enter</kind>",
    "<obj type=\"VirtualMachine\">vm-1</obj>",
    "<changeSet><name>guest.net</name><op>assign</op>",
    "<val x:type=\"ArrayOfGuestNicInfo\">",
    "<GuestNicInfo>",
    "<deviceConfigId>4000</deviceConfigId>",
    "</GuestNicInfo></val></changeSet>",
    "</objectSet>",
    "<version>1</version>",
    "&#xD800;",
    "<Fault><detail><NotAuthenticatedFault/></detail></Fault>",
];

fn read_as_everything(text: &str) {
    let _ = read_envelope(text, "X", |decoder| return_values(decoder, |decoder, _| read_update_set(decoder)));
    let _ = read_envelope(text, "X", |decoder| return_values(decoder, |decoder, _| read_page(decoder)));
    let _ = read_offered(text);
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(bytes in collection::vec(any::<u8>(), 0..400)) {
        read_as_everything(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_arrangement_of_real_pieces_makes_the_readers_panic(
        pieces in collection::vec(sample::select(PIECES.to_vec()), 0..40),
    ) {
        read_as_everything(&format!("<Envelope><Body><XResponse><returnval>{}", pieces.concat()));
        read_as_everything(&pieces.concat());
    }
}
