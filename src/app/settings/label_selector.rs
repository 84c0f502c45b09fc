//! Pure: validates label selectors at the start. A watch with an invalid selector would never fill the cache.

use crate::base::names::{is_label_key, is_label_value};

/// Checks that the selector has the API server's syntax `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Comparisons such as
/// `a>1` are rejected.
///
/// # Errors
/// The first invalid requirement.
pub fn check(selector: &str) -> Result<(), String> {
    let requirements = requirements(selector);
    match requirements.iter().find(|requirement| !is_requirement(requirement.trim())) {
        Some(wrong) => Err(wrong.trim().to_owned()),
        None => Ok(()),
    }
}

/// Splits the selector at commas outside parentheses.
fn requirements(selector: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut depth = 0_i32;
    for char in selector.chars() {
        depth += i32::from(char == '(') - i32::from(char == ')');
        match found.last_mut() {
            Some(last) if char != ',' || depth > 0 => last.push(char),
            _ => found.push(String::new()),
        }
    }
    found
}

fn is_requirement(text: &str) -> bool {
    if let Some(key) = text.strip_prefix('!') {
        return is_label_key(key.trim());
    }
    if let Some((key, rest)) = text.split_once(char::is_whitespace)
        && let Some(list) = rest.trim().strip_prefix("notin").or_else(|| rest.trim().strip_prefix("in"))
    {
        let values = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        return is_label_key(key)
            && values.is_some_and(|values| values.split(',').all(|value| is_label_value(value.trim())));
    }
    match text.split_once("!=").or_else(|| text.split_once("==")).or_else(|| text.split_once('=')) {
        Some((key, value)) => is_label_key(key.trim()) && is_label_value(value.trim()),
        None => is_label_key(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_told_from_other_texts() {
        let cases: &[(&str, Result<(), &str>)] = &[
            ("a", Ok(())),
            ("!a", Ok(())),
            ("a=b", Ok(())),
            ("a==b, c != d", Ok(())),
            ("a=", Ok(())),
            ("example.com/pool in (one, two),!x/y", Ok(())),
            ("a notin (b)", Ok(())),
            ("", Err("")),
            ("a=b,", Err("")),
            ("a=b c", Err("a=b c")),
            ("a in b", Err("a in b")),
            ("a=b,=c", Err("=c")),
            ("A.B/c", Err("A.B/c")),
            ("a=-b", Err("a=-b")),
            ("a>1", Err("a>1")),
        ];
        for (selector, expected) in cases {
            assert_eq!(check(selector), expected.map_err(str::to_owned), "{selector:?}");
        }
    }
}
