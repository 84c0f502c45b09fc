//! Lists, page by page.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::call::Call;
use super::error::{Error, Kind};
use super::object::Object;
use super::pace::Priority;
use super::{Client, http};

/// At most this many pages.
const MOST_PAGES: usize = 500;

/// The objects of a list. Cursors are positions: while others delete, a list may miss an object. That an object is not in
/// one list is no proof that it is gone.
#[derive(Debug, Default)]
pub struct Listing {
    /// The objects, in the order of the server.
    pub objects: Vec<Object>,
    /// How many entries were no objects.
    pub skipped: usize,
}

impl Client {
    /// All objects of the list of this path, in pages of this many objects.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] also for an answer that is no list: it is never taken for an empty one.
    pub async fn list(&self, path: &str, operation: &'static str, page_size: usize) -> Result<Listing, Error> {
        let (mut listing, mut cursor, mut page_size) = (Listing::default(), None::<String>, page_size.max(1));
        let mut seen = BTreeSet::new();
        let mut pages = 0;
        loop {
            let wrong = |message: &str| {
                let request = self.inner.http.failed(operation);
                Error::other(Kind::Unavailable, request, format!("GET {path}"), message)
            };
            let size = page_size.to_string();
            let mut query = vec![("page_size", size.as_str())];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let call = Call { query: &query, ..Call::get(path, operation, Priority::Urgent) };
            let mut page = match self.object(call).await {
                Ok(page) => page,
                Err(error) if page_size > 1 && is_too_large(&error) => {
                    page_size /= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(Value::Array(results)) = page.0.remove("results") else {
                return Err(wrong("the answer has no list of results"));
            };
            let is_empty = results.is_empty();
            for result in results {
                match result {
                    Value::Object(object) => listing.objects.push(Object(object)),
                    _ => listing.skipped += 1,
                }
            }
            pages += 1;
            match next_cursor(&page.0) {
                None => return Ok(listing),
                Some(_) if is_empty => return Ok(listing),
                Some(next) if !seen.insert(next.clone()) => return Err(wrong("a cursor came twice")),
                Some(_) if pages >= MOST_PAGES => return Err(wrong("the list has more than 500 pages")),
                Some(next) => cursor = Some(next),
            }
        }
    }
}

/// The cursor of the next page; some versions give a number.
fn next_cursor(page: &Map<String, Value>) -> Option<String> {
    match page.get("cursor")? {
        Value::String(cursor) if !cursor.is_empty() => Some(cursor.clone()),
        Value::Number(cursor) => Some(cursor.to_string()),
        _ => None,
    }
}

fn is_too_large(error: &Error) -> bool {
    matches!(error.http_error(), Some(http::Error::TooLarge(..)))
}
