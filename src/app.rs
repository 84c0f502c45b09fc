//! The composition root: builds everything, starts it, waits, stops it. The only module that sees all others.

pub mod go_duration;
pub mod options;
pub mod registry;
pub mod settings;

use options::Options;

/// Why the daemon stopped other than in order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags, or the files they name, are wrong.
    #[error(transparent)]
    Settings(#[from] settings::Mistakes),
}

/// Reads and checks the settings.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &Options) -> Result<(), Error> {
    let settings = settings::settle(options, &|path| std::fs::read(path))?;
    tracing::info!(?settings, "the settings are valid");
    Ok(())
}
