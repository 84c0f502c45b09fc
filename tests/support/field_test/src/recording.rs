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

#[cfg(test)]
mod tests;
