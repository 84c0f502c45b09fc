//! A small pull decoder for SOAP answers: elements by local name, unknown ones skipped, leaf text never trimmed.
//!
//! An un-prefixed `type` attribute is the class of a managed object; a prefixed one, whatever the prefix, is the XML
//! type. Servers differ in prefixes and in how many types they write (seen: vCenter 8.0 writes them everywhere,
//! the simulator hardly anywhere).

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

/// Deeper answers are refused; real ones stay below 20.
const MAX_DEPTH: usize = 128;

/// Answers of more elements are refused: decoded, a small element takes many times its bytes. A page of 100 machines
/// whose guests report 200 interfaces each has about 300,000.
const MAX_ELEMENTS: usize = 1_000_000;

/// Elements with more attributes are refused, because the check for attributes given twice compares each with all
/// before it. Real ones have a dozen at most, on the envelope.
const MAX_ATTRIBUTES: usize = 64;

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not well-formed, or cut short.
    #[error("not well-formed XML: {0}")]
    Malformed(String),
    /// Ends inside an element.
    #[error("the answer ends inside <{0}>")]
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

/// The start of an element, what of it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The local name.
    pub(super) name: String,
    /// The un-prefixed `type` attribute: a managed object's class.
    pub(super) object_type: Option<String>,
    /// The prefixed `type` attribute without the prefix of its value.
    pub(super) xml_type: Option<String>,
}

/// Reads one document. After [`Decoder::next_child`] returned an element it must be consumed whole: by `text`, `skip`,
/// or by asking for its children until there are no more.
pub(super) struct Decoder<'a> {
    reader: Reader<&'a [u8]>,
    /// The local names of the open elements.
    open: Vec<String>,
    /// How many elements were entered.
    elements: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(document: &'a str) -> Self {
        let mut reader = Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        Self { reader, open: Vec::new(), elements: 0 }
    }

    /// The next child of the innermost open element, or `None` once that element has ended. Text between is ignored.
    /// On a fresh decoder: the root element.
    pub(super) fn next_child(&mut self) -> Result<Option<Start>, DecodeError> {
        loop {
            match self.event()? {
                Event::Start(start) => return self.enter(&start).map(Some),
                Event::End(_) => {
                    self.open.pop();
                    return Ok(None);
                }
                Event::Eof => return self.at_end(),
                _ => {}
            }
        }
    }

    /// The text of the innermost open element, which ends with it. Elements inside are skipped.
    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        let mut text = String::new();
        loop {
            match self.event()? {
                Event::Text(part) => text.push_str(&part.xml10_content()),
                Event::CData(part) => text.push_str(&part.xml10_content()),
                Event::GeneralRef(reference) => text.push(resolve(&reference)),
                Event::Start(start) => {
                    self.enter(&start)?;
                    self.skip()?;
                }
                Event::End(_) => {
                    self.open.pop();
                    return Ok(text);
                }
                Event::Eof => return Err(self.truncated()),
                _ => {}
            }
        }
    }

    /// Text when the innermost open element is a leaf, else its first child.
    pub(super) fn text_or_child(&mut self) -> Result<TextOrChild, DecodeError> {
        let mut text = String::new();
        loop {
            match self.event()? {
                Event::Text(part) => text.push_str(&part.xml10_content()),
                Event::CData(part) => text.push_str(&part.xml10_content()),
                Event::GeneralRef(reference) => text.push(resolve(&reference)),
                Event::Start(start) => return self.enter(&start).map(TextOrChild::Child),
                Event::End(_) => {
                    self.open.pop();
                    return Ok(TextOrChild::Text(text));
                }
                Event::Eof => return Err(self.truncated()),
                _ => {}
            }
        }
    }

    /// Passes over the innermost open element.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        let outside = self.open.len().saturating_sub(1);
        while self.open.len() > outside {
            match self.event()? {
                Event::Start(start) => {
                    self.enter(&start)?;
                }
                Event::End(_) => {
                    self.open.pop();
                }
                Event::Eof => return Err(self.truncated()),
                _ => {}
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
        self.open.len()
    }

    fn event(&mut self) -> Result<Event<'a>, DecodeError> {
        self.reader.read_event().map_err(|error| DecodeError::Malformed(error.to_string()))
    }

    fn enter(&mut self, start: &BytesStart<'_>) -> Result<Start, DecodeError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(DecodeError::TooManyElements);
        }
        let found = read_start(start)?;
        self.open.push(found.name.clone());
        Ok(found)
    }

    /// The end of the document is fine only outside of all elements.
    fn at_end<T>(&self) -> Result<Option<T>, DecodeError> {
        if self.open.is_empty() { Ok(None) } else { Err(self.truncated()) }
    }

    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated(self.open.last().cloned().unwrap_or_default())
    }
}

/// What [`Decoder::text_or_child`] found.
pub(super) enum TextOrChild {
    /// The element was a leaf and is consumed.
    Text(String),
    /// Its first child, to be consumed as after `next_child`.
    Child(Start),
}

fn read_start(start: &BytesStart<'_>) -> Result<Start, DecodeError> {
    let local = start.local_name();
    let mut found = Start { name: local.as_ref().to_owned(), object_type: None, xml_type: None };
    for (index, attribute) in start.attributes().enumerate() {
        if index == MAX_ATTRIBUTES {
            return Err(DecodeError::TooManyAttributes);
        }
        let attribute = attribute.map_err(|error| DecodeError::Malformed(error.to_string()))?;
        let (name, prefix) = attribute.key.decompose();
        if name.as_ref() != "type" {
            continue;
        }
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| DecodeError::Malformed(error.to_string()))?;
        if prefix.is_some() {
            found.xml_type = Some(without_prefix(value));
        } else {
            found.object_type = Some(value.into_owned());
        }
    }
    Ok(found)
}

fn without_prefix(value: Cow<'_, str>) -> String {
    value.rsplit_once(':').map_or_else(|| value.to_string(), |(_, local)| local.to_owned())
}

/// Guest-supplied text may hold references that XML does not allow: replaced, so that the rest of the page is usable.
fn resolve(reference: &BytesRef<'_>) -> char {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => character,
        Ok(None) => match reference.as_ref() {
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
