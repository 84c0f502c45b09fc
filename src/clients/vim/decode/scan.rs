//! Pure: cuts a document into tags, texts and references. What nearly every answer consists of is cut here, in place and
//! without copies; whatever is unusual (comments, sections, attributes that need a second look, and everything that is
//! wrong) is given to `quick-xml`, so that it means what it means there.

use std::borrow::Cow;

use memchr::{memchr2, memchr3};
use quick_xml::XmlVersion;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::events::{BytesStart, Event};
use quick_xml::parser::{ElementParser, Parser};
use quick_xml::reader::Reader;

use super::{DecodeError, MAX_ATTRIBUTES, MAX_DEPTH, MAX_ELEMENTS, Start};

/// Attributes of one tag that are compared with each other here; tags with more are looked at again.
const PLAIN_ATTRIBUTES: usize = 4;

/// What comes next in a document.
pub(super) enum Token<'a> {
    /// An element begins.
    Start(Start<'a>),
    /// The innermost open element ends.
    End,
    /// Text as it is written, without references.
    Text(Cow<'a, str>),
    /// What stands between `&` and `;`.
    Reference(&'a str),
    /// The document has ended, maybe inside elements.
    Eof,
}

/// See the file's header. After an error it must not be asked again.
pub(super) struct Scanner<'a> {
    rest: &'a str,
    /// The names of the open elements, with their prefixes.
    open: Vec<&'a str>,
    /// The innermost open element was written as `<a/>`.
    is_empty: bool,
    /// How many elements were entered.
    elements: usize,
    /// A name with quotes in it was seen. Where those are not paired, the tag that would close the element does not end
    /// with its first `>`, so from then on no end of a tag is guessed.
    has_quoted_name: bool,
}

/// A start tag as it is written.
struct Tag<'a> {
    name: &'a str,
    /// Where the prefix of the name ends.
    colon: Option<usize>,
    types: Types<'a>,
    is_empty: bool,
    rest: &'a str,
}

/// The values of the attribute `type`.
#[derive(Default)]
struct Types<'a> {
    object: Option<Cow<'a, str>>,
    xml: Option<Cow<'a, str>>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(document: &'a str) -> Self {
        let rest = document.strip_prefix('\u{feff}').unwrap_or(document);
        Self { rest, open: Vec::new(), is_empty: false, elements: 0, has_quoted_name: false }
    }

    /// How many elements are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The local name of the innermost open element; empty outside of all.
    pub(super) fn innermost(&self) -> &'a str {
        self.open.last().map_or("", |name| local(name, name.find(':')))
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, DecodeError> {
        loop {
            if std::mem::take(&mut self.is_empty) {
                self.open.pop();
                return Ok(Token::End);
            }
            let bytes = self.rest.as_bytes();
            let unusual = match (bytes.first(), bytes.get(1)) {
                (None, _) => return Ok(Token::Eof),
                (Some(b'<'), Some(b'/')) => return self.end().map(|()| Token::End),
                (Some(b'<'), None | Some(b'!' | b'?')) => self.unusual()?,
                (Some(b'<'), Some(_)) => return self.start().map(Token::Start),
                (Some(b'&'), _) => return self.reference().map(Token::Reference),
                (Some(_), _) => {
                    let end = memchr2(b'<', b'&', bytes).unwrap_or(bytes.len());
                    return Ok(Token::Text(Cow::Borrowed(self.take(end))));
                }
            };
            if let Some(token) = unusual {
                return Ok(token);
            }
        }
    }

    /// Cuts off so many bytes, which end where a character ends.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn start(&mut self) -> Result<Start<'a>, DecodeError> {
        let tag = match plain_tag(self.rest) {
            Some(tag) => {
                self.count()?;
                tag
            }
            None => self.other_tag()?,
        };
        (self.rest, self.is_empty) = (tag.rest, tag.is_empty);
        self.open.push(tag.name);
        let name = local(tag.name, tag.colon);
        Ok(Start { name, object_type: tag.types.object, xml_type: tag.types.xml })
    }

    fn count(&mut self) -> Result<(), DecodeError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(DecodeError::TooManyElements);
        }
        Ok(())
    }

    /// A start tag that is no plain one.
    fn other_tag(&mut self) -> Result<Tag<'a>, DecodeError> {
        let content = self.tag_content(1)?;
        self.count()?;
        let rest = self.rest;
        let (content, is_empty) = content.strip_suffix('/').map_or((content, false), |content| (content, true));
        let length = content.bytes().position(is_blank).unwrap_or(content.len());
        let name = content.get(..length).unwrap_or_default();
        self.has_quoted_name |= name.contains(['"', '\'']);
        let types = other_attributes(&BytesStart::from_content(content, length))?;
        Ok(Tag { name, colon: name.find(':'), types, is_empty, rest })
    }

    fn end(&mut self) -> Result<(), DecodeError> {
        if !self.has_quoted_name
            && let Some(expected) = self.open.last()
        {
            let (bytes, end) = (self.rest.as_bytes(), expected.len() + 2);
            if bytes.get(end) == Some(&b'>') && bytes.get(2..end) == Some(expected.as_bytes()) {
                self.take(end + 1);
                self.open.pop();
                return Ok(());
            }
        }
        let written = self.tag_content(2)?;
        let trimmed = written.trim_end_matches([' ', '\r', '\n', '\t']);
        let found = if trimmed.is_empty() { written } else { trimmed };
        match self.open.pop() {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => {
                let (expected, found) = (expected.to_owned(), found.to_owned());
                Err(malformed(IllFormedError::MismatchedEndTag { expected, found }))
            }
            None => Err(malformed(IllFormedError::UnmatchedEndTag(found.to_owned()))),
        }
    }

    /// Takes a tag whose `>` may stand in quotes, too; gives what is between its first bytes and its last one.
    fn tag_content(&mut self, first: usize) -> Result<&'a str, DecodeError> {
        let mut parser = ElementParser::default();
        match parser.feed(self.rest.as_bytes()) {
            Some(end) => {
                let tag = self.take(end + 1);
                Ok(tag.get(first..end).unwrap_or_default())
            }
            None => Err(malformed(parser.eof_error(self.rest.as_bytes()))),
        }
    }

    fn reference(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.rest.as_bytes().get(1..).unwrap_or_default();
        match memchr3(b';', b'&', b'<', bytes) {
            Some(end) if bytes.get(end) == Some(&b';') => {
                let reference = self.take(end + 2);
                Ok(reference.get(1..=end).unwrap_or_default())
            }
            _ => Err(malformed(IllFormedError::UnclosedReference)),
        }
    }

    /// What begins with `<!` or `<?`, or is a `<` at the very end. Gives the text of a character data section.
    fn unusual(&mut self) -> Result<Option<Token<'a>>, DecodeError> {
        let mut reader = Reader::from_str(self.rest);
        let event = reader.read_event().map_err(malformed)?;
        self.take(usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX));
        Ok(match event {
            Event::CData(section) => Some(Token::Text(section.into_inner())),
            _ => None,
        })
    }
}

