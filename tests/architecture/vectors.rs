//! The tests of each vector: the table of the Go program's vectors in `docs/testing.md`, generated from marks above the
//! tests, and the tables of weaknesses in `docs/compatibility.md`, whose tests must exist.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Number of vectors of each kind: `C1` to `C32`, and so on.
const VECTORS: [(&str, usize); 8] =
    [("C", 32), ("S", 24), ("U", 5), ("A", 53), ("B", 41), ("H", 3), ("T", 3), ("Z", 15)];

/// The vectors of the controllers: `N-01` to `N-22`, and so on. `H1` and `H-01` are different ids.
const CONTROLLER_VECTORS: [(&str, RangeInclusive<usize>); 13] = [
    ("N-", 1..=22),
    ("N-", 30..=32),
    ("N-", 40..=45),
    ("N-", 50..=51),
    ("N-", 60..=65),
    ("N-", 70..=73),
    ("H-", 1..=14),
    ("H-", 20..=26),
    ("H-", 30..=33),
    ("H-", 40..=45),
    ("L-", 1..=12),
    ("L-", 20..=29),
    ("L-", 40..=46),
];

/// The vectors of the controllers for Services and routes.
const NETWORK_VECTORS: [(&str, RangeInclusive<usize>); 16] = [
    ("R-", 1..=14),
    ("R-", 20..=36),
    ("R-", 50..=54),
    ("R-", 60..=67),
    ("S-", 1..=8),
    ("S-", 10..=13),
    ("S-", 20..=33),
    ("S-", 40..=46),
    ("S-", 50..=59),
    ("S-", 60..=64),
    ("S-", 70..=72),
    ("S-", 80..=91),
    ("S-", 100..=105),
    ("S-", 110..=119),
    ("S-", 120..=124),
    ("S-", 130..=140),
];

/// The vectors of the process and of the leader election: `O-01`, `E-01` to `E-07`, and so on.
const PROCESS_VECTORS: [(&str, RangeInclusive<usize>); 12] = [
    ("O-", 1..=1),
    ("O-", 10..=17),
    ("O-", 20..=27),
    ("O-", 30..=36),
    ("O-", 40..=44),
    ("O-", 50..=59),
    ("O-", 60..=64),
    ("O-", 70..=76),
    ("O-", 80..=87),
    ("E-", 1..=7),
    ("E-", 10..=14),
    ("E-", 20..=22),
];

/// The vectors of the sections about NSX, of its routes, and of its requests.
const NSX_VECTORS: [(&str, RangeInclusive<usize>); 7] = [
    ("NX-C-", 1..=17),
    ("LB-C-", 1..=14),
    ("RT-C-", 1..=3),
    ("TAG-", 1..=7),
    ("RT-", 1..=9),
    ("W-", 1..=9),
    ("SEQ-", 1..=16),
];

/// Kinds of ids, each with its numbers.
type Ids = &'static [(&'static str, RangeInclusive<usize>)];

/// The tables of weaknesses: their headings and ids. Each source has a separate table, because the same letter has
/// different meanings in different sources.
const WEAKNESSES: [(&str, Ids); 3] = [
    ("## Weaknesses of the Go program", &[("W", 1..=60)]),
    ("## Weaknesses of the framework", &[("W-", 40..=48), ("W-", 60..=74)]),
    ("## Weaknesses of the NSX part", &[("L-", 1..=34), ("R-", 1..=13)]),
];

/// Returns every id of a vector, in the form of tests and tables.
pub fn vector_ids() -> Vec<String> {
    let provider = VECTORS.into_iter().map(|(kind, count)| (kind, 1..=count));
    let all = provider.chain(CONTROLLER_VECTORS).chain(NETWORK_VECTORS).chain(PROCESS_VECTORS).chain(NSX_VECTORS);
    all.flat_map(|(kind, numbers)| numbers.map(move |number| id(kind, number))).collect()
}

