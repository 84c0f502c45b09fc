//! Pure: checks label names, label values and DNS names as the API server does.

/// Maximum length of a label value, in characters. The characters are all ASCII.
pub const MAX_LABEL_VALUE: usize = 63;

/// Returns true for a valid label key, a *qualified name*. The name has at most 63 letters, digits, `-`, `_` and `.`,
/// and begins and ends with a letter or digit. A DNS name and a slash can precede the name.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_dns_name)
}

/// Returns true for a valid label value: empty, or a label key without prefix.
pub fn is_label_value(value: &str) -> bool {
    let is_end = |char: Option<char>| char.is_none_or(|char| char.is_ascii_alphanumeric());
    value.len() <= MAX_LABEL_VALUE
        && value.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
        && is_end(value.chars().next())
        && is_end(value.chars().last())
}

/// Returns true for a lower-case DNS name of at most 253 characters, like the names of Nodes and Leases.
pub fn is_dns_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_other_texts() {
        let long = format!("{}/a", "a".repeat(254));
        let cases = [
            ("a", true),
            ("A-b_c.d", true),
            ("example.com/A", true),
            ("e/a", true),
            ("", false),
            ("/a", false),
            ("example.com/", false),
            ("a/b/c", false),
            ("Example.com/a", false),
            ("a..b/c", false),
            ("-a/b", false),
            ("a_b/c", false),
            ("a b", false),
            ("-a", false),
            ("a.", false),
            ("\u{e4}", false),
            (long.as_str(), false),
        ];
        for (key, expected) in cases {
            assert_eq!(is_label_key(key), expected, "{key:?}");
        }
        assert!(is_label_key(&"a".repeat(63)) && !is_label_key(&"a".repeat(64)));
    }

    #[test]
    fn values_are_told_from_other_texts() {
        for (value, expected) in
            [("", true), ("a", true), ("a_B.9", true), ("a b", false), ("_a", false), ("a,b", false)]
        {
            assert_eq!(is_label_value(value), expected, "{value:?}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
    }
}
