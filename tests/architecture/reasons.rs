//! The reasons of the product, their page and the code. Each reason is declared once, explained once and used, and its
//! text occurs in its declaration only.

use crate::source::{Source, is_word};

/// The only file that creates a reason from a text.
const MACRO: &str = "src/cloud/reason.rs";

/// Parts of a section, in this order.
const PARTS: [&str; 3] = ["Means", "Check", "Fix"];

/// Returns the problems of the page: a reason without section, a section without reason, a missing or empty part, a
/// check without a command.
pub fn page_problems(page: &str, words: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let sections = sections(page);
    for (heading, text) in &sections {
        if !words.iter().any(|word| word == heading) {
            problems.push(format!("{heading} is no reason"));
        }
        problems.extend(part_problems(text).into_iter().map(|problem| format!("{heading}: {problem}")));
    }
    for word in words {
        let times = sections.iter().filter(|(heading, _)| word == heading).count();
        if times != 1 {
            problems.push(format!("{word} has {times} sections"));
        }
    }
    problems
}

/// The parties in the column `who acts` of the table.
const ACTORS: [&str; 4] = ["cluster", "vSphere", "NSX", "no one"];

/// The values in the column `urgent` of the table.
const URGENCIES: [&str; 3] = ["yes", "new", "no"];

/// Returns the problems of the table at the beginning of the page: a reason with no row or several, a row without
/// reason, a wrong link, an empty meaning, an unknown party or urgency.
pub fn table_problems(page: &str, words: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    let head = page.split("\n# ").next().unwrap_or_default();
    for line in head.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [link, meaning, actors, urgency] = cells.as_slice() else {
            problems.push(format!("{line}: expected four columns"));
            continue;
        };
        let word = link.trim_start_matches('[').split(']').next().unwrap_or_default();
        if *link != format!("[{word}](#{})", word.to_lowercase()) {
            problems.push(format!("{word}: the link is {link}"));
        }
        if meaning.len() < 10 {
            problems.push(format!("{word}: the row says nothing"));
        }
        let is_known = actors.split(", ").all(|actor| ACTORS.contains(&actor)) && URGENCIES.contains(urgency);
        if !is_known {
            problems.push(format!("{word}: expected {ACTORS:?} and {URGENCIES:?}, found {actors} and {urgency}"));
        }
        rows.push(word);
    }
    for row in rows.iter().filter(|row| !words.iter().any(|word| word == *row)) {
        problems.push(format!("the row {row} is no reason"));
    }
    for word in words {
        let times = rows.iter().filter(|row| *row == word).count();
        if times != 1 {
            problems.push(format!("{word} has {times} rows"));
        }
    }
    problems
}

/// Returns heading and text of each section.
fn sections(page: &str) -> Vec<(&str, &str)> {
    let all = page.split("\n## ").skip(1);
    all.map(|section| section.split_once('\n').unwrap_or((section, "")))
        .map(|(word, text)| (word.trim(), text))
        .collect()
}

fn part_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rest = text;
    for (at, part) in PARTS.iter().enumerate() {
        let Some((_, after)) = rest.split_once(&format!("\n**{part}.** ")) else {
            problems.push(format!("does not say {part}, or not in its place"));
            continue;
        };
        let next = PARTS.get(at + 1).map_or(String::new(), |next| format!("\n**{next}.** "));
        let said = if next.is_empty() { after } else { after.split_once(&next).map_or(after, |(said, _)| said) };
        if said.trim().len() < 20 {
            problems.push(format!("says nothing under {part}"));
        }
        if *part == "Check" && !["govc ", "kubectl ", "curl "].iter().any(|tool| said.contains(&format!("`{tool}"))) {
            problems.push("the check has no line of govc, kubectl or curl".to_owned());
        }
        rest = after;
    }
    problems
}

/// Returns the reasons that product code declares with `reasons!`.
pub fn declared(source: &Source) -> Vec<String> {
    let tokens: Vec<_> = source.tokens().iter().filter(|token| !token.is_test).map(|token| &*token.text).collect();
    let lists = tokens.split(|token| *token == "reasons").skip(1).filter_map(|rest| rest.strip_prefix(&["!", "{"]));
    let words = lists.flat_map(|list| list.iter().take_while(|token| **token != "}").filter(|token| is_word(token)));
    words.map(|word| (*word).to_owned()).collect()
}

/// Returns the reasons of all sources, sorted.
pub fn words(sources: &[Source]) -> Vec<String> {
    let mut words: Vec<_> = sources.iter().flat_map(declared).collect();
    words.sort();
    words
}

