//! Parses Rust text as far as the rules need it: code without comments and strings, and its paths.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One Rust file with its path and text.
#[derive(Clone)]
pub struct Source {
    /// Path relative to the package, with forward slashes: `src/app/options.rs`.
    pub path: String,
    pub text: String,
    tokens: Arc<[Token]>,
}

/// A word or a mark of the code, with its place.
#[derive(Clone)]
pub struct Token {
    pub text: String,
    pub line: usize,
    /// Inline modules around the token, outermost first.
    pub modules: Vec<String>,
    /// Whether the token is in a test file or below `#[cfg(test)]`.
    pub is_test: bool,
}

/// A path in the code. It is absolute if it starts in this crate.
pub struct Named {
    pub segments: Vec<String>,
    pub line: usize,
    pub is_test: bool,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let mut source = Self { path: path.to_owned(), text: text.to_owned(), tokens: Arc::new([]) };
        source.tokens = placed(words(text), source.is_all_tests()).into();
        source
    }

    /// Whether the path shows that the file contains tests only.
    pub fn is_all_tests(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.path.starts_with("tests/")
    }

    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns the string literals of the code, without their quotes. Literals of tests are marked.
    pub fn literals(&self) -> Vec<Token> {
        let chars: Vec<char> = self.text.chars().collect();
        let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
        while at < chars.len() {
            let end = end_of(&chars, at);
            let piece: String = chars[at..end].iter().collect();
            let quoted = piece.trim_start_matches(['b', 'c', 'r']).trim_matches('#');
            if quoted.starts_with('"') && quoted.len() > 1 {
                let text = quoted.trim_matches('"').to_owned();
                // A literal is test code if the line before it is test code.
                let before = self.tokens.partition_point(|token| token.line < line).checked_sub(1);
                let is_test = before.is_some_and(|before| self.tokens[before].is_test);
                found.push(Token { text, line, modules: Vec::new(), is_test });
            }
            line += chars[at..end].iter().filter(|&&char| char == '\n').count();
            at = end;
        }
        found
    }

    /// Returns the module of this file: `["app", "options"]` for `src/app/options.rs`, empty for `src/lib.rs`.
    pub fn module(&self) -> Vec<String> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let inner = inner.strip_suffix(".rs").unwrap_or(inner);
        if inner == "lib" { Vec::new() } else { inner.split('/').map(str::to_owned).collect() }
    }

    /// Returns the files of the modules that this file declares below `#[cfg(test)]`.
    pub fn test_modules(&self) -> Vec<String> {
        let folder = self.path.trim_end_matches(".rs");
        let declared = self.tokens.windows(3).filter(|next| next[0].text == "mod" && next[2].text == ";");
        declared.filter(|next| next[0].is_test).map(|next| format!("{folder}/{}.rs", next[1].text)).collect()
    }

    /// Returns the `//!` lines at the top.
    pub fn header(&self) -> String {
        let lines: Vec<_> = self.text.lines().take_while(|line| line.starts_with("//!")).collect();
        lines.join("\n")
    }

    /// Returns every path with two or more segments, and every `use`. Paths with `crate`, `self` and `super` are
    /// resolved to absolute ones that start with `crate`.
    pub fn paths(&self) -> Vec<Named> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            if token.text == "use" {
                at = self.use_tree(at + 1, &[], &mut found);
            } else if is_word(&token.text) && self.text_at(at + 1) == "::" && !self.follows_colons(at) {
                at = self.plain_path(at, &mut found);
            } else {
                at += 1;
            }
        }
        found
    }

    fn text_at(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Whether the token continues a path. `<T as x::Y>::z` is no path that starts at `z`; `::kube::Client` starts at
    /// `kube`.
    fn follows_colons(&self, at: usize) -> bool {
        at >= 2 && self.text_at(at - 1) == "::" && (is_word(self.text_at(at - 2)) || self.text_at(at - 2) == ">")
    }

    fn plain_path(&self, mut at: usize, found: &mut Vec<Named>) -> usize {
        let start = at;
        let mut segments = vec![self.text_at(at).to_owned()];
        while self.text_at(at + 1) == "::" && is_word(self.text_at(at + 2)) {
            segments.push(self.text_at(at + 2).to_owned());
            at += 2;
        }
        found.push(self.named(start, segments));
        at + 1
    }

    /// Reads one tree of a `use`, adds its leaves, and returns the position after it.
    fn use_tree(&self, mut at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
        let mut segments = prefix.to_vec();
        let start = at;
        loop {
            match self.text_at(at) {
                "::" => at += 1,
                "{" => {
                    at += 1;
                    while !matches!(self.text_at(at), "}" | "") {
                        at = self.use_tree(at, &segments, found);
                        at += usize::from(self.text_at(at) == ",");
                    }
                    return at + 1;
                }
                "as" => at += 2,
                "*" => {
                    segments.push("*".to_owned());
                    at += 1;
                }
                word if is_word(word) => {
                    segments.push(word.to_owned());
                    at += 1;
                }
                _ => {
                    if segments.len() > prefix.len() {
                        found.push(self.named(start, segments));
                    }
                    return at.max(start + usize::from(at == start && !matches!(self.text_at(at), "}" | "," | "")));
                }
            }
        }
    }

    fn named(&self, at: usize, segments: Vec<String>) -> Named {
        let token = &self.tokens[at];
        let mut here = self.module();
        here.extend(token.modules.iter().cloned());
        Named { segments: absolute(segments, here), line: token.line, is_test: token.is_test }
    }
}