/// Formats an id. The vectors A, those of the controllers and those of the process have two digits.
fn id(kind: &str, number: usize) -> String {
    if kind == "A" || kind.ends_with('-') { format!("{kind}{number:02}") } else { format!("{kind}{number}") }
}

/// The tests in a cell: `` `path`: `function`, `function`; `path`: … ``.
struct Shown {
    files: Vec<String>,
    /// File and function.
    functions: Vec<(String, String)>,
}

fn shown(cell: &str) -> Shown {
    let (mut files, mut functions) = (Vec::<String>::new(), Vec::new());
    for word in cell.split('`').skip(1).step_by(2) {
        if word.contains('/') {
            files.push(word.to_owned());
        } else if let Some(file) = files.last() {
            functions.push((file.clone(), word.to_owned()));
        }
    }
    Shown { files, functions }
}

/// Returns the rows of the table below a heading, without its first two lines.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let below = page.lines().skip_while(|line| line.trim() != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with("## "));
    let table = section.filter(|line| line.starts_with('|')).skip(2);
    table.map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Expands `B1–B10, B16` to single ids.
fn expand(cell: &str) -> Vec<String> {
    let range = |part: &str| {
        let Some((from, to)) = part.split_once('–') else { return vec![part.to_owned()] };
        let number = |text: &str| text.trim_start_matches(|c: char| !c.is_numeric()).parse::<usize>().ok();
        let kind: String = from.chars().take_while(|c| !c.is_numeric()).collect();
        match (number(from), number(to)) {
            (Some(from), Some(to)) => (from..=to).map(|number| id(&kind, number)).collect(),
            _ => vec![part.to_owned()],
        }
    };
    cell.split(", ").flat_map(|part| range(part.trim())).collect()
}

/// Whether the text contains the id as a word, in any case, outside of comment lines. Names of tests contain an id with
/// dashes as `n_01` or `n01`, `nx_c_01` or `nxc01`.
fn mentions(text: &str, id: &str) -> bool {
    let (joined, parts) = (id.replace('-', ""), id.split('-').count());
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        let is_it = |words: &[&str]| words.concat().eq_ignore_ascii_case(&joined);
        words.windows(1).any(is_it) || words.windows(parts).any(is_it)
    })
}

fn is_test(line: &str) -> bool {
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}

/// Whether the text has a test with that name.
fn has_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let named = |line: &str| line.contains(&format!("fn {function}("));
    lines.iter().enumerate().filter(|(_, line)| named(line)).any(|(at, _)| {
        let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.any(|line| is_test(line))
    })
}

fn unshown(what: &str, shown: &Shown, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    if shown.functions.is_empty() {
        problems.push(format!("{what}: names no test"));
    }
    for file in shown.files.iter().filter(|file| read(file).is_none()) {
        problems.push(format!("{what}: {file} is not there"));
    }
    for (file, function) in &shown.functions {
        if read(file).is_some_and(|text| !has_test(&text, function)) {
            problems.push(format!("{what}: {file} has no test {function}"));
        }
    }
    problems
}

/// Prefix of a mark above a test, which lists the vectors of the test.
const MARK: &str = "// vectors: ";

/// Returns the marks of a file: the ids, and the test whose attribute is in the next line.
fn marks(text: &str) -> Vec<(&str, Option<&str>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let test = |at: usize| {
        lines.get(at).filter(|line| is_test(line))?;
        let name = |line: &&&str| line.starts_with("fn ") || line.starts_with("async fn ");
        lines[at..].iter().find(name)?.split("fn ").nth(1)?.split('(').next()
    };
    let marked = lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.strip_prefix(MARK)?)));
    marked.map(|(at, ids)| (ids, test(at + 1))).collect()
}

