//! The two tables that say by which test something is shown: the vectors of the Go program in `docs/testing.md`, and
//! its weaknesses in `docs/compatibility.md`. Both are held against the lists of ids and against the tests.

use std::ops::RangeInclusive;

/// How many vectors of each kind there are: `C1` to `C32`, and so on.
const VECTORS: [(&str, usize); 8] =
    [("C", 32), ("S", 24), ("U", 5), ("A", 53), ("B", 41), ("H", 3), ("T", 3), ("Z", 15)];

/// The vectors of the controllers: `N-01` to `N-22`, and so on. `H1` and `H-01` are two things.
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

const WEAKNESSES: usize = 60;

/// Every id of a vector, as it is written in tests and tables.
pub fn vector_ids() -> Vec<String> {
    let provider = VECTORS.into_iter().map(|(kind, count)| (kind, 1..=count));
    let all = provider.chain(CONTROLLER_VECTORS).chain(PROCESS_VECTORS);
    all.flat_map(|(kind, numbers)| numbers.map(move |number| id(kind, number))).collect()
}

/// The vectors A, those of the controllers and those of the process have two digits.
fn id(kind: &str, number: usize) -> String {
    if kind == "A" || kind.ends_with('-') { format!("{kind}{number:02}") } else { format!("{kind}{number}") }
}

/// Which tests a cell names: `` `path`: `function`, `function`; `path`: … ``.
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

/// The rows of the table below a heading, without its first two lines.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let below = page.lines().skip_while(|line| line.trim() != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with("## "));
    let table = section.filter(|line| line.starts_with('|')).skip(2);
    table.map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// `B1–B10, B16` as single ids.
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

/// Whether the id stands in the text as a word, in any case, outside of comments of whole lines. One with a dash stands
/// in the name of a test as `n_01` or `n01`.
fn mentions(text: &str, id: &str) -> bool {
    let joined = id.replace('-', "");
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        let is_pair = |pair: &[&str]| id.contains('-') && pair.concat().eq_ignore_ascii_case(&joined);
        words.iter().any(|word| word.eq_ignore_ascii_case(&joined)) || words.windows(2).any(is_pair)
    })
}

