//! The scanner of the INI dialect: splits the text into section headers and variables by the rules of `gcfg` 1.2.
//!
//! The scanner does not check the names of sections and keys. After an error it continues with the next line, so that
//! all errors are found. Messages repeat no text of the file, because the text may contain a password.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

use zeroize::Zeroizing;

use crate::base::yaml::MAX_VALUES;

/// An element of the file. It does not implement `Debug`, because a value may be a password.
pub(super) enum Item {
    /// `[name]` or `[name "subsection"]`.
    Section {
        name: String,
        /// The quoted text, unescaped; never empty.
        subsection: Option<String>,
        line: usize,
    },
    /// `key = value` or `key`.
    Variable {
        key: String,
        /// The value without its quotes; `None` without `=`. Wiped from memory on drop.
        value: Option<Zeroizing<String>>,
        end: End,
        is_quoted: bool,
        line: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// End of line, or a comment after a quoted value.
    Line,
    /// A comment: `;` or `#` after a blank, or instead of a value.
    Comment,
    /// `;` or `#` directly after another character. The rest of the line may be meant as part of the value.
    Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    pub message: Cow<'static, str>,
}

/// Scans the whole text, up to [`MAX_VALUES`] elements and errors.
pub(super) fn scan(text: &str) -> (Vec<Item>, Vec<SyntaxError>) {
    let mut scanner = Scanner { chars: text.chars().peekable(), line: 1, column: 1, in_section: false };
    let (mut items, mut errors) = (Vec::new(), Vec::new());
    loop {
        match scanner.next_item() {
            Ok(Some(_)) if items.len() + errors.len() >= MAX_VALUES => {
                errors.push(scanner.error(format!("expected at most {MAX_VALUES} sections and variables")));
                return (items, errors);
            }
            Err(_) if items.len() + errors.len() >= MAX_VALUES => return (items, errors),
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, errors),
            Err(error) => {
                errors.push(error);
                scanner.skip_line();
            }
        }
    }
}

struct Scanner<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    column: usize,
    /// Whether a section header was read, valid or not.
    in_section: bool,
}

