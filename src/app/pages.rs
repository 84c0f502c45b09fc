//! The pages of the secure port that show what the process was told and what it is.

use super::settings::Settings;
use crate::runtime::admin::Page;

/// All of them.
pub fn all(_settings: &Settings) -> Vec<Page> {
    Vec::new()
}