/// Returns duplicate reasons, and reasons in another form than those of Kubernetes conditions.
pub fn word_problems(words: &[String]) -> Vec<String> {
    let twice = words.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("{} is declared twice", pair[0]));
    let is_reason = |word: &str| {
        word.starts_with(|char: char| char.is_ascii_uppercase())
            && word.chars().all(|char| char.is_ascii_alphanumeric())
            && word.len() <= 64
    };
    let odd = words.iter().filter(|word| !is_reason(word)).map(|word| format!("{word} is not in CamelCase"));
    twice.chain(odd).collect()
}

/// Returns reasons that are created without `reasons!`.
pub fn made(source: &Source) -> Vec<String> {
    let texts = source.tokens().windows(3).filter(|tokens| {
        ["Reason", "::", "declare"].iter().zip(*tokens).all(|(text, token)| token.text == *text) && source.path != MACRO
    });
    texts.map(|tokens| format!("{}:{}: declare it with reasons!", source.path, tokens[0].line)).collect()
}

/// Returns the reasons that product code uses. A comparison or a match does not count.
pub fn told(source: &Source) -> Vec<String> {
    let tokens = source.tokens();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let names = (2..tokens.len()).filter(|&at| text(at - 1) == "::" && text(at - 2) == "reason");
    let is_pattern = |at: usize| {
        let starts = |start: usize| start < 2 || text(start - 1) != "::";
        let start = (0..=at).rev().step_by(2).find(|start| starts(*start)).unwrap_or(at);
        let before = if start < 2 { ("", "") } else { (text(start - 2), text(start - 1)) };
        let after = (text(at + 1), text(at + 2));
        after == ("=", ">") || after.0 == "|" || matches!(before, ("=" | "!", "="))
    };
    names.filter(|&at| !tokens[at].is_test && !is_pattern(at)).map(|at| text(at).to_owned()).collect()
}

/// Returns reasons that product code writes as text in place of the constant. Wire clients are excluded, because they
/// do not use reasons. Faults of vCenter have separate names.
pub fn spelt(source: &Source, words: &[String]) -> Vec<String> {
    if source.path.starts_with("src/clients/") {
        return Vec::new();
    }
    let literals = source.literals().into_iter().filter(|literal| !literal.is_test);
    literals
        .filter(|literal| words.contains(&literal.text))
        .map(|literal| format!("{}:{}: {:?} is reason::{}", source.path, literal.line, literal.text, literal.text))
        .collect()
}

fn all_words() -> Vec<String> {
    words(&super::sources(&["src"]))
}

#[test]
fn every_reason_is_declared_once_and_explained() {
    let words = all_words();
    super::assert_none(&word_problems(&words));
    let page = super::read("docs/reasons.md");
    super::assert_none(&page_problems(&page, &words));
    super::assert_none(&table_problems(&page, &words));
    assert!(words.len() > 30, "the page is held against the declarations, and found only {} words", words.len());
}

#[test]
fn reasons_are_made_by_the_macro_only() {
    super::hold(&["src"], made);
}

#[test]
fn every_reason_is_told_by_product_code() {
    let told: Vec<String> = super::sources(&["src"]).iter().flat_map(told).collect();
    let words = all_words();
    let missing: Vec<String> = words
        .iter()
        .filter(|word| !told.contains(word))
        .map(|word| format!("nothing tells {word}: use it or remove it"))
        .collect();
    super::assert_none(&missing);
}

#[test]
fn reasons_are_named_and_not_spelt() {
    let words = all_words();
    super::hold(&["src"], |source| spelt(source, &words));
}

#[test]
fn a_wrong_page_is_noticed() {
    let section = |word: &str, check: &str| {
        format!(
            "\n## {word}\n\n**Means.** The search found no VM.\n\n**Check.** {check}\n\n**Fix.** Give \
             the account the role Read-only.\n"
        )
    };
    let good = section("VMNotFound", "It exists: `govc find / -type m -name NAME`.");
    let problems = |page: &str| page_problems(&format!("# Reasons\n\nHead.\n{page}"), &["VMNotFound".to_owned()]);
    assert_eq!(problems(&good), Vec::<String>::new());
    let swapped =
        good.replace("**Means.**", "**Other.**").replace("**Fix.**", "**Means.**").replace("**Other.**", "**Fix.**");
    for (page, problem) in [
        (String::new(), "VMNotFound has 0 sections"),
        (format!("{good}{good}"), "VMNotFound has 2 sections"),
        (format!("{good}{}", good.replace("VMNotFound", "Gone")), "Gone is no reason"),
        (good.replace("**Fix.**", ""), "VMNotFound: does not say Fix, or not in its place"),
        (good.replace("Give the account the role Read-only.", ""), "VMNotFound: says nothing under Fix"),
        (
            section("VMNotFound", "Look at it in the vSphere Client."),
            "VMNotFound: the check has no line of govc, kubectl or curl",
        ),
        (swapped, "VMNotFound: does not say Check, or not in its place"),
    ] {
        let found = problems(&page);
        assert!(found.iter().any(|found| found == problem), "{page}: {found:?}");
    }
}

