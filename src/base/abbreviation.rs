//! Pure: shortens a message that has a limit, such as that of a condition or an Event. Lists lose their last items,
//! which are counted, so that the text after a list, often the remedy, remains.

use std::borrow::Cow;
use std::ops::Range;

/// Maximum number of characters of the message of a condition or an Event. Every watcher of the object receives it.
pub const MAX_MESSAGE: usize = 300;

/// Maximum number of lists that are shortened, so that the work is limited for any text.
const MAX_LISTS: usize = 8;

/// Shortest list, in items. Shorter ones are usually clauses of a sentence.
const MIN_ITEMS: usize = 4;

/// Maximum number of words of an item. A longer one is a clause of a sentence.
const MAX_WORDS: usize = 3;

/// Returns the message with at most `limit` characters. A longer message loses items of its longest lists, as in `a, b
/// and 7 more`; if that is not sufficient, it also loses its end.
pub fn abbreviated(message: &str, limit: usize) -> Cow<'_, str> {
    let fits = |text: &str| text.chars().nth(limit).is_none();
    if fits(message) {
        return Cow::Borrowed(message);
    }
    let mut text = message.to_owned();
    for _ in 0..MAX_LISTS {
        let longest = lists(&text).into_iter().max_by_key(|list| list.rest.end - list.rest.start);
        let Some(list) = longest else { break };
        text = list.shortened(&text, fits);
        if fits(&text) {
            return Cow::Owned(text);
        }
    }
    Cow::Owned(beginning(&text, limit))
}

/// Returns the first characters of the text, up to the end of a word if one is near, and an ellipsis.
fn beginning(text: &str, limit: usize) -> String {
    let end = text.char_indices().nth(limit.saturating_sub(1)).map_or(text.len(), |(end, _)| end);
    let start = text.get(..end).unwrap_or_default();
    let word_end = start.rfind(' ').filter(|at| end - at < 40).unwrap_or(end);
    format!("{}…", start.get(..word_end).unwrap_or_default().trim_end_matches([' ', ',', ';', ':']))
}

/// A list of items, separated by commas.
#[derive(Debug, PartialEq)]
struct List {
    /// The ends of the items that can stay, which are all but the last.
    ends: Vec<usize>,
    /// From the end of the first item to the end of the last one.
    rest: Range<usize>,
    /// Number of items after the last one that the text already counts, as in `a, b and 7 more`.
    counted: usize,
}

impl List {
    /// Returns the text with as many items as fit, but at least one.
    fn shortened(&self, text: &str, fits: impl Fn(&str) -> bool) -> String {
        let with = |kept: usize| {
            let omitted = self.ends.len() + 1 - kept + self.counted;
            let start = self.ends.get(kept - 1).and_then(|end| text.get(..*end)).unwrap_or_default();
            format!("{start} and {omitted} more{}", text.get(self.rest.end..).unwrap_or_default())
        };
        let kept = (1..=self.ends.len()).rev().find(|kept| fits(&with(*kept)));
        with(kept.unwrap_or(1))
    }
}

/// A part of the text that may be a list: it has no other punctuation at its level of parentheses.
#[derive(Default)]
struct Clause {
    /// The positions of its commas.
    commas: Vec<usize>,
}

impl Clause {
    /// Returns the list, if the clause, which ends at `end`, is one.
    fn list(self, text: &str, end: usize) -> Option<List> {
        let Self { commas } = self;
        if commas.len() + 1 < MIN_ITEMS {
            return None;
        }
        let starts = commas.iter().map(|comma| comma + 2);
        let middle: Vec<&str> = starts.zip(commas.get(1..)?).filter_map(|(start, end)| text.get(start..*end)).collect();
        let words = middle.iter().map(|item| words_of(item)).max().filter(|words| (1..=MAX_WORDS).contains(words))?;
        let last = commas.last()? + 2;
        let (length, counted) = last_item(text.get(last..end)?, words);
        let rest = *commas.first()?..last + length;
        Some(List { ends: commas, rest, counted })
    }
}

/// Returns the length of the last item of a list, and the number that the text gives for further items. Text of the
/// sentence may follow.
fn last_item(text: &str, words: usize) -> (usize, usize) {
    let (conjunction, item) = match ["and ", "or "].into_iter().find_map(|word| Some((word, text.strip_prefix(word)?)))
    {
        Some((word, item)) => (word.len(), item),
        None => (0, text),
    };
    let length = conjunction + length_of_words(item, words);
    let further = text.get(length..).and_then(|rest| {
        let rest = rest.strip_prefix(" and ")?;
        let (number, tail) = rest.split_once(" more")?;
        Some((text.len() - tail.len(), number.parse().ok()?))
    });
    further.unwrap_or((length, 0))
}

