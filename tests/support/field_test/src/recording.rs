//! A recording of a run, and its replay. The recording has each exchange without credentials; tokens replace names,
//! addresses, UUIDs and ids. The replay runs the same checks with the recording in place of the servers.
//!
//! ```text
//! request, answer ─▶ exchange ─▶ json, xml, message ─▶ value ─▶ tokens
//!                        │               └── what stays: words
//!                        ▼
//!                     recorder ─▶ file ─▶ replay ─▶ the product's clients
//! ```
//!
//! Only values in the lists of `words` stay; everything else is replaced. All modules except for `recorder` and
//! `replay` are pure.

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

/// Runs the checks of these servers and records them in a new file. Returns the report and a message about the file.
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
