//! Pure: texts that come from outside of this program, such as those of guests, NSX and annotations.

/// Maximum number of characters of such a text in an explanation.
const LIMIT: usize = 300;

/// Maximum number of characters of a message that this program has composed, possibly from many such texts.
const MESSAGE_LIMIT: usize = 2_000;

/// Returns the text, or its beginning if the text is long.
pub(super) fn clipped(text: &str) -> String {
    beginning(text, LIMIT)
}

/// Returns the message, which is longer than that of the condition or Event. A message without limit is cut.
pub(super) fn full_message(message: &str) -> String {
    beginning(message, MESSAGE_LIMIT)
}

fn beginning(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_after_its_limit_in_characters() {
        let text = "ü".repeat(LIMIT);
        assert_eq!(clipped(&text), text);
        assert_eq!(clipped(&format!("{text}y")), format!("{text}…"));
        let message = "ü".repeat(MESSAGE_LIMIT);
        assert_eq!(full_message(&message), message);
        assert_eq!(full_message(&format!("{message}y")), format!("{message}…"));
    }
}