#[test]
fn a_wrong_row_of_the_table_is_noticed() {
    let words = ["VMNotFound".to_owned()];
    let problems = |rows: &str| {
        let sections = "# Nodes\n\n| [Other](#other) | a table of a section | no one | no |\n";
        table_problems(&format!("# Reasons\n\n| reason | meaning |\n|---|---|\n{rows}\n{sections}"), &words)
    };
    let good = "| [VMNotFound](#vmnotfound) | no VM has the UUID | vSphere, cluster | new |\n";
    assert_eq!(problems(&format!("| **Topic** | | | |\n{good}")), Vec::<String>::new());
    for (rows, problem) in [
        (String::new(), "VMNotFound has 0 rows"),
        (good.repeat(2), "VMNotFound has 2 rows"),
        (format!("{good}{}", good.replace("VMNotFound", "Gone")), "the row Gone is no reason"),
        (good.replace("(#vmnotfound)", "(#gone)"), "VMNotFound: the link is [VMNotFound](#gone)"),
        (good.replace("no VM has the UUID", ""), "VMNotFound: the row says nothing"),
        (good.replace(" | new", ""), "VMNotFound has 0 rows"),
    ] {
        let found = problems(&rows);
        assert!(found.iter().any(|found| found == problem), "{rows}: {found:?}");
    }
    for (present, wrong) in [("vSphere", "somebody"), ("vSphere, cluster", ""), ("new", "later")] {
        let found = problems(&good.replace(present, wrong));
        assert!(found.iter().any(|found| found.starts_with("VMNotFound: expected")), "{wrong}: {found:?}");
    }
}

#[test]
fn only_a_reason_that_is_given_counts_as_told() {
    for (path, text, expected) in [
        ("src/a.rs", "fn f() -> Unknown { Unknown::new(reason::Panic, m) }", vec!["Panic"]),
        ("src/a.rs", "fn f() { crate::cloud::reason::Panic }", vec!["Panic"]),
        ("src/a.rs", "fn f() { match x { 1 => reason::Panic, _ => reason::NoZoneTags } }", vec!["Panic", "NoZoneTags"]),
        (
            "src/a.rs",
            "fn f() { match r { reason::Panic => 1, reason::NoZoneTags | crate::cloud::reason::X => 2 } }",
            vec![],
        ),
        ("src/a.rs", "fn f() { r == reason::Panic || r != crate::cloud::reason::NoZoneTags }", vec![]),
        ("src/a.rs", "// reason::Panic\n#[cfg(test)]\nmod tests { fn f() { reason::Panic } }", vec![]),
    ] {
        assert_eq!(told(&Source::new(path, text)), expected, "{text}");
    }
}

#[test]
fn declarations_are_found_in_all_files_and_a_wrong_one_is_noticed() {
    let source = |text: &str| Source::new("src/a.rs", text);
    let list = source(
        "macro_rules! reasons { () => {} }\nreasons! {\n    /// Says, a.\n    Panic,\n    X,\n}\nfn f() { g(A, b) }",
    );
    assert_eq!(declared(&list), ["Panic", "X"]);
    assert_eq!(declared(&source("#[cfg(test)]\nmod tests { reasons! { Panic, } }")), Vec::<String>::new());
    let problems = word_problems(&words(&[list, source("reasons! { X, vm_gone, }")]));
    assert_eq!(problems, ["X is declared twice", "vm_gone is not in CamelCase"]);
    super::notices(
        made,
        &[
            ("src/a.rs", "const A: Reason = crate::cloud::Reason::declare(\"A\");", true),
            ("src/a.rs", "reasons! { A, }", false),
            (MACRO, "Reason::declare(stringify!($word))", false),
        ],
    );
}

#[test]
fn a_reason_that_is_spelt_is_noticed() {
    super::notices(
        |source| spelt(source, &["NoAddresses".to_owned()]),
        &[
            ("src/a.rs", "fn f() { recorder.event(x, \"NoAddresses\", m) }", true),
            ("src/a.rs", "fn f() { recorder.event(x, r#\"NoAddresses\"#, m) }", true),
            ("src/a.rs", "fn f() { recorder.event(x, reason::NoAddresses.as_str(), m) }", false),
            ("src/a.rs", "fn f() { log(\"NoAddresses yet\") } // \"NoAddresses\"", false),
            ("src/a.rs", "#[cfg(test)]\nmod tests { const A: &str = \"NoAddresses\"; }", false),
            ("src/clients/vim/fault.rs", "const A: &str = \"NoAddresses\";", false),
        ],
    );
}
