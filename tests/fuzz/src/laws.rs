//! Checks that many targets share.

use std::error::Error;

use ccm::base::error_chain::chain;

/// A secret of the test. If the input contains it, messages and logs must not.
pub const SECRET: &str = "s3cr3t-0f-a-test";

/// Upper limit of an error message, in bytes. Otherwise a server could fill the log.
const LONGEST: usize = 4096;

/// Checks both forms of an error with its causes: it is short and does not contain the secret.
pub fn is_told_well(error: &(dyn Error + 'static)) {
    let told = chain(error);
    assert!(told.len() < LONGEST, "{} bytes are told: {told}", told.len());
    hides_secret(&told);
    hides_secret(&format!("{error:?}"));
}

/// Checks that a text does not contain the secret.
pub fn hides_secret(told: &str) {
    assert!(!told.contains(SECRET), "a secret is told: {told}");
}

/// Checks that the size of a parsed value is proportional to the size of its input.
pub fn is_in_proportion(kept: &impl std::fmt::Debug, bytes: &[u8]) {
    let size = format!("{kept:?}").len();
    assert!(size <= 4096 + 64 * bytes.len(), "{size} bytes are kept of {}", bytes.len());
}

/// Returns prefixes of the bytes, as a truncated answer would have them.
pub fn cuts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let before_end = bytes.iter().rposition(|&byte| byte == b'<').unwrap_or_default();
    [bytes.len() / 4, bytes.len() / 2, bytes.len() * 3 / 4, before_end].into_iter().filter_map(|end| bytes.get(..end))
}
