//! Pure: parses YAML into a tree that keeps the line of each value, and whether the value was in quotes.
//!
//! A typed decode is not suitable for `vsphere.conf`: `yaml.v2` of the Go program distinguishes `"443"` from `443` and
//! `yes` from `"yes"`, and a typed decode stops at the first error. `decoder` is for a kubeconfig. Nesting, values
//! and bytes are limited; each copy for an alias counts. Errors contain a line number and never any text, which may
//! contain a password.

pub(crate) mod decoder;

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError};
use zeroize::Zeroizing;

/// Maximum number of values in one document with expanded aliases. Also limits the sections and variables of a
/// `vsphere.conf` in INI form, and the items of all lists in a `vsphere.conf`.
pub(crate) const MAX_VALUES: usize = 20_000;

/// Maximum size of the text in one document, in bytes: keys, scalars, and each copy for an anchor or an alias. A
/// ConfigMap or a Secret cannot be larger.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// Maximum nesting depth of one document.
pub(crate) const MAX_DEPTH: usize = 64;

/// Prefix of the tags that YAML defines.
const NAMESPACE: &str = "tag:yaml.org,2002:";

/// A value and its position. Has no `Debug`, because the value may be a password.
#[derive(Clone)]
pub(crate) struct Node {
    /// Line where the value begins, from 1.
    pub line: usize,
    pub value: Value,
}

impl Node {
    /// Finds the first entry with this key in a mapping. Returns the line of the key, and the value.
    pub(crate) fn entry(&self, key: &str) -> Option<(usize, &Node)> {
        let entry = self.entries()?.iter().find(|entry| entry.key == key)?;
        Some((entry.line, &entry.node))
    }

    /// Returns the entries of a mapping, an empty slice for null, or `None` for any other value.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Null => Some(&[]),
            Value::Scalar { .. } | Value::List(_) => None,
        }
    }
}

/// A YAML value.
#[derive(Clone)]
pub(crate) enum Value {
    /// `null`, `~` or an empty scalar, without quotes.
    Null,
    /// Any other scalar.
    Scalar {
        /// The text without quotes, not converted to a number or boolean. Wiped from memory on drop.
        text: Zeroizing<String>,
        /// Whether the text was written without quotes. A tag such as `!!str` or `!!int` overrides the quotes.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the text. A key can occur more than once. `<<` is already merged.
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub key: String,
    /// Line of the key, from 1.
    pub line: usize,
    pub node: Node,
    /// Whether `<<` merged the entry from another mapping.
    pub is_merged: bool,
}

/// Error in a YAML text. Contains the line, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is not valid YAML, or uses a tag, an alias or `<<` incorrectly.
    #[error("line {0}: not valid YAML")]
    Syntax(usize),
    /// The document is nested too deeply, or is too large with expanded aliases.
    #[error("line {0}: more than {MAX_VALUES} values, {MAX_TEXT} bytes of text or {MAX_DEPTH} levels, with aliases")]
    TooLarge(usize),
    /// The document has an alias, and the caller does not allow aliases.
    #[error("line {0}: an alias, expected a document without aliases")]
    Alias(usize),
}

/// Handling of aliases in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aliases {
    /// An alias becomes a copy of the anchored node.
    Copied,
    /// An alias is an error.
    Refused,
}

impl YamlError {
    /// Returns the line, from 1.
    pub fn line(self) -> usize {
        match self {
            Self::Syntax(line) | Self::TooLarge(line) | Self::Alias(line) => line,
        }
    }
}

/// Parses the first document of `text`. A text without a document is `Null`.
pub(crate) fn parse_document(text: &str, aliases: Aliases) -> Result<Node, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::new(aliases);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| refusal(&error))?;
        let line = span.start.line();
        if let Some(root) = builder.accept(event, line)? {
            return Ok(root);
        }
    }
    Ok(Node { line: 1, value: Value::Null })
}

/// Parses all documents of `text`. The limits are for all of them together, and aliases are copied.
pub(crate) fn parse_documents(text: &str) -> Result<Vec<Node>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::new(Aliases::Copied);
    let mut documents = Vec::new();
    let mut has_root = false;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| refusal(&error))?;
        match event {
            Event::DocumentStart(..) => {
                // The names of anchors are those of one document.
                builder.anchors.clear();
                has_root = false;
            }
            Event::DocumentEnd if has_root => {}
            event => {
                if let Some(root) = builder.accept(event, span.start.line())? {
                    documents.push(root);
                    has_root = true;
                }
            }
        }
    }
    Ok(documents)
}

