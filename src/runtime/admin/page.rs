//! A page of the secure port that only shows something.

use std::sync::Arc;

/// A page: always the same path, written anew at each request.
#[derive(Clone)]
pub struct Page {
    /// Its path, such as `/configz`.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Writes it. Must not block, and must hold no secret.
    pub write: Arc<dyn Fn() -> String + Send + Sync>,
}
