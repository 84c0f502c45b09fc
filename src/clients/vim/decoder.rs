//! A small pull decoder for SOAP answers, which reads elements by local name, skips unknown elements, and never trims
//! text.
//!
//! A `type` attribute without a prefix is the class of a managed object. A `type` attribute with any prefix is the XML
//! type, which vCenter 8.0 writes everywhere and the simulator almost nowhere.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::errors::Error;
use quick_xml::events::attributes::Attributes;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

/// The deepest accepted nesting of elements. Real answers stay below 20 levels.
const MAX_DEPTH: usize = 128;

/// Maximum number of elements in an answer. A decoded element takes many times as much memory as its XML text. A page
/// of 100 VMs with 200 interfaces each has about 300,000 elements.
const MAX_ELEMENTS: usize = 1_000_000;

/// Maximum number of attributes of an element. The check for duplicates takes quadratic time. Real elements have a
/// dozen at most.
const MAX_ATTRIBUTES: usize = 64;

/// The longest excerpt of a malformed text in an error, in characters.
const LONGEST_EXCERPT: usize = 200;

/// Error of an answer that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The XML is not well-formed, for example because it ends inside a tag.
    #[error("not well-formed XML: {}", beginning(.0))]
    Malformed(String),
    /// The answer ends inside this element.
    #[error("the answer ends inside <{}>", beginning(.0))]
    Truncated(String),
    /// Elements are nested too deeply.
    #[error("elements are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// The answer has too many elements.
    #[error("more than {MAX_ELEMENTS} elements")]
    TooManyElements,
    /// An element has too many attributes.
    #[error("an element with more than {MAX_ATTRIBUTES} attributes")]
    TooManyAttributes,
    /// A required element or attribute is missing.
    #[error("<{0}> is missing")]
    Missing(&'static str),
    /// An element has unexpected content.
    #[error("<{element}> holds {found:?}")]
    Unexpected {
        /// The element.
        element: &'static str,
        /// The beginning of the content, or its description.
        found: String,
    },
}

/// Returns an excerpt for an error. A tag may be as long as an answer.
fn beginning(text: &str) -> String {
    text.chars().take(LONGEST_EXCERPT).collect()
}

/// The parts of a start tag that this program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StartTag<'a> {
    /// The local name.
    pub(super) name: &'a str,
    /// The unprefixed `type` attribute, which is the class of a managed object.
    pub(super) object_type: Option<Cow<'a, str>>,
    /// The prefixed `type` attribute without the prefix of its value.
    pub(super) xml_type: Option<Cow<'a, str>>,
}