fn malformed(error: impl Into<Error>) -> DecodeError {
    DecodeError::Malformed(error.into().to_string())
}

/// The name without its prefix, which ends at `colon`.
fn local(name: &str, colon: Option<usize>) -> &str {
    colon.and_then(|colon| name.get(colon + 1..)).unwrap_or(name)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\r' | b'\n' | b'\t')
}

/// The start tag at the beginning of `text`, if it is written as servers write them: attributes in double quotes after
/// single blanks, and nothing in them that has to be replaced. Goes from byte to byte: names and values are short, and
/// a search costs more before its first byte.
fn plain_tag(text: &str) -> Option<Tag<'_>> {
    let bytes = text.as_bytes();
    let mut types = Types::default();
    let mut keys: [&[u8]; PLAIN_ATTRIBUTES] = [b""; PLAIN_ATTRIBUTES];
    let mut number = 0;
    let (colon, mut at) = end_of_name(bytes, 1);
    let name = text.get(1..at)?;
    if !matches!(bytes.get(at)?, b' ' | b'>' | b'/') {
        return None;
    }
    let is_empty = loop {
        match bytes.get(at)? {
            b'>' => break false,
            b'/' if bytes.get(at + 1) == Some(&b'>') => break true,
            b' ' => at += 1,
            _ => {
                let (colon, end) = end_of_name(bytes, at);
                let (key, value) = (bytes.get(at..end)?, end + 2);
                if key.is_empty() || bytes.get(end..value) != Some(b"=\"") || keys.contains(&key) {
                    return None;
                }
                *keys.get_mut(number)? = key;
                number += 1;
                let local = colon.map_or(at, |colon| colon + 1);
                at = end_of_value(bytes, value);
                if bytes.get(at) != Some(&b'"') {
                    return None;
                }
                if bytes.get(local..end) == Some(b"type") {
                    let text = text.get(value..at)?;
                    match colon {
                        None => types.object = Some(Cow::Borrowed(text)),
                        Some(_) => types.xml = Some(Cow::Borrowed(without_prefix(text))),
                    }
                }
                at += 1;
            }
        }
    };
    let rest = text.get(at + 1 + usize::from(is_empty)..)?;
    Some(Tag { name, colon: colon.map(|colon| colon - 1), types, is_empty, rest })
}

/// Where the name that begins at `from` has its first colon, and where it ends; a second colon ends it.
fn end_of_name(bytes: &[u8], from: usize) -> (Option<usize>, usize) {
    let (mut colon, mut at) = (None, from);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b':' if colon.is_none() => colon = Some(at),
            0..=b' ' | b'"' | b'\'' | b'/' | b':' | b'=' | b'>' => break,
            _ => {}
        }
        at += 1;
    }
    (colon, at)
}

/// Where the value in double quotes that begins at `from` ends, or where something in it has to be replaced.
fn end_of_value(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at)
        && !matches!(byte, 0..b' ' | b'"' | b'&')
    {
        at += 1;
    }
    at
}

fn other_attributes<'a>(start: &BytesStart<'_>) -> Result<Types<'a>, DecodeError> {
    let mut types = Types::default();
    for (index, attribute) in start.attributes().enumerate() {
        if index == MAX_ATTRIBUTES {
            return Err(DecodeError::TooManyAttributes);
        }
        let attribute = attribute.map_err(malformed)?;
        let (name, prefix) = attribute.key.decompose();
        if name.as_ref() != "type" {
            continue;
        }
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(malformed)?;
        if prefix.is_some() {
            types.xml = Some(Cow::Owned(without_prefix(&value).to_owned()));
        } else {
            types.object = Some(Cow::Owned(value.into_owned()));
        }
    }
    Ok(types)
}

fn without_prefix(value: &str) -> &str {
    let colon = value.bytes().rposition(|byte| byte == b':');
    colon.and_then(|colon| value.get(colon + 1..)).unwrap_or(value)
}

#[cfg(test)]
mod tests;