impl Scanner<'_> {
    fn next_item(&mut self) -> Result<Option<Item>, SyntaxError> {
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return Ok(None),
                Some('\n') => _ = self.bump(),
                Some(';' | '#') => self.skip_line(),
                Some('[') => {
                    self.in_section = true;
                    return self.section().map(Some);
                }
                Some(c) if !self.in_section => {
                    let illegal = !(c.is_alphabetic() || c == '=' || c == '"');
                    return Err(self.error(if illegal { ILLEGAL } else { "expected section header" }));
                }
                Some(c) if c.is_alphabetic() => return self.variable().map(Some),
                Some('=' | '"' | ']') => return Err(self.error("expected section header or variable declaration")),
                Some(_) => return Err(self.error(ILLEGAL)),
            }
        }
    }

    /// Reads `[ name "subsection" ]`, with optional blanks between the parts.
    fn section(&mut self) -> Result<Item, SyntaxError> {
        let line = self.line;
        self.bump();
        self.skip_blanks();
        let name = self.identifier("expected section name")?;
        self.skip_blanks();
        let subsection = if self.peek() == Some('"') { Some(self.subsection()?) } else { None };
        self.skip_blanks();
        match self.peek() {
            Some(']') => _ = self.bump(),
            _ if subsection.is_some() => return Err(self.error("expected right bracket")),
            _ => return Err(self.error("expected subsection name in double quotes or right bracket")),
        }
        self.end_of_line()?;
        Ok(Item::Section { name, subsection, line })
    }

    fn subsection(&mut self) -> Result<String, SyntaxError> {
        let start = self.error("empty subsection name");
        self.bump();
        let mut name = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.error(UNTERMINATED)),
                Some('"') => {
                    self.bump();
                    break;
                }
                Some('\\') => {
                    self.bump();
                    match self.peek() {
                        Some(c @ ('"' | '\\')) => name.push(c),
                        _ => return Err(self.error(ESCAPE)),
                    }
                    self.bump();
                }
                Some(c) => {
                    name.push(c);
                    self.bump();
                }
            }
        }
        if name.is_empty() { Err(start) } else { Ok(name) }
    }

    fn variable(&mut self) -> Result<Item, SyntaxError> {
        let line = self.line;
        let key = self.identifier("expected a key")?;
        self.skip_blanks();
        let (value, end, is_quoted) = match self.peek() {
            Some('=') => {
                self.bump();
                let (text, end, is_quoted) = self.value()?;
                (Some(text), end, is_quoted)
            }
            None | Some('\n' | ';' | '#') => (None, End::Line, false),
            Some(c) if c.is_alphanumeric() || matches!(c, '"' | '[' | ']' | '-') => {
                return Err(self.error("expected '='"));
            }
            Some(':') => return Err(self.error(COLON)),
            Some(_) => return Err(self.error(ILLEGAL)),
        };
        self.end_of_line()?;
        Ok(Item::Variable { key, value, end, is_quoted, line })
    }

    /// Reads a letter, followed by letters, digits and `-`.
    fn identifier(&mut self, expected: &'static str) -> Result<String, SyntaxError> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            let fits = if name.is_empty() { c.is_alphabetic() } else { c.is_alphanumeric() || c == '-' };
            if !fits {
                break;
            }
            name.push(c);
            self.bump();
        }
        if name.is_empty() { Err(self.error(expected)) } else { Ok(name) }
    }

    /// Concatenates quoted and unquoted pieces. Surrounding blanks are dropped; quoted blanks are kept.
    fn value(&mut self) -> Result<(Zeroizing<String>, End, bool), SyntaxError> {
        self.skip_blanks();
        let mut text = Zeroizing::new(String::new());
        // Length without trailing blanks.
        let mut kept = 0;
        let (mut quoted, mut is_quoted) = (false, false);
        // The first character, the last one, and the last one that is not a blank.
        let first = self.peek();
        let mut last = None;
        let mut last_visible = None;
        let end = loop {
            let next = self.peek();
            match next {
                None | Some('\n') if quoted => return Err(self.error(UNTERMINATED)),
                None | Some('\n') => break End::Line,
                Some(';' | '#') if !quoted => match (last, last_visible) {
                    (_, Some('"')) if first == Some('"') => break End::Line,
                    (_, None) => break End::Comment,
                    (last, visible) => break if last == visible { End::Cut } else { End::Comment },
                },
                Some('"') => {
                    quoted = !quoted;
                    is_quoted = true;
                    self.bump();
                    kept = text.len();
                }
                Some('\\') => {
                    self.escape(&mut text, quoted)?;
                    kept = text.len();
                }
                Some('\r') => _ = self.bump(),
                Some(c) => {
                    push(&mut text, c);
                    self.bump();
                    if quoted || !is_blank(c) {
                        kept = text.len();
                    }
                }
            }
            last = next;
            last_visible = next.filter(|c| !is_blank(*c)).or(last_visible);
        };
        text.truncate(kept);
        Ok((text, end, is_quoted))
    }

    /// Reads an escape sequence. In quotes: `\\`, `\"`, `\n` and `\t`. Outside of quotes: a continued line or a quote.
    fn escape(&mut self, text: &mut Zeroizing<String>, quoted: bool) -> Result<(), SyntaxError> {
        self.bump();
        if quoted {
            match self.peek() {
                Some(c @ ('"' | '\\')) => push(text, c),
                Some('n') => push(text, '\n'),
                Some('t') => push(text, '\t'),
                _ => return Err(self.error(ESCAPE)),
            }
        } else {
            if self.peek() == Some('\r') {
                self.bump();
            }
            match self.peek() {
                Some('"') => push(text, '"'),
                Some('\n') => {}
                _ => return Err(self.error(BACKSLASH)),
            }
        }
        self.bump();
        Ok(())
    }

    fn end_of_line(&mut self) -> Result<(), SyntaxError> {
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | ';' | '#') => {
                self.skip_line();
                Ok(())
            }
            Some(_) => Err(self.error("expected EOL, EOF, or comment")),
        }
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.bump();
        }
    }

    fn skip_line(&mut self) {
        while self.bump().is_some_and(|c| c != '\n') {}
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().copied()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn error(&self, message: impl Into<Cow<'static, str>>) -> SyntaxError {
        SyntaxError { line: self.line, column: self.column, message: message.into() }
    }
}

/// Appends a character. If the text outgrows its buffer, the old buffer is wiped.
fn push(text: &mut Zeroizing<String>, c: char) {
    if text.capacity() < text.len() + c.len_utf8() {
        let mut larger = Zeroizing::new(String::with_capacity((text.capacity() * 2).max(64)));
        larger.push_str(text);
        *text = larger;
    }
    text.push(c);
}

