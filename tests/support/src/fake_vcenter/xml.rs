//! Parses requests into a small tree, and escapes text of answers.

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Element {
    pub(super) name: String,
    /// The attribute `type` without a prefix, which is the class of a managed object.
    pub(super) object_type: String,
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the text of a child, or an empty text if there is none.
    pub(super) fn text_of(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| &child.text)
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.text_of(name) == "true"
    }

    pub(super) fn reference(&self) -> super::inventory::Ref {
        super::inventory::Ref::new(&self.object_type, &self.text)
    }
}

/// Returns the root element, or the reason why there is none. Comments and CDATA are not supported, because no client
/// here writes them.
pub(super) fn parse(document: &str) -> Result<Element, String> {
    let mut open = vec![Element::default()];
    let mut rest = document;
    while let Some((text, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').ok_or("a tag does not end")?;
        open.last_mut().ok_or("text after the end")?.text.push_str(&unescape(text));
        rest = after;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            close(&mut open, name)?;
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        open.push(Element {
            name: local(name).to_owned(),
            object_type: attribute(attributes, "type").unwrap_or_default(),
            ..Element::default()
        });
        if is_empty {
            close(&mut open, name)?;
        }
    }
    match open.as_mut_slice() {
        [document] => document.children.pop().ok_or_else(|| "no element".to_owned()),
        _ => Err("an element does not end".to_owned()),
    }
}

fn close(open: &mut Vec<Element>, name: &str) -> Result<(), String> {
    let element = open.pop().ok_or("an end without a start")?;
    if element.name != local(name.trim()) {
        return Err(format!("{name} ends where {} is open", element.name));
    }
    open.last_mut().ok_or("an end without a start")?.children.push(element);
    Ok(())
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Returns the value of exactly this attribute, without a prefix.
fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes;
    while let Some((name, after)) = rest.split_once('=') {
        let quote = after.trim_start().chars().next()?;
        let (value, after) = after.trim_start().get(1..)?.split_once(quote)?;
        if name.trim() == wanted {
            return Some(unescape(value));
        }
        rest = after;
    }
    None
}

/// Escapes text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#34;", "\""), ("&#39;", "'")];
    let text = named.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain));
    text.replace("&amp;", "&")
}
