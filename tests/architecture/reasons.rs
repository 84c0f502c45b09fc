//! The one list of reasons, its page and the code: each reason is explained once and really told, and no word of the
//! list is spelt anywhere else.

use crate::source::Source;

/// The file with the list.
const LIST: &str = "src/cloud/reason.rs";

/// What a section says, in this order.
const PARTS: [&str; 3] = ["Means", "Check", "Mend"];

/// What is wrong with the page: a word without its section, a section without its word, a part that is missing or says
/// nothing, a check without a command.
pub fn page_problems(page: &str, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let sections = sections(page);
    for (heading, text) in &sections {
        if !words.contains(heading) {
            problems.push(format!("{heading} is no reason"));
        }
        problems.extend(part_problems(text).into_iter().map(|problem| format!("{heading}: {problem}")));
    }
    for word in words {
        let times = sections.iter().filter(|(heading, _)| heading == word).count();
        if times != 1 {
            problems.push(format!("{word} has {times} sections"));
        }
    }
    problems
}

/// Heading and text of each section.
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
        if *part == "Check" && !["govc ", "kubectl "].iter().any(|tool| said.contains(&format!("`{tool}"))) {
            problems.push("the check has no line of govc or kubectl".to_owned());
        }
        rest = after;
    }
    problems
}

/// The words of the list that product code gives as a reason. Comparing with a word, or matching it, is not giving it.
pub fn told(source: &Source) -> Vec<String> {
    if source.path == LIST {
        return Vec::new();
    }
    let tokens = source.tokens();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let names = (2..tokens.len()).filter(|&at| text(at - 1) == "::" && matches!(text(at - 2), "Reason" | "reason"));
    let is_pattern = |at: usize| {
        let starts = |start: usize| start < 2 || text(start - 1) != "::";
        let start = (0..=at).rev().step_by(2).find(|start| starts(*start)).unwrap_or(at);
        let before = if start < 2 { ("", "") } else { (text(start - 2), text(start - 1)) };
        let after = (text(at + 1), text(at + 2));
        after == ("=", ">") || after.0 == "|" || matches!(before, ("=" | "!", "="))
    };
    names.filter(|&at| !tokens[at].is_test && !is_pattern(at)).map(|at| text(at).to_owned()).collect()
}

/// Words of the list that product code spells as text instead of naming them. Wire clients do not know the list; faults
/// of vCenter have names of their own.
pub fn spelt(source: &Source, words: &[&str]) -> Vec<String> {
    if source.path == LIST || source.path.starts_with("src/clients/") {
        return Vec::new();
    }
    let literals = source.literals().into_iter().filter(|literal| !literal.is_test);
    literals
        .filter(|literal| words.contains(&literal.text.as_str()))
        .map(|literal| format!("{}:{}: {:?} is Reason::{}", source.path, literal.line, literal.text, literal.text))
        .collect()
}

fn words() -> Vec<&'static str> {
    ccm::cloud::Reason::ALL.iter().map(|reason| reason.as_str()).collect()
}

#[test]
fn every_reason_is_explained() {
    super::assert_none(&page_problems(&super::read("docs/reasons.md"), &words()));
    assert!(words().len() > 30, "the page is held against the list, and found only {} words", words().len());
}

#[test]
fn every_reason_is_told_by_product_code() {
    let told: Vec<String> = super::sources(&["src"]).iter().flat_map(told).collect();
    let is_missing = |word: &&&str| !told.iter().any(|told| told == *word);
    let missing: Vec<String> =
        words().iter().filter(is_missing).map(|word| format!("nothing tells {word}: use it or remove it")).collect();
    super::assert_none(&missing);
}

#[test]
fn reasons_are_named_and_not_spelt() {
    super::hold(&["src"], |source| spelt(source, &words()));
}

#[test]
fn a_wrong_page_is_noticed() {
    let section = |word: &str, check: &str| {
        format!(
            "\n## {word}\n\n**Means.** The machine was looked for and not found.\n\n**Check.** {check}\n\n**Mend.** Give \
             the account the role Read-only.\n"
        )
    };
    let good = section("VMNotFound", "It exists: `govc find / -type m -name NAME`.");
    let problems = |page: &str| page_problems(&format!("# Reasons\n\nHead.\n{page}"), &["VMNotFound"]);
    assert_eq!(problems(&good), Vec::<String>::new());
    let swapped =
        good.replace("**Means.**", "**Other.**").replace("**Mend.**", "**Means.**").replace("**Other.**", "**Mend.**");
    for (page, problem) in [
        (String::new(), "VMNotFound has 0 sections"),
        (format!("{good}{good}"), "VMNotFound has 2 sections"),
        (format!("{good}{}", good.replace("VMNotFound", "Gone")), "Gone is no reason"),
        (good.replace("**Mend.**", ""), "VMNotFound: does not say Mend, or not in its place"),
        (good.replace("Give the account the role Read-only.", ""), "VMNotFound: says nothing under Mend"),
        (
            section("VMNotFound", "Look at it in the vSphere Client."),
            "VMNotFound: the check has no line of govc or kubectl",
        ),
        (swapped, "VMNotFound: does not say Check, or not in its place"),
    ] {
        let found = problems(&page);
        assert!(found.iter().any(|found| found == problem), "{page}: {found:?}");
    }
}

#[test]
fn only_a_reason_that_is_given_counts_as_told() {
    for (path, text, expected) in [
        ("src/a.rs", "fn f() -> Unknown { Unknown::new(Reason::Panic, m) }", vec!["Panic"]),
        ("src/a.rs", "fn f() { crate::cloud::Reason::Panic }", vec!["Panic"]),
        ("src/a.rs", "fn f() { match x { 1 => Reason::Panic, _ => Reason::NoZoneTags } }", vec!["Panic", "NoZoneTags"]),
        (
            "src/a.rs",
            "fn f() { match r { Reason::Panic => 1, Reason::NoZoneTags | crate::cloud::Reason::X => 2 } }",
            vec![],
        ),
        ("src/a.rs", "fn f() { r == Reason::Panic || r != crate::cloud::Reason::NoZoneTags }", vec![]),
        ("src/a.rs", "// Reason::Panic\n#[cfg(test)]\nmod tests { fn f() { Reason::Panic } }", vec![]),
        ("src/cloud/reason.rs", "fn f() { Reason::Panic }", vec![]),
    ] {
        assert_eq!(told(&Source::new(path, text)), expected, "{text}");
    }
}

#[test]
fn a_reason_that_is_spelt_is_noticed() {
    super::notices(
        |source| spelt(source, &["NoAddresses"]),
        &[
            ("src/a.rs", "fn f() { recorder.event(x, \"NoAddresses\", m) }", true),
            ("src/a.rs", "fn f() { recorder.event(x, r#\"NoAddresses\"#, m) }", true),
            ("src/a.rs", "fn f() { recorder.event(x, Reason::NoAddresses.as_str(), m) }", false),
            ("src/a.rs", "fn f() { log(\"NoAddresses yet\") } // \"NoAddresses\"", false),
            ("src/a.rs", "#[cfg(test)]\nmod tests { const A: &str = \"NoAddresses\"; }", false),
            ("src/cloud/reason.rs", "const A: &str = \"NoAddresses\";", false),
            ("src/clients/vim/fault.rs", "const A: &str = \"NoAddresses\";", false),
        ],
    );
}
