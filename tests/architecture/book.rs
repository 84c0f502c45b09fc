//! The pages below `docs` as a book: `docs/SUMMARY.md` lists each page, and each link leads to a page and a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The text of a page whose content is at another address now.
const MOVED: &str = "This page has moved";

/// The pages by path: those of the book, and those that link into it.
type Pages = BTreeMap<String, String>;

/// Returns the lines of a page outside of code blocks.
fn lines_of_text(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the address of a heading, as hosts of Git repositories and mdBook form it.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link, the text counts.
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once("](").unwrap_or((link, ")"));
        text.push_str(before);
        text.push_str(name);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let is_kept = |char: &char| char.is_alphanumeric() || matches!(char, '-' | '_' | ' ');
    text.trim().to_lowercase().chars().filter(is_kept).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Returns the anchors of a page. A heading that is there twice has a number.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = lines_of_text(page).filter(|line| line.starts_with('#'));
    let mut found = BTreeSet::new();
    for heading in headings.map(|line| anchor(line.trim_start_matches('#'))) {
        let mut numbers = (1..).map(|number| format!("{heading}-{number}"));
        let free = if found.contains(&heading) { numbers.find(|name| !found.contains(name)) } else { Some(heading) };
        found.extend(free);
    }
    found
}

/// Returns the targets of the links of a page that are not addresses on the network.
fn links(page: &str) -> Vec<&str> {
    let targets = lines_of_text(page).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// Returns a path without `.` and `..`.
fn normalized(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts.display().to_string()
}

/// Returns the links that lead to no file, or to no heading of a page.
fn broken_links(pages: &Pages, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in pages {
        for link in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() { path.clone() } else { normalized(&folder.join(file)) };
            match pages.get(&target) {
                Some(_) if anchor.is_empty() => {}
                Some(page) if anchors(page).contains(anchor) => {}
                Some(_) => broken.push(format!("{path}: {link}: {target} has no heading with this address")),
                None if exists(&target) => {}
                None => broken.push(format!("{path}: {link}: {target} is not there")),
            }
        }
    }
    broken
}

/// Returns the differences between the pages below `docs` and the list of pages: each page is there once, and pages that
/// have moved are not.
fn differences(pages: &Pages, summary: &str) -> Vec<String> {
    let mut listed = BTreeMap::<String, usize>::new();
    for link in links(summary) {
        *listed.entry(normalized(&Path::new("docs").join(link))).or_default() += 1;
    }
    let mut found = Vec::new();
    for (path, text) in pages.iter().filter(|(path, _)| path.starts_with("docs/") && *path != "docs/SUMMARY.md") {
        let expected = usize::from(!text.contains(MOVED));
        let times = listed.get(path).copied().unwrap_or_default();
        if times != expected {
            found.push(format!("docs/SUMMARY.md has {path} {times} times, and must have it {expected} times"));
        }
    }
    found
}

/// Returns the pages that a text of the program or of a manifest names, such as `docs/reasons.md#vmnotfound`.
fn named_pages(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && !"/_-.#".contains(char));
    words.filter(|word| word.starts_with("docs/") && word.contains(".md")).map(|word| word.trim_end_matches('.'))
}

/// Returns the reason why a reader does not find what a name of a page promises.
fn fault(pages: &Pages, name: &str) -> Option<&'static str> {
    let (path, heading) = name.split_once('#').unwrap_or((name, ""));
    match pages.get(path) {
        None => Some("there is no such page"),
        Some(text) if text.contains(MOVED) => Some("the page has moved"),
        Some(text) if !heading.is_empty() && !anchors(text).contains(heading) => Some("there is no such heading"),
        Some(_) => None,
    }
}

fn pages() -> Pages {
    let root = super::root();
    let all = super::files_below(root, ".").into_iter().filter(|path| path.ends_with(".md"));
    all.map(|path| (path.clone(), super::read(&path))).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let pages = pages();
    assert!(pages.len() > 30, "{:?}", pages.keys());
    super::assert_none(&broken_links(&pages, |path| super::root().join(path).exists()));
}

#[test]
fn the_summary_lists_every_page_once() {
    super::assert_none(&differences(&pages(), &super::read("docs/SUMMARY.md")));
}

/// The links of pages have a test of their own.
#[test]
fn the_program_and_the_manifests_name_pages_that_exist() {
    let (pages, root) = (pages(), super::root());
    let files = ["src", "manifests", ".github"].iter().flat_map(|folder| super::files_below(root, folder));
    let files = files.filter(|path| !path.ends_with(".md")).chain(["Makefile".to_owned(), "Dockerfile".to_owned()]);
    let (mut count, mut wrong) = (0, Vec::new());
    for path in files {
        let text = super::read(&path);
        for name in named_pages(&text) {
            count += 1;
            wrong.extend(fault(&pages, name).map(|fault| format!("{path}: {name}: {fault}")));
        }
    }
    assert!(count > 50, "{count}");
    super::assert_none(&wrong);
}

#[test]
fn a_name_of_a_missing_page_is_found() {
    let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let pages = Pages::from([page("docs/a.md", "## One\n"), page("docs/old.md", "This page has moved: [a](a.md).\n")]);
    for (text, expected) in [
        ("see docs/a.md, and docs/a.md#one.", vec![None, None]),
        ("`docs/b.md`", vec![Some("there is no such page")]),
        ("\"docs/a.md#two\"", vec![Some("there is no such heading")]),
        ("(docs/old.md)", vec![Some("the page has moved")]),
        ("https://a.example.com/docs/b.md docs/{name}.md mydocs/b.md", vec![]),
    ] {
        let found: Vec<_> = named_pages(text).map(|name| fault(&pages, name)).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn broken_links_and_missing_pages_are_found() {
    let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let book = Pages::from([
        page("README.md", "[a](docs/a.md#the-rule-of-x_1) [b](docs/b/c.md#rule-1)\n"),
        page(
            "docs/a.md",
            "# The rule: of `x_1`!\n[c](b/c.md#) [r](../README.md) [s](../src) [w](https://a.example.com/#x)\n",
        ),
        page(
            "docs/b/c.md",
            "## [Rule](x.md)\n## Rule\n```\n# code\n[x](y.md)\n```\n[x](#code) [y](../d.md) [z](x.md)\n",
        ),
        page("docs/old.md", "# Old\n\nThis page has moved: [a](a.md).\n"),
    ]);
    let broken = broken_links(&book, |path| path == "src");
    assert_eq!(
        broken,
        [
            "docs/b/c.md: x.md: docs/b/x.md is not there",
            "docs/b/c.md: #code: docs/b/c.md has no heading with this address",
            "docs/b/c.md: ../d.md: docs/d.md is not there",
            "docs/b/c.md: x.md: docs/b/x.md is not there",
        ]
    );
    let summary = "- [A](a.md)\n- [A](a.md)\n- [Old](old.md)\n";
    assert_eq!(
        differences(&book, summary),
        [
            "docs/SUMMARY.md has docs/a.md 2 times, and must have it 1 times",
            "docs/SUMMARY.md has docs/b/c.md 0 times, and must have it 1 times",
            "docs/SUMMARY.md has docs/old.md 1 times, and must have it 0 times",
        ]
    );
}
