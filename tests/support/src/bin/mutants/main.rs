//! `make mutants`: breaks the code that decides about deletions, leadership and logins, one line at a time, and runs
//! the tests that must notice.
//!
//! `MUTANTS="absence gate"` selects the mutants whose name begins with one of these words. `PART=2/4` selects the
//! second quarter of them. Results are stored in `target/mutants/results`. A mutant is not run again while file, mutant
//! and tests are unchanged, so that a run can be interrupted and continued. Everything happens in a copy of the tracked
//! files with a separate build folder.

mod list;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use tree::{Outcome, Tree};

/// Arguments of several runs of `cargo test`. After a run that fails the later ones are skipped.
type Tests = &'static [&'static [&'static str]];

/// One change of the code that a test must notice.
struct Mutant {
    /// Unique name, which begins with the file name.
    name: &'static str,
    /// Path relative to the root of the repository.
    file: &'static str,
    /// Text to replace. It must occur once in the file.
    old: &'static str,
    /// Replacement.
    new: &'static str,
    /// Tests that can notice it, cheapest first.
    tests: Tests,
    /// Reason why no test can notice it, if so.
    missed_because: Option<&'static str>,
}

impl Mutant {
    fn new(name: &'static str, file: &'static str, (old, new): (&'static str, &'static str), tests: Tests) -> Self {
        Self { name, file, old, new, tests, missed_because: None }
    }

    /// Returns the content of the file with the change.
    fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(self.old).count() {
            1 => Ok(text.replacen(self.old, self.new, 1)),
            count => Err(format!("{}: occurs {count} times in {}: {:?}", self.name, self.file, self.old)),
        }
    }

    /// Returns a hash of everything that the result depends on.
    fn digest(&self, text: &str) -> u64 {
        let parts = [text, self.old, self.new, &self.tests.concat().join(" ")];
        // FNV-1a, because it is the same on every machine and with every compiler.
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("mutants: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if every mutant was caught that can be caught.
fn run() -> Result<bool, String> {
    let chosen = choose(list::all())?;
    let tree = Tree::prepare()?;
    let results = tree.folder().join("results");
    let mut known = read(&fs::read_to_string(&results).unwrap_or_default());
    for run in chosen.iter().flat_map(|mutant| mutant.tests).collect::<BTreeSet<_>>() {
        println!("without a mutant: cargo test {}", run.join(" "));
        match tree.test(&[run])? {
            Outcome::Missed => {}
            outcome => return Err(format!("the tests {run:?} fail without a mutant: {outcome:?}")),
        }
    }
    for (number, mutant) in chosen.iter().enumerate() {
        let text = tree.read(mutant.file)?;
        let key = (mutant.name.to_owned(), mutant.digest(&text));
        if known.contains_key(&key) {
            continue;
        }
        let began = Instant::now();
        tree.write(mutant.file, &mutant.apply(&text)?)?;
        let outcome = tree.test(mutant.tests);
        tree.write(mutant.file, &text)?;
        let outcome = outcome?;
        println!("{}/{} {}: {outcome:?}, {:.0?}", number + 1, chosen.len(), mutant.name, began.elapsed());
        // This outcome is not stored, because it says nothing about the tests. A repaired mutant is run.
        if outcome != Outcome::DoesNotBuild {
            tree::append(&results, &format!("{} {:016x} {outcome:?}", key.0, key.1))?;
        }
        known.insert(key, outcome);
    }
    summarize(&chosen, &tree, &known)
}

/// Returns the mutants that `MUTANTS` and `PART` select.
fn choose(all: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let prefixes = variable("MUTANTS").unwrap_or_default();
    let is_chosen =
        |name: &str| prefixes.is_empty() || prefixes.split_whitespace().any(|prefix| name.starts_with(prefix));
    let part = variable("PART").unwrap_or_else(|| "1/1".to_owned());
    let numbers = part.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    let (part, of): (usize, usize) =
        numbers.filter(|(part, of)| (1..=*of).contains(part)).ok_or_else(|| format!("PART={part} is not like 2/4"))?;
    let named: Vec<_> = all.into_iter().filter(|mutant| is_chosen(mutant.name)).collect();
    let chosen: Vec<_> =
        named.into_iter().enumerate().filter(|(at, _)| at % of == part - 1).map(|(_, mutant)| mutant).collect();
    if chosen.is_empty() { Err(format!("no mutant's name begins with one of {prefixes:?}")) } else { Ok(chosen) }
}

/// Reads the results so far, by name and digest. An incomplete line is skipped.
fn read(text: &str) -> BTreeMap<(String, u64), Outcome> {
    let result = |line: &str| {
        let mut words = line.split(' ');
        let (name, digest, word) = (words.next()?, words.next()?, words.next()?);
        Some(((name.to_owned(), u64::from_str_radix(digest, 16).ok()?), Outcome::parse(word)?))
    };
    text.lines().filter_map(result).collect()
}

fn summarize(chosen: &[Mutant], tree: &Tree, known: &BTreeMap<(String, u64), Outcome>) -> Result<bool, String> {
    let mut with = BTreeMap::<_, Vec<&Mutant>>::new();
    for mutant in chosen {
        let outcome = known.get(&(mutant.name.to_owned(), mutant.digest(&tree.read(mutant.file)?)));
        with.entry(outcome.copied().unwrap_or(Outcome::DoesNotBuild)).or_default().push(mutant);
    }
    let mut all = |outcome| with.remove(&outcome).unwrap_or_default();
    let (caught, missed, not_built) = (all(Outcome::Caught), all(Outcome::Missed), all(Outcome::DoesNotBuild));
    println!("{} mutants, {} caught, {} missed", chosen.len(), caught.len(), missed.len());
    for mutant in &missed {
        let reason = mutant.missed_because.unwrap_or("NO REASON IS KNOWN");
        println!("missed: {} in {}: {reason}", mutant.name, mutant.file);
    }
    for mutant in &not_built {
        println!("does not build, so that no test was run: {} in {}", mutant.name, mutant.file);
    }
    Ok(not_built.is_empty() && missed.iter().all(|mutant| mutant.missed_because.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_has_a_name_and_changes_one_place() {
        let root = tree::root();
        let mut names = BTreeSet::new();
        for mutant in list::all() {
            assert!(names.insert(mutant.name), "{} is there twice", mutant.name);
            assert!(mutant.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert!(!mutant.tests.is_empty() && mutant.old != mutant.new, "{}", mutant.name);
            let text = fs::read_to_string(root.join(mutant.file)).unwrap();
            if let Err(problem) = mutant.apply(&text) {
                panic!("{problem}; mend tests/support/src/bin/mutants/list");
            }
        }
    }

    #[test]
    fn results_are_read_as_they_are_written() {
        let text = "a-1 00000000000000ff Caught\na-2 0000000000000001 Missed\na-3 00000000000";
        let known = read(text);
        assert_eq!(known.len(), 2);
        assert_eq!(known.get(&("a-1".to_owned(), 255)), Some(&Outcome::Caught));
    }
}