/// Makes a path absolute that starts with `crate`, `self` or `super`. `here` is the module of the path.
fn absolute(segments: Vec<String>, mut here: Vec<String>) -> Vec<String> {
    let mut rest = segments.iter().peekable();
    match rest.peek().map(|first| first.as_str()) {
        // In the binary the library has the name `ccm`.
        Some("crate" | "ccm") => here.clear(),
        Some("self" | "super") => {}
        _ => return segments,
    }
    while let Some(step) = rest.next_if(|step| matches!(step.as_str(), "crate" | "ccm" | "self" | "super")) {
        if step == "super" {
            here.pop();
        }
    }
    std::iter::once("crate".to_owned()).chain(here).chain(rest.cloned()).collect()
}

pub fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Returns words, `::` and single marks of `text`, without comments, strings and characters. Each has its line.
fn words(text: &str) -> Vec<(String, usize)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let end = end_of(&chars, at);
        let piece: String = chars[at..end].iter().collect();
        if piece == "::" || (end - at == 1 && !piece.trim().is_empty()) || is_word(&piece) && !piece.contains('"') {
            found.push((piece.trim_start_matches("r#").to_owned(), line));
        }
        line += chars[at..end].iter().filter(|&&char| char == '\n').count();
        at = end;
    }
    found
}

/// Returns the end of the comment, string, character, word or mark at `at`.
fn end_of(chars: &[char], at: usize) -> usize {
    let starts = |text: &str| text.chars().enumerate().all(|(offset, char)| chars.get(at + offset) == Some(&char));
    let until = |from: usize, text: &[char]| {
        let rest = chars.get(from..).unwrap_or_default();
        rest.windows(text.len())
            .position(|window| window == text)
            .map_or(chars.len(), |found| from + found + text.len())
    };
    if starts("//") {
        return until(at, &['\n']);
    }
    if starts("/*") {
        return until(at + 2, &['*', '/']);
    }
    if starts("::") {
        return at + 2;
    }
    let raw = chars[at..].iter().take_while(|char| matches!(char, 'b' | 'r' | 'c')).count();
    let hashes = chars[at + raw..].iter().take_while(|&&char| char == '#').count();
    if raw > 0 && chars[at..at + raw].contains(&'r') && chars.get(at + raw + hashes) == Some(&'"') {
        let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
        return until(at + raw + hashes + 1, &close);
    }
    match chars[at] {
        '"' => end_of_quoted(chars, at + 1, '"'),
        '\'' if chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'') => {
            end_of_quoted(chars, at + 1, '\'')
        }
        char if char.is_alphanumeric() || char == '_' => {
            at + chars[at..].iter().take_while(|char| char.is_alphanumeric() || **char == '_').count()
        }
        _ => at + 1,
    }
}