fn refusal(error: &ScanError) -> YamlError {
    let line = error.marker().line();
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => YamlError::TooLarge(line),
        _ => YamlError::Syntax(line),
    }
}

/// A list or map that is not complete yet.
enum Open {
    List { line: usize, anchor: usize, items: Vec<Node>, size: Size },
    Map { line: usize, anchor: usize, entries: Vec<Entry>, size: Size, key: Key },
}

/// Role of the next node in a map.
enum Key {
    Expected,
    Read {
        key: String,
        line: usize,
    },
    /// The key is `<<` without quotes.
    Merge,
    /// The key is a list or map. Its value is dropped.
    Complex,
}

#[derive(Clone, Copy)]
struct Size {
    values: usize,
    /// Bytes of text.
    text: usize,
}

impl Size {
    const EMPTY: Self = Self { values: 1, text: 0 };

    fn add(&mut self, other: Self) {
        self.values = self.values.saturating_add(other.values);
        self.text = self.text.saturating_add(other.text);
    }
}

struct Builder {
    aliases: Aliases,
    open: Vec<Open>,
    /// The complete node of each anchor, and its size.
    anchors: HashMap<usize, (Node, Size)>,
    /// Number of values so far, including copies of anchored nodes.
    values: usize,
    text: usize,
}

impl Builder {
    fn new(aliases: Aliases) -> Self {
        Self { aliases, open: Vec::new(), anchors: HashMap::new(), values: 0, text: 0 }
    }

    /// Processes one event. Returns the root once the root is complete.
    fn accept(&mut self, event: Event<'_>, line: usize) -> Result<Option<Node>, YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let size = Size { values: 1, text: text.len() };
                self.make_text(size, line)?;
                let text = Zeroizing::new(text.into_owned());
                let kind = tag.as_deref().and_then(|tag| tag.suffix_in_namespace(NAMESPACE));
                let value = scalar(text, style, kind.as_deref());
                self.close(Node { line, value: value.ok_or(YamlError::Syntax(line))? }, anchor, size)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.push(Open::List { line, anchor, items: Vec::new(), size: Size::EMPTY })
            }
            Event::MappingStart(_, anchor, _) => {
                self.push(Open::Map { line, anchor, entries: Vec::new(), size: Size::EMPTY, key: Key::Expected })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { line, anchor, items, size }) => {
                    self.close(Node { line, value: Value::List(items) }, anchor, size)
                }
                Some(Open::Map { line, anchor, entries, size, .. }) => {
                    self.close(Node { line, value: Value::Map(entries) }, anchor, size)
                }
                None => Ok(None),
            },
            Event::Alias(_) if self.aliases == Aliases::Refused => Err(YamlError::Alias(line)),
            Event::Alias(anchor) => {
                // `anchors` has only complete nodes, so an alias inside its own anchored node is an error.
                let size = self.anchors.get(&anchor).ok_or(YamlError::Syntax(line))?.1;
                self.make_text(size, line)?;
                let (node, size) = self.anchors.get(&anchor).cloned().ok_or(YamlError::Syntax(line))?;
                self.close(Node { line, ..node }, 0, size)
            }
            // The document is empty.
            Event::DocumentEnd => Ok(Some(Node { line, value: Value::Null })),
            _ => Ok(None),
        }
    }

    fn push(&mut self, open: Open) -> Result<Option<Node>, YamlError> {
        let (Open::List { line, .. } | Open::Map { line, .. }) = &open;
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlError::TooLarge(*line));
        }
        self.open.push(open);
        Ok(None)
    }

    /// Adds the bytes of a text to the total before the text is read or copied. Fails above the limit.
    fn make_text(&mut self, size: Size, line: usize) -> Result<(), YamlError> {
        self.text = self.text.saturating_add(size.text);
        if self.text > MAX_TEXT { Err(YamlError::TooLarge(line)) } else { Ok(()) }
    }

    /// Adds a complete node to its container, or returns it as the root.
    fn close(&mut self, node: Node, anchor: usize, size: Size) -> Result<Option<Node>, YamlError> {
        // Counts a value once for itself and once for each container around it. The limit need not be exact.
        self.values = self.values.saturating_add(size.values);
        if self.values > MAX_VALUES {
            return Err(YamlError::TooLarge(node.line));
        }
        if anchor != 0 && self.aliases == Aliases::Copied {
            self.make_text(size, node.line)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut() {
            None => return Ok(Some(node)),
            Some(Open::List { items, size: total, .. }) => {
                total.add(size);
                items.push(node);
            }
            Some(Open::Map { entries, size: total, key, .. }) => {
                total.add(size);
                match std::mem::replace(key, Key::Expected) {
                    Key::Expected => *key = key_of(node),
                    Key::Merge => merge_into(entries, node)?,
                    Key::Read { key, line } => entries.push(Entry { key, line, node, is_merged: false }),
                    Key::Complex => {}
                }
            }
        }
        Ok(None)
    }
}

