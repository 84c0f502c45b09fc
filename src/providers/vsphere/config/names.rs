//! Pure: which unknown names a message may repeat.
//!
//! What stands where a key is expected may be the rest of a password or of a private key that was pasted without quotes. So
//! only what resembles a known name is repeated; of all else the line is told.

use super::fields::{OTHER_SECTIONS, Plain, known_keys};

/// Internal fields that the Go program lets a file set, and keys that old examples have.
const FORMER_KEYS: [&str; 4] = ["tenantref", "secretref", "ipfamilypriority", "service-account"];

/// No known name is longer.
const LONGEST: usize = 40;

/// The key, if it resembles a key of any section in either dialect.
pub(super) fn shown_key(written: &str) -> Option<&str> {
    let is_known = known_keys().chain(FORMER_KEYS).any(|key| resembles(written, key));
    is_known.then_some(written)
}

/// The section, if it resembles one.
pub(super) fn shown_section(written: &str) -> Option<&str> {
    let plain = Plain::ALL.into_iter().map(Plain::name);
    let is_known =
        plain.chain(["VirtualCenter"]).chain(OTHER_SECTIONS.iter().copied()).any(|name| resembles(written, name));
    is_known.then_some(written)
}

/// Whether it is this name but for case, `-` and `_`, and a letter or two.
fn resembles(written: &str, name: &str) -> bool {
    if written.len() > LONGEST {
        return false;
    }
    let letters = |text: &str| {
        text.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect::<Vec<char>>()
    };
    let (written, name) = (letters(written), letters(name));
    let mistakes = if name.len() < 6 { 1 } else { 2 };
    distance(&written, &name) <= mistakes
}

/// How many letters have to be added, removed or replaced.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut next = vec![index + 1];
        for ((above, diagonal), other) in row.iter().skip(1).zip(&row).zip(other) {
            let left = next.last().copied().unwrap_or_default();
            let replaced = diagonal + usize::from(letter != other);
            next.push(replaced.min(left + 1).min(above + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_resembles_a_name_is_shown() {
        for key in
            ["ca-fiel", "ca_file", "caFile", "cafile", "CA-FILE", "secretref", "tenantref", "usr", "passwort", "zones"]
        {
            assert_eq!(shown_key(key), Some(key));
        }
        for key in ["", "hunter2", "s3cr", "aWxsIG5ldmVyIHRlbGw", "colour", &"x".repeat(1000)] {
            assert_eq!(shown_key(key), None, "{key}");
        }
        assert_eq!(shown_section("Lables"), Some("Lables"));
        assert_eq!(shown_section("virtual-center"), Some("virtual-center"));
        assert_eq!(shown_section("default-VirtualCenter"), None);
    }

    #[test]
    fn letters_are_counted() {
        let count =
            |one: &str, other: &str| distance(&one.chars().collect::<Vec<_>>(), &other.chars().collect::<Vec<_>>());
        assert_eq!((count("", ""), count("", "abc"), count("abc", "")), (0, 3, 3));
        assert_eq!(
            (count("abc", "abc"), count("abc", "axc"), count("abc", "ac"), count("kitten", "sitting")),
            (0, 1, 1, 3)
        );
    }
}