/// Returns the table of vectors from the marks of all files, and the problems of the marks. The code of a file, or a
/// golden file that it includes, must contain each marked id.
fn vector_table(files: &[(String, String)], golden: &[(String, String)], ids: &[String]) -> (String, Vec<String>) {
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for (path, text) in files {
        let includes = |golden: &str| text.contains("include_str!(") && text.contains(&format!("{golden}\""));
        let included: String =
            golden.iter().filter(|(path, _)| includes(path)).map(|(_, text)| text.as_str()).collect();
        for (cell, test) in marks(text) {
            let Some(test) = test else {
                problems.push(format!("{path}: the mark {cell} is not above a test"));
                continue;
            };
            for id in expand(cell) {
                match ids.iter().position(|known| *known == id) {
                    None => problems.push(format!("{path}: {id} is no vector")),
                    Some(_) if !mentions(text, &id) && !mentions(&included, &id) => {
                        problems.push(format!("{path}: {id} is marked at {test}, and no code names it"));
                    }
                    Some(at) => rows.push((at, path, test, cell)),
                }
            }
        }
    }
    let is_marked = |at: &usize| rows.iter().any(|row| row.0 == *at);
    problems.extend((0..ids.len()).filter(|at| !is_marked(at)).map(|at| format!("no test is marked with {}", ids[at])));
    // The position of a test is that of its first vector.
    rows.sort();
    let mut seen = BTreeSet::new();
    rows.retain(|(_, path, test, _)| seen.insert((*path, *test)));
    let row = |(_, path, test, cell): &(usize, &String, &str, &str)| format!("| {cell} | `{path}`: `{test}` |\n");
    (rows.iter().map(row).collect(), problems)
}

/// Returns the problems of the table of weaknesses below `heading`: id, outcome, how, shown by.
pub fn weakness_problems(
    page: &str,
    heading: &str,
    ids: &[String],
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = Vec::new();
    for row in rows(page, heading) {
        let [id, outcome, how, tests] = row.as_slice() else {
            problems.push(format!("no row of four cells: {row:?}"));
            continue;
        };
        if how.is_empty() {
            problems.push(format!("{id}: does not say how"));
        }
        match outcome.as_str() {
            "solved" => problems.extend(unshown(id, &shown(tests), read)),
            // A partial solution may have tests as well.
            "kept" | "later" | "nothing to do" if tests.is_empty() => {}
            "kept" | "later" => problems.extend(unshown(id, &shown(tests), read)),
            other => problems.push(format!("{id}: {other:?} is no outcome")),
        }
        listed.push(id.clone());
    }
    for id in ids {
        let times = listed.iter().filter(|listed| *listed == id).count();
        if times != 1 {
            problems.push(format!("{id} is {times} times in the table"));
        }
    }
    let unknown = listed.iter().filter(|listed| !ids.contains(listed));
    problems.extend(unknown.map(|id| format!("{id} is no weakness of this source")));
    problems
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(super::root().join(path)).ok()
}

#[test]
fn every_vector_is_marked_at_a_test_and_the_table_says_where() {
    const PAGE: &str = "docs/testing.md";
    let files = super::sources(&["src", "tests"]).into_iter().map(|source| (source.path, source.text));
    let golden = super::files_below(super::root(), "tests/golden/vectors")
        .into_iter()
        .map(|path| (path.clone(), super::read(&path)))
        .collect::<Vec<_>>();
    let (table, problems) = vector_table(&files.collect::<Vec<_>>(), &golden, &vector_ids());
    super::assert_none(&problems);
    let page = super::read(PAGE);
    let (head, rest) = page.split_once("<!-- vectors -->\n").expect("the page has a mark before the table");
    let (_, tail) = rest.split_once("<!-- end of vectors -->\n").expect("the page has a mark after the table");
    let table = format!("<!-- vectors -->\n| ids | test |\n|---|---|\n{table}<!-- end of vectors -->\n");
    super::assert_golden(PAGE, &[head, &table, tail].concat());
    assert_eq!(vector_ids().len(), 176 + 103 + 139 + 74 + 75);
}