/// Builds a scalar. `tag` is the suffix of a tag that YAML defines. Returns `None` if the text contradicts the tag.
fn scalar(text: Zeroizing<String>, style: ScalarStyle, tag: Option<&str>) -> Option<Value> {
    let plain = match tag {
        Some("str") => false,
        Some("binary") => {
            let bytes = Zeroizing::new(STANDARD.decode(text.as_bytes()).ok()?);
            let text = Zeroizing::new(std::str::from_utf8(&bytes).ok()?.to_owned());
            return Some(Value::Scalar { text, plain: false });
        }
        // The tag of a number or boolean overrides quotes.
        Some("bool" | "int" | "float" | "null") => true,
        _ => style == ScalarStyle::Plain,
    };
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" if plain => Some(Value::Null),
        _ if tag == Some("null") => None,
        _ => Some(Value::Scalar { text, plain }),
    }
}

fn key_of(node: Node) -> Key {
    match node.value {
        Value::Scalar { text, plain: true } if text.as_str() == "<<" => Key::Merge,
        Value::Scalar { text, .. } => Key::Read { key: text.as_str().to_owned(), line: node.line },
        Value::Null => Key::Read { key: String::new(), line: node.line },
        Value::List(_) | Value::Map(_) => Key::Complex,
    }
}

