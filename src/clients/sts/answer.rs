//! Parses the token service's answer. The assertion is copied byte for byte, because it is signed.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use secrecy::SecretString;

/// The deepest accepted nesting outside the assertion. Real answers stay below 10 levels.
const MAX_DEPTH: usize = 32;
/// Maximum length of a fault's code and of its message, in characters. Longer texts are truncated.
const MAX_TEXT: usize = 300;

#[derive(Debug)]
pub(super) enum TokenAnswer {
    Token { id: String, assertion: SecretString },
    Fault { code: String, text: String },
}

/// Parses a whole answer. The error never has any content of the answer.
pub(super) fn read(text: &str) -> Result<TokenAnswer, String> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let (mut open, mut found): (Vec<String>, _) = (Vec::new(), AnswerFields::default());
    loop {
        let begins = position(&reader);
        match reader.read_event().map_err(|_| "it is not well-formed XML")? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if name == "Assertion" && open.last().is_some_and(|parent| parent == "RequestedSecurityToken") {
                    reader.read_to_end(start.name()).map_err(|_| "it ends inside the assertion")?;
                    let element = text.get(begins..position(&reader)).ok_or("the assertion has no end")?;
                    found.keep_assertion(&start, element)?;
                } else if open.len() < MAX_DEPTH {
                    open.push(name);
                } else {
                    return Err(format!("elements are nested deeper than {MAX_DEPTH}"));
                }
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Text(part) => found.keep_text(&open, &part.xml10_content()),
            Event::CData(part) => found.keep_text(&open, &part.xml10_content()),
            Event::GeneralRef(reference) => {
                if let Ok(Some(character)) = reference.resolve_char_ref() {
                    found.keep_text(&open, character.encode_utf8(&mut [0; 4]));
                }
            }
            Event::DocType(_) => return Err("it has a document type, which SOAP forbids".to_owned()),
            Event::Eof if open.is_empty() => return found.into_answer(),
            Event::Eof => return Err("it ends too early".to_owned()),
            _ => {}
        }
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

#[derive(Default)]
struct AnswerFields {
    is_fault: bool,
    code: String,
    text: String,
    assertion: Option<(String, SecretString)>,
}

impl AnswerFields {
    /// Stores the assertion, which is the element with this start tag.
    fn keep_assertion(&mut self, start: &BytesStart<'_>, element: &str) -> Result<(), String> {
        let prefix = start.name().prefix().map(|prefix| prefix.as_ref().to_owned());
        let declaration = prefix.map_or_else(|| "xmlns".to_owned(), |prefix| format!("xmlns:{prefix}"));
        let (mut id, mut is_declared) = (None, false);
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| "the assertion's attributes cannot be read")?;
            is_declared |= attribute.key.as_ref() == declaration;
            if attribute.key.as_ref() == "ID" {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                id = Some(value.map_err(|_| "the assertion's ID cannot be read")?.into_owned());
            }
        }
        if !is_declared {
            // The copied assertion would lack this declaration.
            return Err("the assertion's namespace is declared outside of it".to_owned());
        }
        let id = id.filter(|id| !id.is_empty() && id.len() <= 256).ok_or("the assertion has no usable ID")?;
        if self.assertion.replace((id, SecretString::from(element.to_owned()))).is_some() {
            return Err("it holds several assertions".to_owned());
        }
        Ok(())
    }

    fn keep_text(&mut self, open: &[String], text: &str) {
        let kept = match open {
            [.., parent, own] if parent == "Fault" && own == "faultcode" => &mut self.code,
            [.., parent, own] if parent == "Fault" && own == "faultstring" => &mut self.text,
            _ => return,
        };
        self.is_fault = true;
        let room = MAX_TEXT.saturating_sub(kept.chars().count());
        kept.extend(text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(room));
    }

    fn into_answer(self) -> Result<TokenAnswer, String> {
        if self.is_fault {
            let code = self.code.trim();
            let code = code.rsplit_once(':').map_or(code, |(_, local)| local).to_owned();
            return Ok(TokenAnswer::Fault { code, text: self.text.trim().to_owned() });
        }
        let (id, assertion) = self.assertion.ok_or("there is no assertion in it")?;
        Ok(TokenAnswer::Token { id, assertion })
    }
}

#[cfg(test)]
mod tests;
