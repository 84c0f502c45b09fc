//! Rules for the names of types and modules: each name is unique and a noun.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, is_word};

/// A declared type.
pub struct Declared {
    pub name: String,
    /// Module of the type: `["clients", "vim"]`.
    pub module: Vec<String>,
    /// Whether the type is private to its module.
    pub is_private: bool,
    /// File and line of the declaration.
    pub place: String,
}

/// Names that modules with different names may each have, if the types are private to their modules.
const OF_EACH_MODULE: [&str; 4] = ["Client", "Error", "Metrics", "Settings"];

/// The three steps of a reconciler. Each is a module with one function of that name.
const STEPS: [&str; 3] = ["observe", "plan", "apply"];

/// Words that are only verbs in the names of programs.
const VERBS: &[&str] = &[
    "adopt", "ask", "become", "begin", "bring", "choose", "claim", "confirm", "decode", "describe", "do", "edit",
    "ensure", "enter", "evaluate", "find", "forget", "get", "give", "hear", "hold", "judge", "keep", "know", "leave",
    "listen", "look", "looks", "make", "merge", "move", "reach", "read", "remember", "resolve", "say", "see", "send",
    "settle", "show", "speak", "sync", "take", "tell", "think", "use", "wait", "work", "works", "write",
];

/// Past participles that do not end in `ed`.
const PARTICIPLES: &[&str] = &[
    "begun",
    "bound",
    "brought",
    "chosen",
    "done",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "hidden",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "met",
    "seen",
    "sent",
    "shown",
    "spoken",
    "taken",
    "told",
    "understood",
    "unseen",
    "written",
];

/// Nouns that end in `ed`.
const NOUNS: &[&str] = &["embed", "feed", "need", "seed", "speed"];

/// Terms that begin with a preposition: a taint of Kubernetes, and a place of data.
const TERMS: &[&str] = &["out_of_service", "in_memory"];

const PREPOSITIONS: &[&str] = &[
    "about", "above", "after", "among", "at", "before", "behind", "below", "beside", "between", "beyond", "by", "for",
    "from", "in", "into", "of", "off", "on", "out", "over", "since", "through", "to", "under", "until", "upon", "with",
    "within", "without",
];

/// Returns the structures, enumerations, type aliases and traits of the product in a file.
pub fn declared(source: &Source) -> Vec<Declared> {
    let tokens = source.tokens();
    // Types of an `impl` or a trait are indented.
    let is_indented = |line: usize| source.text.lines().nth(line - 1).is_some_and(|text| text.starts_with(' '));
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !token.is_test) {
        let Some(next) = tokens.get(at + 1) else { continue };
        let is_kind = matches!(token.text.as_str(), "struct" | "enum" | "trait" | "type");
        if is_kind && is_word(&next.text) && !is_indented(token.line) {
            let place = format!("{}:{}", source.path, token.line);
            // The token before is `pub`, or the parenthesis that ends `pub(super)`.
            let is_private =
                !at.checked_sub(1).is_some_and(|before| ["pub", ")"].contains(&tokens[before].text.as_str()));
            found.push(Declared { name: next.text.clone(), module: source.module(), is_private, place });
        }
    }
    found
}

/// Returns names of two types below the same folder, each as `folder: Name`, with their places. The names in
/// [`OF_EACH_MODULE`] are permitted in different modules, if the types are private to them.
pub fn twice(folder: &str, types: &[Declared]) -> BTreeMap<String, String> {
    let mut places: BTreeMap<&str, Vec<&Declared>> = BTreeMap::new();
    types.iter().for_each(|declared| places.entry(&declared.name).or_default().push(declared));
    let is_twice = |name: &str, all: &[&Declared]| {
        let modules: BTreeSet<_> = all.iter().map(|declared| declared.module.last()).collect();
        let may_repeat = OF_EACH_MODULE.contains(&name) && all.iter().all(|declared| declared.is_private);
        all.len() > if may_repeat { modules.len() } else { 1 }
    };
    let found = places.into_iter().filter(|(name, all)| is_twice(name, all));
    let line = |all: Vec<&Declared>| all.iter().map(|declared| declared.place.as_str()).collect::<Vec<_>>().join(", ");
    found.map(|(name, all)| (format!("{folder}: {name}"), line(all))).collect()
}

/// Whether the name of a type is a single word that is a past participle or a verb.
pub fn is_no_noun(name: &str) -> bool {
    let word = name.to_lowercase();
    let is_one_word = name.chars().filter(|char| char.is_uppercase()).count() == 1;
    is_one_word && (is_participle(&word) || VERBS.contains(&word.as_str()))
}

/// Whether the name of a module or file begins with a verb or a preposition, or is a past participle.
pub fn is_no_name_of_a_module(name: &str) -> bool {
    let first = name.split('_').next().unwrap_or_default();
    let is_verb = VERBS.contains(&first) && !STEPS.contains(&name);
    let is_preposition = PREPOSITIONS.contains(&first) && !TERMS.contains(&name);
    is_verb || is_preposition || is_participle(name)
}

fn is_participle(word: &str) -> bool {
    let is_regular = word.ends_with("ed") && word.len() > 4 && !NOUNS.contains(&word);
    is_regular || PARTICIPLES.contains(&word)
}
