//! What is wrong with the settings, all of it, in one message.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Mistake {
    /// The flag with its value, or the file with section and key. Never holds a secret.
    pub place: String,
    /// What is wrong with it and what is expected.
    pub why: String,
}

/// All that is wrong; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(formatter, "invalid configuration: {only}"),
            all => {
                write!(formatter, "{} configuration errors:", all.len())?;
                all.iter().try_for_each(|mistake| write!(formatter, "\n  {mistake}"))
            }
        }
    }
}
