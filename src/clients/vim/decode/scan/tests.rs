//! What is cut here and what `quick-xml` alone makes of a document is the same, errors included.

use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::{collection, sample};

use super::*;

/// The pieces of a document, one after the other, and how it ends. Texts that follow each other are one.
#[derive(Debug, Default, PartialEq)]
struct Pieces {
    pieces: Vec<String>,
    text: String,
}

impl Pieces {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn mark(&mut self, mark: String) {
        let text = std::mem::take(&mut self.text);
        self.pieces.extend(Some(text).filter(|text| !text.is_empty()));
        self.pieces.push(mark);
    }

    fn start(&mut self, name: &str, object: Option<&str>, xml: Option<&str>) {
        self.mark(format!("<{name} {object:?} {xml:?}>"));
    }

    fn failed(mut self, error: DecodeError) -> Vec<String> {
        self.mark(format!("{error:?}"));
        self.pieces
    }

    fn ended(mut self) -> Vec<String> {
        self.mark("eof".to_owned());
        self.pieces
    }
}

fn ours(document: &str) -> Vec<String> {
    let (mut scanner, mut pieces) = (Scanner::new(document), Pieces::default());
    loop {
        match scanner.next() {
            Ok(Token::Start(start)) => {
                pieces.start(start.name, start.object_type.as_deref(), start.xml_type.as_deref());
            }
            Ok(Token::End) => pieces.mark("</>".to_owned()),
            Ok(Token::Text(text)) => pieces.text(&text),
            Ok(Token::Reference(name)) => pieces.mark(format!("&{name};")),
            Ok(Token::Eof) => return pieces.ended(),
            Err(error) => return pieces.failed(error),
        }
    }
}

fn theirs(document: &str) -> Vec<String> {
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    let (mut pieces, mut depth) = (Pieces::default(), 0);
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                depth += 1;
                let types = match other_attributes(&start) {
                    _ if depth > MAX_DEPTH => return pieces.failed(DecodeError::TooDeep),
                    Ok(types) => types,
                    Err(error) => return pieces.failed(error),
                };
                pieces.start(start.local_name().as_ref(), types.object.as_deref(), types.xml.as_deref());
            }
            Ok(Event::End(_)) => {
                depth -= 1;
                pieces.mark("</>".to_owned());
            }
            Ok(Event::Text(text)) => pieces.text(&text.into_inner()),
            Ok(Event::CData(text)) => pieces.text(&text.into_inner()),
            Ok(Event::GeneralRef(name)) => pieces.mark(format!("&{};", name.as_ref() as &str)),
            Ok(Event::Eof) => return pieces.ended(),
            Ok(_) => {}
            Err(error) => return pieces.failed(malformed(error)),
        }
    }
}

#[test]
fn tags_in_every_spelling_mean_the_same() {
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
        assert_eq!(ours(document), theirs(document), "{document}");
    }
    let many: String = (0..70).map(|number| format!(" a{number}=\"\"")).collect();
    assert_eq!(ours(&format!("<a{many}>")), theirs(&format!("<a{many}>")));
    let deep = "<a>".repeat(MAX_DEPTH + 1);
    assert_eq!(ours(&deep), theirs(&deep));
}

/// Parts of documents, whole and torn.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_arrangement_of_parts_means_the_same(parts in collection::vec(sample::select(PARTS.to_vec()), 0..24)) {
        let document = parts.concat();
        prop_assert_eq!(ours(&document), theirs(&document), "{}", document);
    }

    #[test]
    fn any_bytes_mean_the_same(bytes in collection::vec(any::<u8>(), 0..60)) {
        let document = format!("<a>{}", String::from_utf8_lossy(&bytes));
        prop_assert_eq!(ours(&document), theirs(&document), "{}", document);
    }
}