#[test]
fn every_weakness_has_an_outcome_that_is_shown() {
    let page = super::read("docs/compatibility.md");
    for (heading, ids) in WEAKNESSES {
        let ids = ids.iter().flat_map(|(kind, numbers)| numbers.clone().map(move |number| id(kind, number)));
        let ids: Vec<String> = ids.collect();
        super::assert_none(&weakness_problems(&page, heading, &ids, &read));
    }
}

#[test]
fn a_wrong_mark_is_noticed() {
    let ids: Vec<String> = ["A02", "B1", "B2", "H1", "H-01", "NX-C-01"].map(str::to_owned).into();
    let test = |mark: &str, body: &str| format!("/// Says.\n// vectors: {mark}\n#[test]\nfn holds() {{ {body} }}\n");
    let golden = [("golden/a.txt".to_owned(), "A02 B2".to_owned())];
    let table = |text: &str| vector_table(&[("src/a.rs".to_owned(), text.to_owned())], &golden, &ids);
    let all = "\"B1: x\", \"h1\", f(h_01), f(nx_c_01), include_str!(\"../golden/a.txt\")";
    let rest =
        "    // vectors: B2, B1\n    #[tokio::test(start_paused = true)]\n    #[x]\n    async fn b1_is() { B2 }\n";
    let (rows, problems) = table(&(test("A02, H1, H-01, NX-C-01", all) + rest));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(rows, "| A02, H1, H-01, NX-C-01 | `src/a.rs`: `holds` |\n| B2, B1 | `src/a.rs`: `b1_is` |\n");
    for (text, problem) in [
        (test("A02, B1–B2, H1", all), "no test is marked with H-01"),
        (test("B1–B3", all), "src/a.rs: B3 is no vector"),
        (test("A02", "\"golden/b.txt\""), "src/a.rs: A02 is marked at holds, and no code names it"),
        (test("B1", "\n// B1\n"), "src/a.rs: B1 is marked at holds, and no code names it"),
        (test("H-01", "H1, h02 01"), "src/a.rs: H-01 is marked at holds, and no code names it"),
        (test("NX-C-01", "c_01, nx_c_02, nx_01"), "src/a.rs: NX-C-01 is marked at holds, and no code names it"),
        (test("H1", "H-01"), "src/a.rs: H1 is marked at holds, and no code names it"),
        ("// vectors: A02\nfn helper() {}".to_owned(), "src/a.rs: the mark A02 is not above a test"),
        ("#[test]\n// vectors: A02\nfn f() {}".to_owned(), "src/a.rs: the mark A02 is not above a test"),
    ] {
        let (_, problems) = table(&text);
        assert!(problems.iter().any(|found| found == problem), "{text}: {problems:?}");
    }
}

#[test]
fn a_wrong_table_is_noticed() {
    let file = "#[test]\nfn b1_holds() {}\nfn helper() {}\n";
    let read = |path: &str| (path == "src/a.rs").then(|| file.to_owned());
    let table = |row: &str| {
        format!("## Weaknesses of the Go program\n| id | outcome | how | shown by |\n|---|---|---|---|\n{row}\n")
    };
    let ids = ["W1".to_owned()];
    let problems = |row: &str| weakness_problems(&table(row), "## Weaknesses of the Go program", &ids, &read);
    assert_eq!(problems("| W1 | solved | so | `src/a.rs`: `b1_holds` |"), Vec::<String>::new());
    assert_eq!(problems("| W1 | kept | because | |"), Vec::<String>::new());
    for row in [
        "",
        "| W1 | solved | so | |",
        "| W1 | solved | so | `src/a.rs`: `gone` |",
        "| W1 | solved | so | `src/a.rs`: `helper` |",
        "| W1 | solved | so | `src/b.rs`: `b1_holds` |",
        "| W1 | perhaps | so | |",
        "| W1 | kept |  | |",
        "| W1 | kept | so | |\n| W1 | kept | so | |",
        "| W1 | kept | so | |\n| W2 | kept | so | |",
    ] {
        assert!(!problems(row).is_empty(), "{row}");
    }
}