/// Whether the text has a test of that name.
fn has_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let named = |line: &str| line.contains(&format!("fn {function}("));
    lines.iter().enumerate().filter(|(_, line)| named(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
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

/// What is wrong with the table of vectors.
pub fn vector_problems(page: &str, ids: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = Vec::new();
    for row in rows(page, "## Vectors") {
        let [cell, tests, ..] = row.as_slice() else {
            problems.push(format!("no row of two cells: {row:?}"));
            continue;
        };
        let shown = shown(tests);
        problems.extend(unshown(cell, &shown, read));
        let texts: Vec<String> = shown.files.iter().filter_map(|file| read(file)).collect();
        for id in expand(cell) {
            if !ids.contains(&id) {
                problems.push(format!("{id} is no vector"));
            }
            if !texts.iter().any(|text| mentions(text, &id)) {
                problems.push(format!("{id} is not in {}", shown.files.join(", ")));
            }
            listed.push(id);
        }
    }
    problems.extend(ids.iter().filter(|id| !listed.contains(id)).map(|id| format!("{id} is not in the table")));
    problems
}

/// What is wrong with the table of weaknesses: id, outcome, how, shown by.
pub fn weakness_problems(page: &str, count: usize, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = Vec::new();
    for row in rows(page, "## Weaknesses of the Go program") {
        let [id, outcome, how, tests] = row.as_slice() else {
            problems.push(format!("no row of four cells: {row:?}"));
            continue;
        };
        if how.is_empty() {
            problems.push(format!("{id}: does not say how"));
        }
        match outcome.as_str() {
            "solved" => problems.extend(unshown(id, &shown(tests), read)),
            // What is partly built may name tests as well.
            "kept" | "later" | "nothing to do" if tests.is_empty() => {}
            "kept" | "later" => problems.extend(unshown(id, &shown(tests), read)),
            other => problems.push(format!("{id}: {other:?} is no outcome")),
        }
        listed.push(id.clone());
    }
    for number in 1..=count {
        let id = format!("W{number}");
        let times = listed.iter().filter(|listed| **listed == id).count();
        if times != 1 {
            problems.push(format!("{id} is {times} times in the table"));
        }
    }
    problems
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(super::root().join(path)).ok()
}

#[test]
fn every_vector_is_a_test_that_the_table_names() {
    super::assert_none(&vector_problems(&super::read("docs/testing.md"), &vector_ids(), &read));
    assert_eq!(vector_ids().len(), 176 + 103 + 74);
}

#[test]
fn every_weakness_has_an_outcome_that_is_shown() {
    super::assert_none(&weakness_problems(&super::read("docs/compatibility.md"), WEAKNESSES, &read));
}

#[test]
fn a_wrong_table_is_noticed() {
    let file = "// B3\n#[test]\nfn b1_holds() {}\nfn helper() {}\nconst ROWS: [&str; 2] = [\"A02\", \"B20\"];\n";
    let read = |path: &str| (path == "src/a.rs").then(|| file.to_owned());
    let ids: Vec<String> = ["A02", "B1"].map(str::to_owned).into();
    let table = |row: &str| format!("## Vectors\n\n| ids | test |\n|---|---|\n{row}\n## Next\n| x | y |\n");
    let problems = |row: &str| vector_problems(&table(row), &ids, &read);
    assert_eq!(problems("| A02, B1 | `src/a.rs`: `b1_holds` |"), Vec::<String>::new());
    for (row, problem) in [
        ("| A02 | `src/a.rs`: `b1_holds` |", "B1 is not in the table"),
        ("| A02, B1 | `src/a.rs` |", "A02, B1: names no test"),
        ("| A02, B1 | `src/a.rs`: `helper` |", "A02, B1: src/a.rs has no test helper"),
        ("| A02, B1 | `src/b.rs`: `b1_holds` |", "A02, B1: src/b.rs is not there"),
        ("| A02, B1–B2 | `src/a.rs`: `b1_holds` |", "B2 is no vector"),
        ("| A02, B1–B3 | `src/a.rs`: `b1_holds` |", "B3 is not in src/a.rs"),
    ] {
        let found = problems(row);
        assert!(found.iter().any(|found| found == problem), "{row}: {found:?}");
    }
    let ids: Vec<String> = ["H1", "H-01", "H-02"].map(str::to_owned).into();
    let both = "#[test]\nfn h1_holds() { let rows = [\"H-01: a\"]; }\n#[test]\nfn h_02_holds() {}\n";
    let one = "#[test]\nfn h1_holds() { let rows = [\"H 01\", \"H-02\"]; }\n";
    for (file, row, expected) in [
        (both, "| H1, H-01–H-02 | `src/a.rs`: `h1_holds`, `h_02_holds` |", vec![]),
        (both, "| H-01–H-02 | `src/a.rs`: `h1_holds` |", vec!["H1 is not in the table"]),
        (both, "| H1, H-01–H-03 | `src/a.rs`: `h1_holds` |", vec!["H-03 is no vector", "H-03 is not in src/a.rs"]),
        (one, "| H1, H-01, H-02 | `src/a.rs`: `h1_holds` |", vec![]),
        (
            "#[test]\nfn h_01_holds() { \"H-02\" }",
            "| H1, H-01, H-02 | `src/a.rs`: `h_01_holds` |",
            vec!["H1 is not in src/a.rs"],
        ),
        (
            "#[test]\nfn h1_holds() { \"h01 10\" }",
            "| H1, H-01, H-02 | `src/a.rs`: `h1_holds` |",
            vec!["H-02 is not in src/a.rs"],
        ),
    ] {
        let read = |path: &str| (path == "src/a.rs").then(|| file.to_owned());
        assert_eq!(vector_problems(&table(row), &ids, &read), expected, "{row}");
    }
    let table = |row: &str| {
        format!("## Weaknesses of the Go program\n| id | outcome | how | shown by |\n|---|---|---|---|\n{row}\n")
    };
    let problems = |row: &str| weakness_problems(&table(row), 1, &read);
    assert_eq!(problems("| W1 | solved | so | `src/a.rs`: `b1_holds` |"), Vec::<String>::new());
    assert_eq!(problems("| W1 | kept | because | |"), Vec::<String>::new());
    for row in [
        "",
        "| W1 | solved | so | |",
        "| W1 | solved | so | `src/a.rs`: `gone` |",
        "| W1 | perhaps | so | |",
        "| W1 | kept |  | |",
        "| W1 | kept | so | |\n| W1 | kept | so | |",
    ] {
        assert!(!problems(row).is_empty(), "{row}");
    }
}
