//! `docs/code-map.md`, written from the headers of the files.

use crate::source::Source;
use std::fmt::Write;

const HEAD: &str = "# Code map

One line for each file of `src/`: the first sentence of its header. Unit tests are in the file itself or, if they are long, in `tests.rs` in its folder.
`UPDATE_GOLDEN=1 cargo test --test architecture` writes this page; the same test fails when the page is stale.

```text
";

/// Returns the first sentence of a header, without its full stop and without the brackets of links.
fn first_sentence(header: &str) -> String {
    let lines = header.lines().map(|line| line.trim_start_matches("//!").trim());
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let mut cuts = paragraph.match_indices(". ").filter_map(|(at, _)| paragraph.split_at_checked(at));
    let is_end = |rest: &str| rest.trim_start_matches(['.', ' ']).starts_with(char::is_uppercase);
    let first = cuts.find(|(_, rest)| is_end(rest)).map_or(paragraph.as_str(), |(first, _)| first);
    first.trim_end_matches(['.', ':']).replace("[`", "`").replace("`]", "`")
}

/// Returns the page: the files of `src/` itself, then those of each module.
pub fn page(sources: &[Source]) -> String {
    let folder = |source: &Source| {
        let parts: Vec<_> = source.path.split('/').collect();
        if parts.len() > 2 { format!("src/{}/", parts[1]) } else { "src/".to_owned() }
    };
    let mut folders: Vec<_> = sources.iter().map(folder).collect();
    folders.sort();
    folders.dedup();
    let mut page = HEAD.to_owned();
    for within in folders {
        let files: Vec<_> = sources.iter().filter(|source| folder(source) == within).collect();
        let names = || files.iter().filter_map(|source| source.path.strip_prefix(&within));
        let width = names().map(str::len).max().unwrap_or_default();
        let _ = writeln!(page, "{within}");
        for (name, source) in names().zip(&files) {
            let _ = writeln!(page, "  {name:width$}   {}", first_sentence(&source.header()));
        }
    }
    page + "```\n"
}

#[test]
fn the_code_map_is_as_it_is_written_from_the_headers() {
    super::assert_golden("docs/code-map.md", &page(&super::product()));
}

#[test]
fn a_file_has_the_first_sentence_of_its_header() {
    for (header, expected) in [
        ("//! Pure: what is next.\n", "Pure: what is next"),
        ("//! Reads `a.conf`, and\n//! b. Knows no c.\n", "Reads `a.conf`, and b"),
        ("//! Implements [`X`]: so.\n//!\n//! More.\n", "Implements `X`: so"),
    ] {
        assert_eq!(first_sentence(&Source::new("src/a.rs", header).header()), expected);
    }
    let sources = [("src/a/b.rs", "//! B."), ("src/a/b/c.rs", "//! C."), ("src/a.rs", "//! A.")];
    let page = page(&sources.map(|(path, text)| Source::new(path, text)));
    assert_eq!(page.split("```text\n").nth(1), Some("src/\n  a.rs   A\nsrc/a/\n  b.rs     B\n  b/c.rs   C\n```\n"));
}
