//! Quotes foreign text for messages. The text becomes short, and a log or an Event does not escape it again. Also joins
//! names for messages.

use std::borrow::Borrow;

const SHOWN: usize = 200;

/// Maximum number of names in a list.
const MAX_NAMED: usize = 10;

/// Returns the first 200 characters of the text in quotes, followed by `…` if the text is longer. Control characters
/// become replacement characters.
pub fn quoted(text: &str) -> String {
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let shown: String = text.chars().take(SHOWN).map(printable).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("\"{shown}{more}\"")
}

/// Joins the first ten names by commas. The number of further names follows.
pub fn listed<T: Borrow<str>>(names: &[T]) -> String {
    match names.get(MAX_NAMED..) {
        None | Some([]) => names.join(", "),
        Some(others) => {
            format!("{} and {} more", names.get(..MAX_NAMED).unwrap_or_default().join(", "), others.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn what_is_shown_is_short_and_printable() {
        assert_eq!(quoted("10.0.0.0"), "\"10.0.0.0\"");
        assert_eq!(quoted("a\n\u{1}é"), "\"a\u{fffd}\u{fffd}é\"");
        assert_eq!(quoted(&"é".repeat(200)), format!("\"{}\"", "é".repeat(200)));
        assert_eq!(quoted(&"\u{1}".repeat(300_000)), format!("\"{}…\"", "\u{fffd}".repeat(200)));
    }
}