fn end_of_quoted(chars: &[char], mut at: usize, quote: char) -> usize {
    while let Some(&char) = chars.get(at) {
        match char {
            '\\' => at += 2,
            char if char == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Adds the inline modules around each word, and whether it is test code.
fn placed(words: Vec<(String, usize)>, all_tests: bool) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::with_capacity(words.len());
    // Open inline modules: name, outer depth of braces, and whether the module is test code.
    let mut open: Vec<(String, usize, bool)> = Vec::new();
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    // State of the item or field below `#[cfg(test)]`: the outer braces and brackets, and whether a comma ends it.
    let mut below: Option<(usize, usize, bool)> = None;
    for (text, line) in words {
        let before = |back: usize| tokens.len().checked_sub(back).map_or("", |at| tokens[at].text.as_str());
        let in_module = open.last().is_some_and(|module| module.2);
        let is_test = all_tests || below.is_some() || in_module;
        match text.as_str() {
            "test" if before(1) == "(" && before(2) == "cfg" => below = Some((depth, brackets.saturating_sub(2), true)),
            "{" => {
                if before(2) == "mod" {
                    open.push((before(1).to_owned(), depth, below.take().is_some() || in_module));
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                while open.last().is_some_and(|module| module.1 >= depth) {
                    open.pop();
                }
                below = below.filter(|outside| depth > outside.0);
            }
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets = brackets.saturating_sub(1),
            ";" => below = below.filter(|outside| (depth, brackets) != (outside.0, outside.1)),
            "," => below = below.filter(|outside| !outside.2 || (depth, brackets) != (outside.0, outside.1)),
            // Commas in the generics of an item do not end the item.
            "fn" | "impl" | "struct" | "enum" | "trait" | "type" => {
                below = below.map(|outside| (outside.0, outside.1, false))
            }
            _ => {}
        }
        let modules = open.iter().map(|module| module.0.clone()).collect();
        tokens.push(Token { text, line, modules, is_test });
    }
    tokens
}

/// Returns every file below `folder` of the package, as sorted paths relative to the package. Build output and the git
/// history are excluded.
pub fn files_below(root: &Path, folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !["target", ".git"].iter().any(|skipped| path.ends_with(skipped)) {
                folders.push(path);
            } else if kind.is_file() {
                found.push(path.to_str().unwrap().trim_start_matches("./").to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn paths_are_read_out_of_use_trees_and_expressions() {
    let text = "use crate::{cloud::{Error, zones as z}, runtime::*};\nfn f() { super::super::super::app::run(kube::Client::x) }";
    let found: Vec<_> = Source::new("src/controllers/node/plan.rs", text)
        .paths()
        .iter()
        .map(|named| named.segments.join("::"))
        .collect();
    assert_eq!(
        found,
        ["crate::cloud::Error", "crate::cloud::zones", "crate::runtime::*", "crate::app::run", "kube::Client::x"]
    );
}

#[test]
fn comments_strings_and_characters_are_no_code() {
    let text =
        "// kube::A\n/* kube::B */ let s = \"kube::C\"; let r = r#\"kube::D \" \"#; let c = '\"'; kube::E::<'a>::f";
    let found: Vec<_> = Source::new("src/a.rs", text).paths().iter().map(|named| named.segments.join("::")).collect();
    assert_eq!(found, ["kube::E"]);
}

#[test]
fn super_in_an_inline_module_is_the_file_itself() {
    let source =
        Source::new("src/cloud/node.rs", "#[cfg(test)]\nmod tests { use super::super::zones::Zone; }\nuse super::x;");
    let found: Vec<_> =
        source.paths().iter().map(|named| (named.segments.join("::"), named.line, named.is_test)).collect();
    assert_eq!(found, [("crate::cloud::zones::Zone".to_owned(), 2, true), ("crate::cloud::x".to_owned(), 3, false)]);
}

#[test]
fn what_stands_below_cfg_test_ends_with_its_item_or_field() {
    for text in [
        "#[cfg(test)] fn a<A, B>(c: [A; 1]) -> B { x::d(); x::e() } impl y::Z {}",
        "struct A { #[cfg(test)] b: x::C, d: y::Z }",
        "struct A { #[cfg(test)] b: x::C } impl y::Z {}",
        "#[cfg(test)] use x::{a, b}; use y::Z;",
        "#[cfg(test)] #[derive(x::D)] struct A<B, C>(x::D, C); type E = y::Z;",
        "#[cfg(test)] mod a { fn b() { x::c() } } type E = y::Z;",
    ] {
        let source = Source::new("src/a.rs", text);
        let found: Vec<_> =
            source.paths().into_iter().map(|named| (named.segments[0].clone(), named.is_test)).collect();
        assert!(found.iter().all(|(first, is_test)| (first == "x") == *is_test), "{text}: {found:?}");
        assert!(found.iter().any(|(_, is_test)| !is_test), "{text}");
    }
}
