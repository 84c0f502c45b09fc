//! Laws that many targets share.

use std::error::Error;

use ccm::base::error_chain::chain;

/// Stands for a secret: where it is part of the input it must not be part of what is told.
pub const SECRET: &str = "s3cr3t-0f-a-test";

/// Longer sentences about one failure are of no use to anybody, and a server could fill the log with them.
const LONGEST: usize = 4096;

/// What an error tells, with its causes, in both forms: short, and without the secret.
pub fn is_told_well(error: &(dyn Error + 'static)) {
    let told = chain(error);
    assert!(told.len() < LONGEST, "{} bytes are told: {told}", told.len());
    hides_secret(&told);
    hides_secret(&format!("{error:?}"));
}

/// A text does not have the secret.
pub fn hides_secret(told: &str) {
    assert!(!told.contains(SECRET), "a secret is told: {told}");
}

/// What is kept of some bytes is in proportion to them.
pub fn is_in_proportion(kept: &impl std::fmt::Debug, bytes: &[u8]) {
    let size = format!("{kept:?}").len();
    assert!(size <= 4096 + 64 * bytes.len(), "{size} bytes are kept of {}", bytes.len());
}

/// Ends inside the bytes at which an answer is cut.
pub fn cuts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let before_end = bytes.iter().rposition(|&byte| byte == b'<').unwrap_or_default();
    [bytes.len() / 4, bytes.len() / 2, bytes.len() * 3 / 4, before_end].into_iter().filter_map(|end| bytes.get(..end))
}
