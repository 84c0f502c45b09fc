//! A small pull decoder for SOAP answers: elements by local name, unknown ones skipped, leaf text never trimmed.
//!
//! An unprefixed `type` attribute is the class of a managed object; a prefixed one, whatever the prefix, is the XML
//! type. Servers differ in prefixes and in how many types they write (seen: vCenter 8.0 writes them everywhere, the
//! simulator hardly anywhere).

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::errors::Error;
use quick_xml::events::attributes::Attributes;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

/// The deepest nesting of an answer that is accepted; real ones stay below 20.
const MAX_DEPTH: usize = 128;

/// The most elements of an answer: decoded, a small element takes many times its bytes. A page of 100 VMs whose guests
/// report 200 interfaces each has about 300,000.
const MAX_ELEMENTS: usize = 1_000_000;

/// The most attributes of an element, because the check for duplicates compares each attribute with all before it. Real
/// ones have a dozen at most, on the envelope.
const MAX_ATTRIBUTES: usize = 64;

/// The longest excerpt of a malformed text, in characters.
const LONGEST_EXCERPT: usize = 200;

/// Why an answer cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not well-formed, or cut short.
    #[error("not well-formed XML: {}", beginning(.0))]
    Malformed(String),
    /// Ends inside an element.
    #[error("the answer ends inside <{}>", beginning(.0))]
    Truncated(String),
    /// Nested too deeply.
    #[error("elements are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// More elements than the limit.
    #[error("more than {MAX_ELEMENTS} elements")]
    TooManyElements,
    /// More attributes in one element than the limit.
    #[error("an element with more than {MAX_ATTRIBUTES} attributes")]
    TooManyAttributes,
    /// A required element is missing.
    #[error("<{0}> is missing")]
    Missing(&'static str),
    /// An element has unexpected content.
    #[error("<{element}> holds {found:?}")]
    Unexpected {
        /// The element.
        element: &'static str,
        /// The beginning of its content.
        found: String,
    },
}

/// Excerpt for an error: the server wrote the text, and a tag may be as long as an answer.
fn beginning(text: &str) -> String {
    text.chars().take(LONGEST_EXCERPT).collect()
}

/// The parts of a start tag that this program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StartTag<'a> {
    /// The local name.
    pub(super) name: &'a str,
    /// The unprefixed `type` attribute: a managed object's class.
    pub(super) object_type: Option<Cow<'a, str>>,
    /// The prefixed `type` attribute without the prefix of its value.
    pub(super) xml_type: Option<Cow<'a, str>>,
}

/// The next part of a document.
enum XmlToken<'a> {
    /// An element begins.
    Start(StartTag<'a>),
    /// The innermost open element ends.
    End,
    /// Text as it is written, without references.
    Text(Cow<'a, str>),
    /// The text of a character reference.
    Reference(char),
    /// The document has ended, maybe inside elements.
    Eof,
}

/// Decodes one document. An element that [`Decoder::next_child`] returned must be consumed completely: by `text`,
/// `leaf`, `skip`, or by reading its children to the end. Do not use the decoder after an error.
pub(super) struct Decoder<'a> {
    reader: Reader<&'a [u8]>,
    /// The document without a byte order mark, to which the reader's positions refer.
    document: &'a str,
    /// The local names of the open elements.
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

    /// The next child of the innermost open element, or `None` once that element has ended. Text between children is
    /// ignored. The first call on a new decoder returns the root element.
    pub(super) fn next_child(&mut self) -> Result<Option<StartTag<'a>>, DecodeError> {
        loop {
            match self.next()? {
                XmlToken::Start(start) => return Ok(Some(start)),
                XmlToken::End => return Ok(None),
                // The end of the document is valid only outside of all elements.
                XmlToken::Eof if self.depth() == 0 => return Ok(None),
                XmlToken::Eof => return Err(self.truncated()),
                XmlToken::Text(_) | XmlToken::Reference(_) => {}
            }
        }
    }

    /// As [`Decoder::next_child`], inside an element (`parent`, for the error) that contains only elements: text there
    /// is an error, because it must not look like an empty answer. The text is not repeated.
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

    /// As [`Decoder::leaf`], but owned.
    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        self.leaf().map(Cow::into_owned)
    }

    /// The text of the innermost open element, up to its end. Child elements are skipped.
    pub(super) fn leaf(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let mut text = Cow::Borrowed("");
        loop {
            match self.next()? {
                XmlToken::Text(part) => append(&mut text, part),
                XmlToken::Reference(character) => text.to_mut().push(character),
                XmlToken::Start(_) => self.skip()?,
                XmlToken::End => return Ok(text),
                XmlToken::Eof => return Err(self.truncated()),
            }
        }
    }

    /// The text if the innermost open element is a leaf, else its first child.
    pub(super) fn text_or_child(&mut self) -> Result<TextOrChild<'a>, DecodeError> {
        let mut text = Cow::Borrowed("");
        loop {
            match self.next()? {
                XmlToken::Text(part) => append(&mut text, part),
                XmlToken::Reference(character) => text.to_mut().push(character),
                XmlToken::Start(start) => return Ok(TextOrChild::Child(start)),
                XmlToken::End => return Ok(TextOrChild::Text(text)),
                XmlToken::Eof => return Err(self.truncated()),
            }
        }
    }

    /// Skips the rest of the innermost open element.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        let outside = self.depth().saturating_sub(1);
        while self.depth() > outside {
            if let XmlToken::Eof = self.next()? {
                return Err(self.truncated());
            }
        }
        Ok(())
    }

    /// Enters the child with that name, skipping those before it; `false` if the element ended without one.
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

    /// Enters the element whose tag begins at this position. Slices it from the document, as the event's borrow ends
    /// too early.
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

/// Result of [`Decoder::text_or_child`].
pub(super) enum TextOrChild<'a> {
    /// The element was a leaf and is consumed.
    Text(Cow<'a, str>),
    /// Its first child, to be consumed like the result of `next_child`.
    Child(StartTag<'a>),
}

/// Appends text with its line ends normalized to line feeds, as XML requires.
fn append<'a>(text: &mut Cow<'a, str>, part: Cow<'a, str>) {
    let part = if part.contains('\r') { part.replace("\r\n", "\n").replace('\r', "\n").into() } else { part };
    if text.is_empty() {
        *text = part;
    } else {
        text.to_mut().push_str(&part);
    }
}

/// Resolves a reference. Guests' texts may contain references that XML forbids: replaces these, so that the rest is
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
