//! Tests of the pull decoder: prefixes, entities, limits, and that no input makes it panic.

use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::{collection, sample};

use super::{DecodeError, Decoder, Event, MAX_ATTRIBUTES, MAX_DEPTH, Reader, StartTag, XmlToken, XmlVersion};
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

/// Returns the elements of a document with their types, up to the first error.
fn cut(document: &str) -> Vec<String> {
    let (mut decoder, mut elements) = (Decoder::new(document), Vec::new());
    loop {
        match decoder.next() {
            Ok(XmlToken::Start(StartTag { name, object_type, xml_type })) => {
                elements.push(format!("{name} {object_type:?} {xml_type:?}"));
            }
            Ok(XmlToken::Eof) | Err(_) => return elements,
            Ok(_) => {}
        }
    }
}

/// Returns the same from the events of `quick_xml`, for comparison with [`cut`].
fn said(document: &str) -> Vec<String> {
    let (mut reader, mut elements) = (Reader::from_str(document), Vec::new());
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag) | Event::Empty(tag)) => {
                let (mut object, mut xml) = (None, None);
                for attribute in tag.attributes() {
                    let Ok(attribute) = attribute else { return elements };
                    if attribute.key.local_name().as_ref() == "type" {
                        let Ok(value) = attribute.normalized_value(XmlVersion::Implicit1_0) else { return elements };
                        match attribute.key.prefix() {
                            None => object = Some(value.into_owned()),
                            Some(_) => xml = value.rsplit(':').next().map(str::to_owned),
                        }
                    }
                }
                elements.push(format!("{} {object:?} {xml:?}", tag.local_name().as_ref()));
            }
            Ok(Event::Eof) | Err(_) => return elements,
            Ok(_) => {}
        }
    }
}

#[test]
fn elements_are_cut_from_the_document_as_the_events_say_them() {
    let cases = [
        "<a>x</a>",
        "\u{feff}<?xml version=\"1.0\"?>\r\n<a/>",
        "<a type=\"b:c\" x:type=\"b:c\"/>",
        "<a type='b' x:type = \"c&amp;d\"></a >",
        "<a x:y:type=\"1\" x:type=\"b:c:d\" mytype=\"2\" :type=\"e\"/>",
        "<a type=\"1\" type=\"2\"/>",
        "<a b=\"1\" b=\"2\"/>",
        "<a type=\"1\n2\"/>",
        "<a b=\">\" type=\"/\">",
        "<a b=\"'\" type=\"1\"c=\"2\">",
        "<a b=1>",
        "<a b>",
        "<a =\"b\">",
        "<a\tb=\"1\"\r\n type=\"c\">",
        "<a  b=\"1\"  type=\"c\"  >",
        "<x:a:b></x:a:b>",
        "<a b=\"1\" c=\"1\" d=\"1\" e=\"1\"/><a b=\"1\" c=\"1\" d=\"1\" e=\"1\" f=\"1\" type=\"z\"/>",
        "<a><b></a>",
        "</a>",
        "<a></b",
        "<a",
        "<",
        "<a b=\"",
        "<></>",
        "< a></ a>",
        "</ >",
        "<></ >",
        "<a/ ></a/>",
        "<!DOCTYPE a [<!ENTITY b \"]>\">]><a>&b;&#65;&</a>",
        "<a>&amp;&lt</a>",
        "<a><!-- <b> --><![CDATA[<c>&]]>]]></a>",
        "<a><![CDATA[</a>",
        "<a\u{e9}\u{b}\u{c}/>",
        "<a\" \">x</a\">",
        "<a\" \">x</a\"><b c=\"1\"/>",
        "<a' '><b/></a'></a>",
        "<a\"b\">x</a\"b\">",
        "<a\">\">x</a\">\">",
        "<a\"'\"><b></b></a\"'\">",
    ];
    for document in cases {
        assert_eq!(cut(document), said(document), "{document}");
    }
}

#[test]
fn attributes_are_limited() {
    let attributes = |number: usize| (0..number).map(|number| format!(" a{number}=\"\"")).collect::<String>();
    assert_eq!(leaf(&format!("<a{}>x</a>", attributes(MAX_ATTRIBUTES))), Ok("x".to_owned()));
    assert_eq!(leaf(&format!("<a{}>x</a>", attributes(MAX_ATTRIBUTES + 1))), Err(DecodeError::TooManyAttributes));
}

/// Complete and incomplete parts of documents.
const PARTS: [&str; 44] = [
    "<a>",
    "</a>",
    "<b:a>",
    "</b:a>",
    "<a/>",
    "<a",
    "</a",
    ">",
    "/>",
    "/",
    "<",
    "</",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "=",
    "\"",
    "'",
    "&",
    ";",
    "&amp;",
    "&#65;",
    "type",
    "x:type",
    ":",
    " type=\"",
    " x:type=\"b:c\"",
    " y=\"1\"",
    " z='2'",
    "\" ",
    "text",
    "\u{e9}",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?a",
    "?>",
    "<!DOCTYPE a",
    "[",
    "]",
    "!",
];

/// Parts for random answers that are almost valid.
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
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn elements_of_any_arrangement_of_parts_are_cut_as_the_events_say_them(
        parts in collection::vec(sample::select(PARTS.to_vec()), 0..24),
    ) {
        let document = parts.concat();
        prop_assert_eq!(cut(&document), said(&document), "{}", document);
    }

    #[test]
    fn any_bytes_are_cut_as_the_events_say_them(bytes in collection::vec(any::<u8>(), 0..60)) {
        let document = String::from_utf8_lossy(&bytes);
        prop_assert_eq!(cut(&document), said(&document), "{}", document);
    }
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