const ILLEGAL: &str = "illegal character";
const COLON: &str = "expected '=', not ':', between key and value";
const UNTERMINATED: &str = "string not terminated";
const ESCAPE: &str = r#"unknown escape sequence: in quotes write \\ for a backslash"#;
const BACKSLASH: &str = r#"unquoted '\' must be followed by new line or double quote: write the value in double quotes, with \\ for a backslash"#;

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the items as text, for comparison.
    fn show(text: &str) -> Result<Vec<String>, SyntaxError> {
        let (items, errors) = scan(text);
        if let Some(error) = errors.first() {
            return Err(error.clone());
        }
        let shown = items.iter().map(|item| match item {
            Item::Section { name, subsection: None, .. } => format!("[{name}]"),
            Item::Section { name, subsection: Some(sub), .. } => format!("[{name} {sub:?}]"),
            Item::Variable { key, value: None, .. } => key.clone(),
            Item::Variable { key, value: Some(value), .. } => format!("{key}={:?}", value.as_str()),
        });
        Ok(shown.collect())
    }

    #[test]
    fn values_are_read_as_gcfg_reads_them() {
        let vectors = [
            ("trimmed, inner blanks kept", "k =  a  b \t", "a  b"),
            ("equals sign", "k = a=b", "a=b"),
            ("comment with #", "k = a#b", "a"),
            ("comment with ;", "k = a ; b", "a"),
            ("quoted comment signs", "k = \"a;b#c\"", "a;b#c"),
            ("pieces", "k = ab\"c d\"ef", "abc def"),
            ("quoted blanks kept", "k = \" a \" ", " a "),
            ("escapes", r#"k = "a\\b\"c\nd\te""#, "a\\b\"c\nd\te"),
            ("escaped quote outside", r#"k = a\"b"#, "a\"b"),
            ("continuation keeps leading blanks", "k = a\\\n  b", "a  b"),
            ("continuation with CRLF", "k = a\\\r\n b", "a b"),
            ("carriage return dropped", "k = a\r\n", "a"),
            ("form feed kept", "k = a\u{c}b", "a\u{c}b"),
            ("empty", "k =", ""),
            ("empty quotes", "k = \"\"", ""),
            ("Unicode", "k = äöü€", "äöü€"),
        ];
        for (id, line, want) in vectors {
            assert_eq!(show(&format!("[s]\n{line}")), Ok(vec!["[s]".to_owned(), format!("k={want:?}")]), "{id}");
        }
    }

    #[test]
    fn headers_and_keys_are_read_as_gcfg_reads_them() {
        let vectors: [(&str, &str, &[&str]); 8] = [
            ("blanks in a header", "[ s ]", &["[s]"]),
            ("no blank before the quote", "[s\"X\"]", &["[s \"X\"]"]),
            ("blanks around the name", "[ s  \"a b\" ] ; c", &["[s \"a b\"]"]),
            ("escapes in a subsection", r#"[s "a\"b\\c"]"#, &[r#"[s "a\"b\\c"]"#]),
            ("key alone", "[s]\nk\nl # c", &["[s]", "k", "l"]),
            ("comments everywhere", "; a\n# b\n[s] # c\n ; d\nk=v", &["[s]", "k=\"v\""]),
            ("Unicode key", "[s]\nschlüssel2 = v", &["[s]", "schlüssel2=\"v\""]),
            ("nothing", " \n\t\r\n", &[]),
        ];
        for (id, text, want) in vectors {
            assert_eq!(show(text), Ok(want.iter().map(|&item| item.to_owned()).collect()), "{id}");
        }
    }

    #[test]
    fn mistakes_have_the_positions_of_gcfg() {
        let vectors = [
            ("C14", "[Global]]", (1, 9), "expected EOL, EOF, or comment"),
            ("C15", "user=g", (1, 1), "expected section header"),
            ("C16", "[Global]\nuser g", (2, 6), "expected '='"),
            ("C17", "[Global]\n= g", (2, 1), "expected section header or variable declaration"),
            ("C18", "[Global]\n1user = g", (2, 1), ILLEGAL),
            ("byte order mark", "\u{feff}[s]", (1, 1), ILLEGAL),
            ("underscore", "[s]\nca_file = x", (2, 3), ILLEGAL),
            ("colon", "[s]\nk: v", (2, 2), COLON),
            ("dot in a header", "[a.b]", (1, 3), "expected subsection name in double quotes or right bracket"),
            ("single quotes", "[a 'b']", (1, 4), "expected subsection name in double quotes or right bracket"),
            ("empty subsection", "[a \"\"]", (1, 4), "empty subsection name"),
            ("open subsection", "[a \"b\n\"]", (1, 6), UNTERMINATED),
            ("escape in a subsection", r#"[a "b\n"]"#, (1, 7), ESCAPE),
            ("key on the header line", "[a] k = v", (1, 5), "expected EOL, EOF, or comment"),
            ("open value", "[s]\nk = \"a\n", (2, 7), UNTERMINATED),
            (
                "unknown escape",
                r#"[s]
k = "a\b""#,
                (2, 8),
                ESCAPE,
            ),
            ("continuation in quotes", "[s]\nk = \"a\\\nb\"", (2, 8), ESCAPE),
            (
                "bare backslash",
                r#"[s]
user = DOMAIN\name"#,
                (2, 15),
                BACKSLASH,
            ),
        ];
        for (id, text, (line, column), message) in vectors {
            assert_eq!(show(text), Err(SyntaxError { line, column, message: message.into() }), "{id}");
        }
    }

    #[test]
    fn all_mistakes_are_found() {
        let (items, errors) = scan("[s]\na b\nk = v\n= c\n[t\nl = w");
        let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
        assert_eq!((items.len(), lines), (3, vec![2, 4, 5]));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_scanner(text in any::<String>()) {
            let (items, errors) = scan(&text);
            prop_assert!(items.len() + errors.len() <= text.lines().count() + 1);
        }

        #[test]
        fn no_likely_text_breaks_the_scanner(text in "[\\[\\]\"\\\\=;#\r\n\t a-c\\-_\u{e9}]{0,60}") {
            scan(&text);
        }

        #[test]
        fn a_quoted_value_survives(value in "[^\0\r]{0,20}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            prop_assert_eq!(show(&format!("[s]\nk = \"{escaped}\"")), Ok(vec!["[s]".to_owned(), format!("k={value:?}")]));
        }
    }
}
