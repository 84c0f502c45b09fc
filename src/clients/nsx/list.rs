//! Lists of objects, page by page.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::call::{NsxCall, Shape};
use super::error::{Error, Kind};
use super::object::Object;
use super::{Client, http};

const MAX_PAGES: usize = 500;

/// Maximum memory of a list in `Pages::all`, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The objects of a list. An object that is absent from one list may still exist: cursors are positions, so a list may
/// skip objects while other clients delete objects.
#[derive(Debug, Default)]
pub struct Listing {
    /// The objects in the order of the server.
    pub objects: Vec<Object>,
    /// Number of entries that were not objects.
    pub skipped: usize,
}

/// A list that is read page by page, with at most one page in memory.
pub struct Pages<'a> {
    client: &'a Client,
    path: &'a str,
    operation: &'static str,
    page_size: usize,
    cursor: Option<String>,
    cursors: BTreeSet<String>,
    pages: usize,
    has_ended: bool,
    skipped: usize,
    members: Option<&'a [&'a str]>,
}

impl Client {
    /// Prepares to read the list at this path in pages of at most `page_size` objects. Nothing is sent.
    pub fn pages<'a>(&'a self, path: &'a str, operation: &'static str, page_size: usize) -> Pages<'a> {
        Pages {
            client: self,
            path,
            operation,
            page_size: page_size.max(1),
            cursor: None,
            cursors: BTreeSet::new(),
            pages: 0,
            has_ended: false,
            skipped: 0,
            members: None,
        }
    }
}

impl<'a> Pages<'a> {
    /// Keeps only the members with these names in each object.
    #[must_use]
    pub fn keeping(self, members: &'a [&'a str]) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Returns all remaining objects.
    ///
    /// # Errors
    /// Those of the calls, and [`Kind::Unavailable`] if an answer is not a list, if a cursor repeats, or if the list
    /// has more than 500 pages or takes more than 64 MiB of memory.
    pub async fn all(mut self) -> Result<Listing, Error> {
        let (mut objects, mut kept) = (Vec::new(), 0);
        while let Some(page) = self.next().await? {
            kept += page.iter().map(Object::size).sum::<usize>();
            if kept > MAX_BYTES {
                return Err(self.wrong("the list takes more than 64 MiB of memory"));
            }
            objects.extend(page);
        }
        Ok(Listing { objects, skipped: self.skipped })
    }

    /// Returns the objects of the next page, or `None` after the last page.
    pub async fn next(&mut self) -> Result<Option<Vec<Object>>, Error> {
        if self.has_ended {
            return Ok(None);
        }
        let mut page = self.read().await?;
        let Some(Value::Array(results)) = page.0.remove("results") else {
            return Err(self.wrong("the answer has no list of results"));
        };
        let is_empty = results.is_empty();
        let mut objects = Vec::new();
        for result in results {
            match result {
                Value::Object(object) => objects.push(Object(match self.members {
                    None => object,
                    // Builds a new map, because a map keeps its memory when members are removed.
                    Some(kept) => object.into_iter().filter(|(member, _)| kept.contains(&member.as_str())).collect(),
                })),
                _ => self.skipped += 1,
            }
        }
        self.pages += 1;
        match next_cursor(&page.0).filter(|_| !is_empty) {
            None => self.has_ended = true,
            Some(next) if !self.cursors.insert(next.clone()) => return Err(self.wrong("a cursor came twice")),
            Some(_) if self.pages >= MAX_PAGES => return Err(self.wrong("the list has more than 500 pages")),
            Some(next) => self.cursor = Some(next),
        }
        Ok(Some(objects))
    }

    /// Fetches the next page. Halves the page size while the answer is too large.
    async fn read(&mut self) -> Result<Object, Error> {
        loop {
            let size = self.page_size.to_string();
            let mut query = vec![("page_size", size.as_str())];
            query.extend(self.cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let get = NsxCall::get(self.path, self.operation);
            let call = NsxCall { query: &query, shape: Shape::Page, ..get };
            match self.client.object(call).await {
                Err(error) if self.page_size > 1 && is_too_large(&error) => self.page_size /= 2,
                other => return other,
            }
        }
    }

    fn wrong(&self, message: &str) -> Error {
        let request = self.client.inner.http.failed(self.operation);
        Error::other(Kind::Unavailable, request, format!("GET {}", self.path), message)
    }
}

/// Returns the cursor of the next page. Some versions send a number.
fn next_cursor(page: &Map<String, Value>) -> Option<String> {
    match page.get("cursor")? {
        Value::String(cursor) if !cursor.is_empty() => Some(cursor.clone()),
        Value::Number(cursor) => Some(cursor.to_string()),
        _ => None,
    }
}

fn is_too_large(error: &Error) -> bool {
    matches!(error.http_error(), Some(http::Error::TooLarge(..) | http::Error::TooManyValues(..)))
}