enum XmlToken<'a> {
    Start(StartTag<'a>),
    End,
    /// Text as written, without references.
    Text(Cow<'a, str>),
    /// A resolved reference.
    Reference(char),
    /// The end of the document, maybe inside elements.
    Eof,
}

/// Decoder of one document. The caller must completely consume each element that [`Decoder::next_child`] returns: with
/// `text`, `leaf` or `skip`, or by reading its children to the end. A decoder must not be used after an error.
pub(super) struct Decoder<'a> {
    reader: Reader<&'a [u8]>,
    /// The document without a byte order mark. The reader's positions refer to this text.
    document: &'a str,
    open: Vec<&'a str>,
    elements: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(document: &'a str) -> Self {
        let mut reader = Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        let document = document.strip_prefix('\u{feff}').unwrap_or(document);
        Self { reader, document, open: Vec::new(), elements: 0 }
    }

    /// Returns the next child of the innermost open element, or `None` at the end of that element. Text between
    /// children is ignored. The first call returns the root element.
    pub(super) fn next_child(&mut self) -> Result<Option<StartTag<'a>>, DecodeError> {
        loop {
            match self.next()? {
                XmlToken::Start(start) => return Ok(Some(start)),
                XmlToken::End => return Ok(None),
                XmlToken::Eof if self.depth() == 0 => return Ok(None),
                XmlToken::Eof => return Err(self.truncated()),
                XmlToken::Text(_) | XmlToken::Reference(_) => {}
            }
        }
    }

    /// Returns the next child as [`Decoder::next_child`] does. Text between children is an error, because it must not
    /// look like an empty answer. The error names `parent` and omits the text.
    pub(super) fn next_element(&mut self, parent: &'static str) -> Result<Option<StartTag<'a>>, DecodeError> {
        loop {
            match self.next()? {
                XmlToken::Start(start) => return Ok(Some(start)),
                XmlToken::End => return Ok(None),
                XmlToken::Eof => return Err(self.truncated()),
                XmlToken::Text(text) if text.trim().is_empty() => {}
                XmlToken::Text(_) | XmlToken::Reference(_) => {
                    return Err(DecodeError::Unexpected { element: parent, found: "text".to_owned() });
                }
            }
        }
    }

    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        self.leaf().map(Cow::into_owned)
    }

    /// Returns the text of the innermost open element, up to its end. Child elements are skipped.
    pub(super) fn leaf(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let mut text = Cow::Borrowed("");
        while self.read_text(&mut text)?.is_some() {
            self.skip()?;
        }
        Ok(text)
    }

    /// Returns the text if the innermost open element is a leaf; otherwise returns the first child.
    pub(super) fn text_or_child(&mut self) -> Result<TextOrChild<'a>, DecodeError> {
        let mut text = Cow::Borrowed("");
        Ok(match self.read_text(&mut text)? {
            Some(start) => TextOrChild::Child(start),
            None => TextOrChild::Text(text),
        })
    }

    /// Appends text up to the next child, which is returned, or up to the end of the innermost open element.
    fn read_text(&mut self, text: &mut Cow<'a, str>) -> Result<Option<StartTag<'a>>, DecodeError> {
        loop {
            match self.next()? {
                XmlToken::Text(part) => append(text, part),
                XmlToken::Reference(character) => text.to_mut().push(character),
                XmlToken::Start(start) => return Ok(Some(start)),
                XmlToken::End => return Ok(None),
                XmlToken::Eof => return Err(self.truncated()),
            }
        }
    }

    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        let outside = self.depth().saturating_sub(1);
        while self.depth() > outside {
            if let XmlToken::Eof = self.next()? {
                return Err(self.truncated());
            }
        }
        Ok(())
    }

    /// Enters the first child with this name. Returns `false` if the element ends without such a child.
    pub(super) fn descend(&mut self, name: &str) -> Result<bool, DecodeError> {
        while let Some(start) = self.next_child()? {
            if start.name == name {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated(self.open.last().copied().unwrap_or_default().to_owned())
    }

    fn next(&mut self) -> Result<XmlToken<'a>, DecodeError> {
        loop {
            let at = self.reader.buffer_position();
            match self.reader.read_event().map_err(malformed)? {
                Event::Start(tag) => return self.start(&tag, at).map(XmlToken::Start),
                Event::End(_) => {
                    self.open.pop();
                    return Ok(XmlToken::End);
                }
                Event::Text(text) => return Ok(XmlToken::Text(text.into_inner())),
                Event::CData(section) => return Ok(XmlToken::Text(section.into_inner())),
                Event::GeneralRef(reference) => return Ok(XmlToken::Reference(resolve(&reference))),
                Event::Eof => return Ok(XmlToken::Eof),
                Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
    }

    /// Enters the element whose tag begins at this position. Slices the document, because the event's borrow ends too
    /// early.
    fn start(&mut self, tag: &BytesStart<'_>, at: u64) -> Result<StartTag<'a>, DecodeError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(DecodeError::TooManyElements);
        }
        let content = usize::try_from(at).ok().and_then(|at| self.document.get(at + 1..)?.get(..tag.len()));
        let length = tag.name().as_ref().len();
        let Some((content, name)) = content.and_then(|content| Some((content, local(content.get(..length)?)))) else {
            return Err(DecodeError::Malformed("a tag outside of the document".to_owned()));
        };
        self.open.push(name);
        let mut start = StartTag { name, object_type: None, xml_type: None };
        for (index, attribute) in Attributes::new(content, length).enumerate() {
            if index == MAX_ATTRIBUTES {
                return Err(DecodeError::TooManyAttributes);
            }
            let attribute = attribute.map_err(malformed)?;
            let (key, prefix) = attribute.key.decompose();
            if key.as_ref() != "type" {
                continue;
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(malformed)?;
            match prefix {
                None => start.object_type = Some(value),
                Some(_) => start.xml_type = Some(without_prefix(value)),
            }
        }
        Ok(start)
    }
}

pub(super) enum TextOrChild<'a> {
    Text(Cow<'a, str>),
    /// The first child, which the caller must consume like the result of `next_child`.
    Child(StartTag<'a>),
}

/// Appends text. XML requires that line ends become line feeds.
fn append<'a>(text: &mut Cow<'a, str>, part: Cow<'a, str>) {
    let part = if part.contains('\r') { part.replace("\r\n", "\n").replace('\r', "\n").into() } else { part };
    if text.is_empty() {
        *text = part;
    } else {
        text.to_mut().push_str(&part);
    }
}

/// Resolves a reference. References that XML forbids may occur in guests' texts, and are replaced to keep the rest
/// usable.
fn resolve(reference: &BytesRef<'_>) -> char {
    match (reference.resolve_char_ref(), reference.as_ref()) {
        (Ok(Some(character)), _) => character,
        (Ok(None), "amp") => '&',
        (Ok(None), "lt") => '<',
        (Ok(None), "gt") => '>',
        (Ok(None), "quot") => '"',
        (Ok(None), "apos") => '\'',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn malformed(error: impl Into<Error>) -> DecodeError {
    DecodeError::Malformed(error.into().to_string())
}

fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

fn without_prefix(value: Cow<'_, str>) -> Cow<'_, str> {
    match value {
        Cow::Borrowed(text) => text.rsplit(':').next().unwrap_or_default().into(),
        Cow::Owned(text) => text.rsplit(':').next().unwrap_or_default().to_owned().into(),
    }
}

#[cfg(test)]
mod tests;
