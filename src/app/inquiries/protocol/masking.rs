//! Pure: replaces user names in messages. A message may end within a name, because long messages are cut; then the rest
//! of the name before the ellipsis is replaced, too.

use crate::app::reports::text::in_shell_quotes;
use std::collections::BTreeSet;

/// Text that replaces a user name.
const MASK: &str = "***";

/// The end of a text that was cut.
const ELLIPSIS: char = '…';

/// The names to replace, longer ones first, because a name may begin with another one.
#[derive(Default)]
pub(in crate::app::inquiries) struct MaskedNames(Vec<Vec<char>>);

impl MaskedNames {
    /// Collects the names. Messages quote some of them, which escapes backslashes, and commands quote apostrophes.
    pub(in crate::app::inquiries) fn new(users: &BTreeSet<String>) -> Self {
        let named = users.iter().filter(|user| !user.is_empty());
        let spellings = named.flat_map(|user| [user.clone(), user.escape_debug().collect(), in_shell_quotes(user)]);
        let mut names: Vec<Vec<char>> = spellings.map(|name: String| name.chars().collect()).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Self(names)
    }

    /// Returns the text without the names, whatever the case of their letters.
    pub(in crate::app::inquiries) fn masked(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let chars: Vec<char> = text.chars().collect();
        let mut masked = String::with_capacity(text.len());
        let mut rest = chars.as_slice();
        while let [first, after @ ..] = rest {
            match self.0.iter().find_map(|name| matched_length(rest, name)) {
                Some(length) => {
                    masked.push_str(MASK);
                    rest = rest.get(length..).unwrap_or_default();
                }
                None => {
                    masked.push(*first);
                    rest = after;
                }
            }
        }
        masked
    }
}

/// Returns the number of characters at the beginning of the text that are this name, or the beginning of the name before
/// an ellipsis; `None` without any.
fn matched_length(text: &[char], name: &[char]) -> Option<usize> {
    let same = text.iter().zip(name).take_while(|(one, other)| is_same_letter(**one, **other)).count();
    let is_whole = same == name.len();
    let is_cut = same > 0 && text.get(same) == Some(&ELLIPSIS);
    (is_whole || is_cut).then_some(same)
}

fn is_same_letter(one: char, other: char) -> bool {
    one == other || one.to_lowercase().eq(other.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let users = ["ccm@vsphere.local", "DOMAIN\\ccm", "Örs", "o'hara", ""].map(str::to_owned);
        MaskedNames::new(&BTreeSet::from(users)).masked(text)
    }

    #[test]
    fn names_are_replaced_in_any_case_and_also_where_the_text_was_cut() {
        for (text, expected) in [
            ("login of ccm@vsphere.local failed", "login of *** failed"),
            ("CCM@VSPHERE.LOCAL, domain\\CCM, \"DOMAIN\\\\ccm\", öRS", "***, ***, \"***\", ***"),
            ("login of ccm@vsph…", "login of ***…"),
            ("-principal 'o'\\''hara' -role ReadOnly", "-principal '***' -role ReadOnly"),
            ("login of c…: and more", "login of ***…: and more"),
            ("login of \"DOMAIN\\\\c…", "login of \"***…"),
            ("nothing to hide…", "nothing to hide…"),
            ("ccm@vsph", "ccm@vsph"),
            ("", ""),
        ] {
            assert_eq!(masked(text), expected);
        }
        assert_eq!(MaskedNames::new(&BTreeSet::new()).masked("c…"), "c…");
    }

    #[test]
    fn no_part_of_a_name_is_left_wherever_the_text_is_cut() {
        let text = "login of ccm@vsphere.local is rejected";
        for end in 0..text.len() {
            let cut = masked(&format!("{}…", text.split_at(end).0));
            assert!(!cut.contains("cc") && !cut.contains('@'), "{cut}");
        }
    }
}
