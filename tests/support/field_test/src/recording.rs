//! A recording of a run: each exchange, without credentials, with names, addresses, UUIDs and ids replaced by tokens. And its
//! replay: the same checks, with the recording in the place of the servers.
//!
//! ```text
//! request, answer ─▶ exchange ─▶ json, xml, message ─▶ value ─▶ tokens
//!                        │               └── what stays: words
//!                        ▼
//!                     recorder ─▶ file ─▶ replay ─▶ the product's clients
//! ```
//!
//! What stays is a list (`words`); everything else is replaced. All but `recorder` and `replay` is pure.

mod exchange;
mod file;
mod json;
mod message;
mod recorder;
mod replay;
mod tokens;
mod value;
mod words;
mod xml;

pub use exchange::{Answer, Body, Request};
pub use file::{Entry, ExchangeEntry, Product, Recording, ServerEntry};
pub use recorder::Recorder;
pub use replay::{Replay, Replayed, replay};

use std::path::Path;

use crate::{Report, RunSettings, Servers, run};

/// Runs the checks of these servers and records them in a new file: the report, and what is said of the file.
///
/// # Errors
/// The file exists, or cannot be written.
pub async fn record(
    path: &Path,
    mut servers: Servers,
    settings: &RunSettings,
) -> Result<(Report, Result<String, String>), String> {
    let recorder = Recorder::create(path)?;
    recorder.attach(&mut servers);
    let report = run(servers, settings).await;
    let said = recorder.finish(&report);
    Ok((report, said))
}

#[cfg(test)]
mod tests;
