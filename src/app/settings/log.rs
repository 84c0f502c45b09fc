//! The flags of the log.

use super::{Check, Mistake};
use crate::app::options;
use crate::runtime::logging::{Format, Settings};

/// Joins and checks the flags of the log.
///
/// # Errors
/// All that is wrong with them.
pub(super) fn settle(options: &options::Logging) -> Result<Settings, Vec<Mistake>> {
    let wrong =
        |flag: &str, value: &str, why: &str| vec![Mistake { place: format!("{flag}={value}"), why: why.to_owned() }];
    let verbosity = options.v.parse::<i32>();
    let verbosity = verbosity.map_err(|_| wrong("-v", &options.v, "expected a whole number such as 2"))?;
    Ok(Settings { verbosity: verbosity.max(0).unsigned_abs(), modules: Vec::new(), format: Format::Text })
}

impl Check<'_> {
    pub(super) fn logging(&mut self) -> Option<Settings> {
        settle(&self.options.logging).map_err(|wrong| self.mistakes.extend(wrong)).ok()
    }
}
