//! A small pull decoder for SOAP answers: elements by local name, unknown ones skipped, leaf text never trimmed.
//!
//! An un-prefixed `type` attribute is the class of a managed object; a prefixed one, whatever the prefix, is the XML
//! type. Servers differ in prefixes and in how many types they write (seen: vCenter 8.0 writes them everywhere,
//! the simulator hardly anywhere).

mod scan;

use std::borrow::Cow;

use quick_xml::events::BytesRef;

use scan::{Scanner, Token};

/// Deeper answers are refused; real ones stay below 20.
const MAX_DEPTH: usize = 128;

/// Answers of more elements are refused: decoded, a small element takes many times its bytes. A page of 100 machines
/// whose guests report 200 interfaces each has about 300,000.
const MAX_ELEMENTS: usize = 1_000_000;

/// Elements with more attributes are refused, because the check for attributes given twice compares each with all
/// before it. Real ones have a dozen at most, on the envelope.
const MAX_ATTRIBUTES: usize = 64;

/// What is told of a text that is not understood.
const LONGEST_TOLD: usize = 200;

/// Why an answer cannot be read.
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
    /// More than is read.
    #[error("more than {MAX_ELEMENTS} elements")]
    TooManyElements,
    /// More than is read.
    #[error("an element with more than {MAX_ATTRIBUTES} attributes")]
    TooManyAttributes,
    /// An element that must be there is not.
    #[error("<{0}> is missing")]
    Missing(&'static str),
    /// An element holds something else than it must.
    #[error("<{element}> holds {found:?}")]
    Unexpected {
        /// The element.
        element: &'static str,
        /// The beginning of what it holds.
        found: String,
    },
}

/// What is told of a text: the server wrote it, and a tag may be as long as an answer.
fn beginning(text: &str) -> String {
    text.chars().take(LONGEST_TOLD).collect()
}

/// The start of an element, what of it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start<'a> {
    /// The local name.
    pub(super) name: &'a str,
    /// The un-prefixed `type` attribute: a managed object's class.
    pub(super) object_type: Option<Cow<'a, str>>,
    /// The prefixed `type` attribute without the prefix of its value.
    pub(super) xml_type: Option<Cow<'a, str>>,
}

/// Reads one document. After [`Decoder::next_child`] returned an element it must be consumed whole: by `text`, `leaf`,
/// `skip`, or by asking for its children until there are no more.
pub(super) struct Decoder<'a> {
    scanner: Scanner<'a>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(document: &'a str) -> Self {
        Self { scanner: Scanner::new(document) }
    }

    /// The next child of the innermost open element, or `None` once that element has ended. Text between is ignored.
    /// On a fresh decoder: the root element.
    pub(super) fn next_child(&mut self) -> Result<Option<Start<'a>>, DecodeError> {
        loop {
            match self.scanner.next()? {
                Token::Start(start) => return Ok(Some(start)),
                Token::End => return Ok(None),
                // The end of the document is fine only outside of all elements.
                Token::Eof if self.depth() == 0 => return Ok(None),
                Token::Eof => return Err(self.truncated()),
                Token::Text(_) | Token::Reference(_) => {}
            }
        }
    }

    /// As [`Decoder::next_child`], inside an element (`parent`, for the error) that holds elements only: words there are
    /// no answer, and must not look like an empty one. They are not repeated.
    pub(super) fn next_element(&mut self, parent: &'static str) -> Result<Option<Start<'a>>, DecodeError> {
        loop {
            match self.scanner.next()? {
                Token::Start(start) => return Ok(Some(start)),
                Token::End => return Ok(None),
                Token::Eof => return Err(self.truncated()),
                Token::Text(text) if text.trim().is_empty() => {}
                Token::Text(_) | Token::Reference(_) => {
                    return Err(DecodeError::Unexpected { element: parent, found: "text".to_owned() });
                }
            }
        }
    }

    /// As [`Decoder::leaf`], to be kept.
    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        self.leaf().map(Cow::into_owned)
    }

    /// The text of the innermost open element, which ends with it. Elements inside are skipped.
    pub(super) fn leaf(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let mut text = Cow::Borrowed("");
        loop {
            match self.scanner.next()? {
                Token::Text(part) => append(&mut text, part),
                Token::Reference(reference) => text.to_mut().push(resolve(reference)),
                Token::Start(_) => self.skip()?,
                Token::End => return Ok(text),
                Token::Eof => return Err(self.truncated()),
            }
        }
    }

    /// Text when the innermost open element is a leaf, else its first child.
    pub(super) fn text_or_child(&mut self) -> Result<TextOrChild<'a>, DecodeError> {
        let mut text = Cow::Borrowed("");
        loop {
            match self.scanner.next()? {
                Token::Text(part) => append(&mut text, part),
                Token::Reference(reference) => text.to_mut().push(resolve(reference)),
                Token::Start(start) => return Ok(TextOrChild::Child(start)),
                Token::End => return Ok(TextOrChild::Text(text)),
                Token::Eof => return Err(self.truncated()),
            }
        }
    }

    /// Passes over the innermost open element.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        let outside = self.depth().saturating_sub(1);
        while self.depth() > outside {
            if let Token::Eof = self.scanner.next()? {
                return Err(self.truncated());
            }
        }
        Ok(())
    }

    /// Enters the child of that name, skipping those before it; `false` if the element ended without one.
    pub(super) fn descend(&mut self, name: &str) -> Result<bool, DecodeError> {
        while let Some(start) = self.next_child()? {
            if start.name == name {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    /// How many elements are open.
    pub(super) fn depth(&self) -> usize {
        self.scanner.depth()
    }

    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated(self.scanner.innermost().to_owned())
    }
}

/// What [`Decoder::text_or_child`] found.
pub(super) enum TextOrChild<'a> {
    /// The element was a leaf and is consumed.
    Text(Cow<'a, str>),
    /// Its first child, to be consumed as after `next_child`.
    Child(Start<'a>),
}

/// The ends of lines become line feeds, as XML has it.
fn append<'a>(text: &mut Cow<'a, str>, part: Cow<'a, str>) {
    let has_return = memchr::memchr(b'\r', part.as_bytes()).is_some();
    let part = if has_return { part.replace("\r\n", "\n").replace('\r', "\n").into() } else { part };
    if text.is_empty() {
        *text = part;
    } else {
        text.to_mut().push_str(&part);
    }
}

/// Guest-supplied text may hold references that XML does not allow: replaced, so that the rest of the page is usable.
fn resolve(reference: &str) -> char {
    match BytesRef::new(reference).resolve_char_ref() {
        Ok(Some(character)) => character,
        Ok(None) => match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => char::REPLACEMENT_CHARACTER,
        },
        Err(_) => char::REPLACEMENT_CHARACTER,
    }
}

#[cfg(test)]
mod tests;
