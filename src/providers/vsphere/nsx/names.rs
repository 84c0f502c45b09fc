//! Pure: shortens names of objects to the lengths that NSX accepts.

use sha2::{Digest, Sha256};

/// Maximum length of a display name, in characters.
pub const LONGEST_NAME: usize = 255;
/// Maximum length of a description, in characters.
pub const LONGEST_DESCRIPTION: usize = 1024;

/// Shortens a text to at most `longest` characters. A shortened text ends in a part of the digest of the full text, so
/// that different texts stay different.
pub fn shortened(text: String, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text;
    }
    let digest = Sha256::digest(text.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    text.chars().take(longest.saturating_sub(digest.len() + 1)).chain(['_']).chain(digest.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn a_long_name_is_cut_and_stays_different_from_others() {
        assert_eq!(shortened("ä".repeat(255), 255), "ä".repeat(255));
        let [one, other] = ["1", "2"].map(|end| shortened("ä".repeat(255) + end, 255));
        assert_eq!((one.chars().count(), other.chars().count()), (255, 255));
        assert_ne!(one, other);
        assert_eq!(one, shortened("ä".repeat(255) + "1", 255));
    }
}
