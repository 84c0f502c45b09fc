//! The shape of the product: the length of files and functions, and the place of a type's methods.

use crate::source::{Source, Token, is_word};
use std::collections::BTreeSet;

const FILE: usize = 800;
const MAIN: usize = 60;
const FUNCTION: usize = 100;
const TUPLE: usize = 2;

/// A file and the name that violates a rule in it.
type Row<'a> = (&'a str, &'a str);

/// Fails with the violations of a rule.
fn assert_none(found: &BTreeSet<Row<'_>>, rule: &str) {
    let broken: Vec<_> = found.iter().map(|(path, name)| format!("{path}: {name}: {rule}")).collect();
    super::assert_none(&broken);
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

/// Returns the position of the bracket that closes the one at `open`. The `>` of `->` closes none.
fn closes(tokens: &[Token], open: usize) -> usize {
    let pair =
        |opening: &str| [("{", "}"), ("(", ")"), ("[", "]"), ("<", ">")].into_iter().find(|(left, _)| *left == opening);
    let Some((left, right)) = pair(text(tokens, open)) else { return open };
    let mut depth = 0;
    for at in open..tokens.len() {
        depth += usize::from(text(tokens, at) == left);
        depth -= usize::from(text(tokens, at) == right && text(tokens, at - 1) != "-");
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

/// Returns the first `{` or `;` from `at` on that is in no other bracket.
fn body(tokens: &[Token], mut at: usize) -> Option<usize> {
    while !matches!(text(tokens, at), "{" | ";" | "") {
        at = match text(tokens, at) {
            "(" | "[" => closes(tokens, at) + 1,
            _ => at + 1,
        };
    }
    (text(tokens, at) == "{").then_some(at)
}

/// Reports a file that is too long. Its inline test modules do not count.
fn lengths(source: &Source) -> Vec<String> {
    if source.is_all_tests() {
        return Vec::new();
    }
    let groups = source.tokens().chunk_by(|one, next| one.is_test == next.is_test);
    let tests = groups.filter(|group| group[0].is_test).map(|group| group[group.len() - 1].line - group[0].line + 1);
    let lines = source.text.lines().count() - tests.sum::<usize>();
    let limit = if source.path == "src/main.rs" { MAIN } else { FILE };
    if lines > limit { vec![format!("{}: {lines} lines, at most {limit}", source.path)] } else { Vec::new() }
}

/// Returns the functions of a file that are too long.
fn long_functions(source: &Source) -> BTreeSet<Row<'_>> {
    let tokens = source.tokens();
    let starts = (0..tokens.len()).filter(|&at| text(tokens, at) == "fn" && is_word(text(tokens, at + 1)));
    let is_long = |at: &usize| {
        body(tokens, *at).is_some_and(|open| tokens[closes(tokens, open)].line - tokens[*at].line >= FUNCTION)
    };
    let long = starts.filter(|&at| !tokens[at].is_test).filter(is_long);
    long.map(|at| (source.path.as_str(), text(tokens, at + 1))).collect()
}

/// Returns the types with inherent methods in a file.
fn inherent(source: &Source) -> BTreeSet<&str> {
    let tokens = source.tokens();
    let is_item =
        |at: &usize| text(tokens, *at) == "impl" && (*at == 0 || matches!(text(tokens, at - 1), "{" | "}" | ";" | "]"));
    let starts = (0..tokens.len()).filter(is_item).filter(|&at| !tokens[at].is_test);
    let named = starts.filter_map(|at| {
        let mut at = if text(tokens, at + 1) == "<" { closes(tokens, at + 1) + 1 } else { at + 1 };
        let mut name = None;
        while !matches!(text(tokens, at), "{" | "where" | "") {
            match text(tokens, at) {
                "for" | "$" | "!" => return None,
                "<" | "(" | "[" => at = closes(tokens, at),
                "dyn" => {}
                word if is_word(word) => name = Some(word),
                _ => {}
            }
            at += 1;
        }
        name
    });
    named.collect()
}

fn declares(source: &Source, name: &str) -> bool {
    let is_kind = |kind: &str| matches!(kind, "struct" | "enum" | "union" | "trait" | "type");
    source.tokens().windows(2).any(|next| is_kind(&next[0].text) && next[1].text == name)
}

/// Returns file and type for methods outside of the type's file `a.rs` and its folder `a/`.
fn scattered(sources: &[Source]) -> BTreeSet<Row<'_>> {
    let is_home = |home: &Source, path: &str| {
        home.path == path
            || path.strip_prefix(home.path.trim_end_matches(".rs")).is_some_and(|rest| rest.starts_with('/'))
    };
    let of = |source| inherent(source).into_iter().map(move |name| (source, name));
    let astray = sources
        .iter()
        .flat_map(of)
        .filter(|(source, name)| !sources.iter().any(|home| is_home(home, &source.path) && declares(home, name)));
    astray.map(|(source, name)| (source.path.as_str(), name)).collect()
}

/// Returns the number of places of the tuple whose parenthesis opens at `open`.
fn places(tokens: &[Token], open: usize) -> usize {
    let (mut at, end, mut places) = (open + 1, closes(tokens, open), 0);
    let mut is_filled = false;
    while at < end {
        match text(tokens, at) {
            "," => {
                places += 1;
                is_filled = false;
            }
            _ => is_filled = true,
        }
        at = match text(tokens, at) {
            "(" | "[" | "{" => closes(tokens, at) + 1,
            _ => at + 1,
        };
    }
    places + usize::from(is_filled)
}

/// Reports the assignments of a tuple to a tuple with more places than the limit: `let (a, b, c) = (1, 2, 3);`.
fn tuple_assignments(source: &Source) -> Vec<String> {
    let tokens = source.tokens();
    let is_start = |at: &usize| {
        text(tokens, *at) == "("
            && !tokens[*at].is_test
            && (*at == 0 || matches!(text(tokens, at - 1), "let" | ";" | "{" | "}"))
    };
    let is_assigned = |at: &usize| {
        let mut equals = closes(tokens, *at) + 1;
        // The type of a `let`.
        while !matches!(text(tokens, equals), "=" | ";" | "{" | "") {
            equals += 1;
        }
        let right = equals + 1;
        text(tokens, equals) == "="
            && text(tokens, right) == "("
            && matches!(text(tokens, closes(tokens, right) + 1), ";" | "else")
            && places(tokens, *at) > TUPLE
    };
    let found = (0..tokens.len()).filter(is_start).filter(is_assigned);
    found.map(|at| format!("{}:{}: a tuple of at most {TUPLE} places", source.path, tokens[at].line)).collect()
}

#[test]
fn no_large_tuple_is_assigned_to_a_tuple() {
    super::hold(&["src"], tuple_assignments);
}

#[test]
fn a_large_tuple_is_noticed() {
    for (text, is_found) in [
        ("fn f() { let (a, b, c) = (1, 2, 3); }", true),
        ("fn f() { let (a, mut b, (c, d)): (u8, u8, T<u8, u8>) = (1, f(2, 3), (3, 4),); }", true),
        ("fn f() { x(); (s.a, s.b, s.c) = (1, 2, 3); }", true),
        ("fn f() { let (Some(a), Some(b), Some(c)) = (a, b, c) else { return }; }", true),
        ("fn f() { let (a, b) = (1, 2); (s.a, s.b) = (g(1, 2), 3); }", false),
        ("fn f() { let (a, b, c) = g(1, 2, 3); }", false),
        ("fn f() { let (a, b, c) = (x + 1).split(); if (a, b, c) == (1, 2, 3) { } }", false),
        ("fn f() { match x { (a, b, c) => { y = (1, 2, 3); } } }", false),
        ("#[cfg(test)]\nmod tests { fn f() { let (a, b, c) = (1, 2, 3); } }", false),
    ] {
        assert_eq!(!tuple_assignments(&Source::new("src/a.rs", text)).is_empty(), is_found, "{text}");
    }
}

#[test]
fn files_and_functions_stay_short() {
    super::hold(&["src"], lengths);
    let all = super::product();
    let long = all.iter().flat_map(long_functions).collect();
    assert_none(&long, "at most 100 lines");
}

#[test]
fn methods_stand_with_their_type() {
    let rule = "methods stand in the file of their type or in its folder";
    assert_none(&scattered(&super::product()), rule);
}

#[test]
#[should_panic(expected = "src/b.rs: g: short")]
fn what_breaks_a_rule_fails_with_its_place() {
    assert_none(&[("src/b.rs", "g")].into(), "short");
}

#[test]
fn what_is_too_long_is_noticed() {
    let function = |lines: usize| format!("fn f(a: [u8; 2]) -> impl X {{{}}}", "\n".repeat(lines - 1));
    let [long, fine, over_main] = [801, 800, 61].map(|lines| "\n".repeat(lines));
    let tests = format!("\n\n#[cfg(test)]\nmod tests {{\n{};\n{}\n}}\n", "a;\n".repeat(900), function(110));
    super::notices(
        lengths,
        &[
            ("src/a.rs", &long, true),
            ("src/a.rs", &fine, false),
            ("src/a.rs", &tests, false),
            ("src/main.rs", &over_main, true),
            ("src/a/tests.rs", &long, false),
        ],
    );
    for (text, is_long) in [
        (function(101), true),
        (function(100), false),
        (tests, false),
        (format!("trait T {{ fn f(x: fn(u8)); {} }}", function(101)), true),
        (format!("trait T {{ fn f();{} }}", "\n".repeat(110)), false),
    ] {
        assert_eq!(!long_functions(&Source::new("src/a.rs", &text)).is_empty(), is_long, "{text}");
    }
}

#[test]
fn methods_away_from_their_type_are_noticed() {
    for (path, text, expected) in [
        ("src/a/b.rs", "impl<T: Fn() -> u8> A<T> where T: X {}", None),
        ("src/b.rs", "impl<T> super::A<T> { fn f() {} }", Some("A")),
        ("src/ab.rs", "impl super::B {}", Some("B")),
        ("src/b.rs", "impl<T> From<B> for A<T> {}\nimpl X for &B {}", None),
        ("src/b.rs", "struct B;\nimpl B { fn f() -> impl X {} }", None),
        ("src/b.rs", "fn f(x: impl A) -> impl B { }\nimpl $name {}", None),
        ("src/b.rs", "#[cfg(test)]\nmod tests { impl A {} }", None),
        ("src/b.rs", "impl dyn A {}", Some("A")),
    ] {
        let sources = [Source::new("src/a.rs", "struct A<T> { x: T }\nenum B {}"), Source::new(path, text)];
        let expected = expected.map(|name| (path, name)).into_iter().collect();
        assert_eq!(scattered(&sources), expected, "{path}: {text}");
    }
}