/// Adds the entries that `<<` merges from a map or a list of maps. Earlier maps of a list take precedence. The maps are
/// added in reverse, because readers of the config let later entries override earlier entries.
fn merge_into(entries: &mut Vec<Entry>, node: Node) -> Result<(), YamlError> {
    let no_map = YamlError::Syntax(node.line);
    let marked = |entry| Entry { is_merged: true, ..entry };
    match node.value {
        Value::Map(merged) => entries.extend(merged.into_iter().map(marked)),
        Value::List(maps) => {
            for map in maps.into_iter().rev() {
                let Value::Map(merged) = map.value else { return Err(no_map) };
                entries.extend(merged.into_iter().map(marked));
            }
        }
        Value::Null | Value::Scalar { .. } => return Err(no_map),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Node, YamlError> {
        parse_document(text, Aliases::Copied)
    }

    /// Returns the tree as text, for comparison.
    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "null".to_owned(),
            Value::Scalar { text, plain: true } => text.to_string(),
            Value::Scalar { text, plain: false } => format!("{:?}", text.as_str()),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
            Value::Map(entries) => {
                let shown: Vec<_> = entries.iter().map(|e| format!("{}={}", e.key, show(&e.node))).collect();
                format!("{{{}}}", shown.join(","))
            }
        }
    }

    #[test]
    fn documents_become_trees() {
        let vectors = [
            ("empty", "", "null"),
            ("comment only", "# nothing\n", "null"),
            ("source text is kept", "a: 007\nb: 1e3\nc: yes\nd: 1:20:30", "{a=007,b=1e3,c=yes,d=1:20:30}"),
            ("quotes are seen", "a: \"443\"\nb: 'x'\nc: !!str 5", "{a=\"443\",b=\"x\",c=\"5\"}"),
            ("nulls", "a:\nb: ~\nc: null\nd: \"\"\ne: 'null'", "{a=null,b=null,c=null,d=\"\",e=\"null\"}"),
            ("JSON", "{\"a\": [1, 2], \"b\": {}}", "{a=[1,2],b={}}"),
            ("only the first document", "---\na: 1\n---\nb: [", "{a=1}"),
            ("anchors", "a: &x {k: v}\nb: *x", "{a={k=v},b={k=v}}"),
            ("merge", "a: &x {k: v, l: w}\nb: {<<: *x, l: 2}", "{a={k=v,l=w},b={k=v,l=w,l=2}}"),
            (
                "merge of a list",
                "a: &x {k: v}\nb: &y {k: w, l: z}\nc: {<<: [*x, *y]}",
                "{a={k=v},b={k=w,l=z},c={k=w,l=z,k=v}}",
            ),
            ("a quoted << is a key", "\"<<\": {k: v}", "{<<={k=v}}"),
            (
                "tags",
                "a: !!int \"5\"\nb: !!bool 'yes'\nc: !!binary aGVsbG8=\nd: !!null ''\ne: !own x",
                "{a=5,b=yes,c=\"hello\",d=null,e=x}",
            ),
            ("duplicate keys stay", "a: 1\na: 2", "{a=1,a=2}"),
            ("byte order mark and CRLF", "\u{feff}a: 1\r\nb: 2\r\n", "{a=1,b=2}"),
            ("keys are text", "10: a\n? [x]\n: b\n", "{10=a}"),
        ];
        for (id, text, want) in vectors {
            let got = parse(text).map(|node| show(&node));
            assert_eq!(got.as_deref(), Ok(want), "{id}");
        }
    }

    #[test]
    fn all_documents_are_parsed_up_to_the_limits_of_one() {
        let documents = |text: &str| parse_documents(text).map(|all| all.iter().map(show).collect::<Vec<_>>());
        assert_eq!(documents("---\na: &x 1\n---\nb: 2\n"), Ok(vec!["{a=1}".to_owned(), "{b=2}".to_owned()]));
        assert_eq!(documents("---\n---\na: 1\n...\n"), Ok(vec!["null".to_owned(), "{a=1}".to_owned()]));
        assert_eq!(documents("# nothing\n"), Ok(Vec::new()));
        assert_eq!(documents("a: &x 1\n---\nb: *x\n"), Err(YamlError::Syntax(3)), "an anchor of another document");
        assert_eq!(documents("a: 1\n---\nb: [\n"), Err(YamlError::Syntax(3)));
        let half = format!("- {}\n", "A".repeat(MAX_TEXT * 2 / 3));
        assert_eq!(documents(&format!("{half}---\n{half}")), Err(YamlError::TooLarge(3)));
    }

    #[test]
    fn what_yaml_v2_refuses_is_refused() {
        let vectors = [
            ("merge of a number", "b: {<<: 5}"),
            ("merge of nothing", "b: {<<: }"),
            ("merge of a list with a number", "a: &x {k: v}\nb: {<<: [*x, 5]}"),
            ("base64", "a: !!binary '###'"),
            ("binary that is no text", "a: !!binary /w=="),
            ("a null with text", "a: !!null x"),
            ("unknown anchor", "a: *x"),
            ("tab", "a:\n\tb: 1"),
            ("colon in a value", "a: b: c"),
            ("open bracket", "a: [b"),
            ("at sign", "a: @b"),
        ];
        for (id, text) in vectors {
            assert!(matches!(parse(text).map(|_| ()), Err(YamlError::Syntax(_))), "{id}");
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let Ok(Node { value: Value::Map(entries), .. }) = parse("# c\na: 1\n\nb:\n  - x\n") else {
            panic!("a mapping");
        };
        let lines: Vec<_> = entries.iter().map(|entry| entry.line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(parse("a: 1\nb:\n\tc: 2\n").map(|_| ()), Err(YamlError::Syntax(3)));
    }

    #[test]
    fn aliases_and_nesting_are_bounded() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(matches!(parse(&bomb), Err(YamlError::TooLarge(_))), "alias bomb");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep).is_err(), "nesting");
        assert!(parse("a: &x [*x]").is_err(), "an anchor inside itself");
    }

    #[test]
    fn copies_count_by_their_bytes() {
        let large = "A".repeat(MAX_TEXT / 4);
        let copies = |count: usize| format!("a: &x {large}\nb: [{}]\n", vec!["*x"; count].join(", "));
        assert!(parse(&copies(1)).is_ok(), "the text, the copy for its anchor and one for an alias");
        assert_eq!(parse(&copies(19_000)).err(), Some(YamlError::TooLarge(2)));
        assert_eq!(parse(&format!("[&a [&b [&c [&d {large}]]]]")).err(), Some(YamlError::TooLarge(1)), "anchors");
        assert!(parse(&format!("a: {}", "A".repeat(MAX_TEXT - 1))).is_ok(), "text without copies");
    }

    #[test]
    fn where_aliases_are_refused_an_anchor_alone_is_not() {
        assert_eq!(parse_document("a: &x 1\nb: *x", Aliases::Refused).err(), Some(YamlError::Alias(2)));
        let read = parse_document("a: &x {b: &y 1}", Aliases::Refused).map(|node| show(&node));
        assert_eq!(read.as_deref(), Ok("{a={b=1}}"));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[-:\\[\\]{}&*#\"'<>|?!%@, \n\ta-c0\u{e9}]{0,80}") {
            let _ = parse(&text).map(|node| show(&node));
        }
    }
}