/// Returns the number of words, without those in parentheses.
fn words_of(text: &str) -> usize {
    let mut number = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let length = length_of_words(rest, 1);
        number += 1;
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    number
}

/// Returns the length of the first words, each with the parentheses that follow it.
fn length_of_words(text: &str, words: usize) -> usize {
    let (mut depth, mut seen) = (0_usize, 0);
    for (at, char) in text.char_indices() {
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 && !after(text, at, char).starts_with(['(', '[']) => {
                seen += 1;
                if seen == words {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Returns the text after the character at this position.
fn after(text: &str, at: usize, char: char) -> &str {
    text.get(at + char.len_utf8()..).unwrap_or_default()
}

/// Returns the lists of a text.
fn lists(text: &str) -> Vec<List> {
    let mut found = Vec::new();
    let mut open = vec![Clause::default()];
    let mut is_quoted = false;
    for (at, char) in text.char_indices() {
        let ends_word = after(text, at, char).starts_with(' ');
        match char {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' => open.push(Clause::default()),
            ')' | ']' if open.len() > 1 => found.extend(open.pop().and_then(|clause| clause.list(text, at))),
            ',' if ends_word => open.last_mut().into_iter().for_each(|clause| clause.commas.push(at)),
            ';' | ':' | '.' if ends_word => {
                let next = Clause::default();
                let ended = open.last_mut().map(|clause| std::mem::replace(clause, next));
                found.extend(ended.and_then(|clause| clause.list(text, at)));
            }
            _ => {}
        }
    }
    found.extend(open.into_iter().filter_map(|clause| clause.list(text, text.len())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_list_is_cut_with_a_count_and_the_text_around_it_stays() {
        let list = "gone: n-1, n-2, n-3, n-4, n-5; check vCenter";
        let cases = [
            (list, 44, list),
            (list, 43, "gone: n-1, n-2 and 3 more; check vCenter"),
            (list, 37, "gone: n-1 and 4 more; check vCenter"),
            (list, 20, "gone: n-1 and 4…"),
            ("gone: n-1, n-2, n-3, n-4 and 7 more; wait", 31, "gone: n-1, n-2 and 9 more; wait"),
            ("the VMs n-1, n-2, n-3, n-4 are gone", 33, "the VMs n-1 and 3 more are gone"),
            ("hosts (a (x, y), b (x, y), c (x, y), d (x, y)) have it", 38, "hosts (a (x, y) and 3 more) have it"),
            ("no file \"a, b, c, d, e, f, g, h\" is there", 20, "no file \"a, b, c…"),
            ("the VM exists, the account may read it, and so on", 40, "the VM exists, the account may read…"),
        ];
        for (message, limit, expected) in cases {
            assert_eq!(abbreviated(message, limit), expected, "{message}");
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        proptest::string::string_regex("([a-z0-9äß.\"]{0,12}[,;:.()\\[\\]]{0,2} ?){0,120}").unwrap()
    }

    proptest! {
        #[test]
        fn no_message_is_longer_than_its_limit_and_a_short_one_is_unchanged(text in texts(), limit in 40_usize..400) {
            let short = abbreviated(&text, limit);
            prop_assert!(short.chars().count() <= limit, "{short}");
            if text.chars().count() <= limit {
                prop_assert_eq!(&*short, &text);
            }
        }

        #[test]
        fn shown_and_counted_items_are_all_items(
            names in prop::collection::vec("[a-z]{1,9}-[0-9]{1,5}", 4..200),
            counted in prop::option::of(1_usize..1000),
        ) {
            let further = counted.map(|number| format!(" and {number} more")).unwrap_or_default();
            let text = format!("these Nodes are gone: {}{further}; check vCenter", names.join(", "));
            let short = abbreviated(&text, 100);
            prop_assert!(short.chars().count() <= 100, "{short}");
            let list = short.strip_prefix("these Nodes are gone: ").and_then(|rest| rest.strip_suffix("; check vCenter"));
            let list = list.expect("the text around the list stays");
            let (shown, more) = match list.rsplit_once(" and ") {
                Some((shown, more)) => (shown, more.strip_suffix(" more").unwrap().parse().unwrap()),
                None => (list, 0),
            };
            let shown: Vec<&str> = shown.split(", ").collect();
            prop_assert!(names.iter().zip(&shown).all(|(name, shown)| name == shown), "{short}");
            prop_assert_eq!(shown.len() + more, names.len() + counted.unwrap_or_default());
        }
    }
}
