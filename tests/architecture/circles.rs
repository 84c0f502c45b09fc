//! Circular imports between the files of `src`, compared with those that `docs/ARCHITECTURE.md` allows.
//!
//! A file depends on the files of the modules in its paths and its `use` declarations. Test code does not count. A
//! module depends on the files in its folder, but a file in a folder does not depend on the modules around it: `a/b.rs`
//! may use a type of `a.rs`. It is in a circle if it uses a file outside of `a/` that needs `a.rs`.

use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns the dependencies of each file.
fn edges(sources: &[Source]) -> Edges<'_> {
    let files: BTreeMap<_, _> = sources.iter().map(|source| (source.module(), source.path.as_str())).collect();
    let of = |source: &Source| {
        let here = source.module();
        let paths = source.paths().into_iter().filter(|named| !named.is_test);
        let modules = paths.filter_map(|named| {
            let is_absolute = named.segments[0] == "crate";
            let path =
                if is_absolute { named.segments[1..].to_vec() } else { [here.as_slice(), &named.segments].concat() };
            (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|module| files.contains_key(module))
        });
        modules.filter(|module| !here.starts_with(module)).map(|module| files[&module]).collect()
    };
    sources.iter().map(|source| (source.path.as_str(), of(source))).collect()
}

/// Returns the circles. In a circle every file depends on every other file, directly or indirectly.
pub fn circles(sources: &[Source]) -> BTreeSet<BTreeSet<&str>> {
    let edges = edges(sources);
    let reach: Edges<'_> = edges.keys().map(|file| (*file, reachable(&edges, file))).collect();
    let around = |file: &&str| reach[file].iter().copied().filter(|other| reach[other].contains(file)).collect();
    reach.keys().map(around).filter(|circle: &BTreeSet<_>| !circle.is_empty()).collect()
}

fn reachable<'a>(edges: &Edges<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(edges[file].iter().filter(|next| found.insert(**next)));
    }
    found
}

/// Returns the differences between the circles and the table below `## Import circles`. The table has files in
/// backticks, then the reason.
fn differences(page: &str, sources: &[Source]) -> Vec<String> {
    let section =
        page.split("\n## Import circles\n").nth(1).unwrap_or_default().split("\n## ").next().unwrap_or_default();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.trim_matches('|').split_once(" | "));
    let rows: Vec<_> =
        rows.map(|(files, reason)| (files.split('`').skip(1).step_by(2).collect(), reason.trim())).collect();
    let circles = circles(sources);
    let is_listed = |circle: &BTreeSet<&str>| rows.iter().any(|(files, _)| files == circle);
    let new = circles.iter().filter(|circle| !is_listed(circle)).map(|circle| format!("not in the table: {circle:?}"));
    let gone =
        rows.iter().filter(|(files, _)| !circles.contains(files)).map(|(files, _)| format!("no circle: {files:?}"));
    let bare = rows.iter().filter(|(_, reason)| reason.len() < 20).map(|(files, _)| format!("no reason: {files:?}"));
    new.chain(gone).chain(bare).collect()
}

#[test]
fn import_circles_are_those_that_the_architecture_page_names() {
    super::assert_none(&differences(&super::read("docs/ARCHITECTURE.md"), &super::product()));
}

#[test]
fn a_circle_that_is_new_or_gone_is_noticed() {
    let sources = |edges: &[(&str, &str)]| -> Vec<Source> {
        edges.iter().map(|(path, text)| Source::new(&format!("src/{path}.rs"), text)).collect()
    };
    let table =
        |row: &str| format!("# A\n## Import circles\n\n| files | reason |\n|---|---|\n{row}\n## B\n| `x` | y |\n");
    let reason = "to be opened some day";
    let pair =
        sources(&[("a", "use crate::b::B;"), ("b", "mod tests; fn f() { super::a::f() }"), ("c", "use crate::a;")]);
    assert_eq!(differences(&table(&format!("| `src/b.rs`, `src/a.rs` | {reason} |")), &pair), Vec::<String>::new());
    assert_eq!(differences(&table(""), &pair), [r#"not in the table: {"src/a.rs", "src/b.rs"}"#]);
    assert_eq!(
        differences(&table("| `src/a.rs`, `src/b.rs` | so |"), &pair),
        [r#"no reason: {"src/a.rs", "src/b.rs"}"#]
    );
    for (edges, expected) in [
        // A module and its folder are no circle. A path through another module makes a circle.
        (&[("a", "mod x; use x::X;"), ("a/x", "use super::A;")][..], 0),
        (&[("a", "mod x; use x::X;"), ("a/x", "use crate::b;"), ("b", "use crate::a::A;")], 3),
        (&[("a", "use crate::b;"), ("b", "#[cfg(test)]\nmod tests { use crate::a; }")], 0),
        (&[("a", "use crate::{b, c};"), ("b", "use crate::c;"), ("c", "use crate::b::B;")], 2),
    ] {
        let sources = sources(edges);
        assert_eq!(circles(&sources).first().map_or(0, BTreeSet::len), expected, "{edges:?}");
    }
    assert_eq!(
        differences(&table(&format!("| `src/a.rs` | {reason} |")), &sources(&[("a", "")])),
        [r#"no circle: {"src/a.rs"}"#]
    );
}
