//! Pure: texts that come from outside of this program, such as those of guests, NSX and annotations.

/// Maximum number of characters of such a text in an explanation.
const LIMIT: usize = 300;

/// Returns the text, or its beginning if the text is long.
pub(super) fn clipped(text: &str) -> String {
    match text.char_indices().nth(LIMIT) {
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
    }
}
