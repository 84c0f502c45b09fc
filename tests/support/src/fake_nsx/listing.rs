//! Lists: order, pages and cursors (rule S10).

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::behaviour::{Cursor, EqualNames, LastCursor, ResultCount};
use super::kinds::Kind;
use super::refusal::Refusal;
use super::store::Stored;
use super::world::World;

/// Decoded names and values of the parameters.
pub(super) type Query = [(String, String)];

const PARAMETERS: [&str; 6] =
    ["cursor", "include_mark_for_delete_objects", "included_fields", "page_size", "sort_ascending", "sort_by"];

struct PageRequest<'a> {
    cursor: Option<&'a str>,
    size: usize,
    is_ascending: bool,
    sort_by: Option<&'a str>,
    includes_marked: bool,
    included_fields: Option<Vec<&'a str>>,
    /// The parameters other than the cursor. Those of the next page must be equal.
    parameters: String,
}

impl<'a> PageRequest<'a> {
    fn parse(query: &'a Query) -> Result<Self, Refusal> {
        if let Some((name, _)) = query.iter().find(|(name, _)| !PARAMETERS.contains(&name.as_str())) {
            return Err(Refusal::invalid(format!("{name:?} is no parameter of this request")));
        }
        let text = |wanted: &str| query.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let flag = |wanted: &str, default: bool| match text(wanted) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(Refusal::invalid(format!("\"{wanted}\": {other:?} is no boolean"))),
        };
        let size = text("page_size").map_or(Ok(1000), str::parse);
        let size = size.ok().filter(|size| (1..=1000).contains(size));
        let others = query.iter().filter(|(name, _)| name != "cursor").map(|(name, value)| format!("{name}={value}"));
        let mut others: Vec<String> = others.collect();
        others.sort();
        Ok(Self {
            cursor: text("cursor").filter(|cursor| !cursor.is_empty()),
            size: size.ok_or_else(|| Refusal::invalid("\"page_size\": 1 to 1000 are possible"))?,
            is_ascending: flag("sort_ascending", true)?,
            sort_by: text("sort_by"),
            includes_marked: flag("include_mark_for_delete_objects", false)?,
            included_fields: text("included_fields").map(|fields| fields.split(',').collect()),
            parameters: others.join("&"),
        })
    }

    /// Returns the requested fields.
    fn select(&self, object: Value) -> Value {
        match (&self.included_fields, object) {
            (Some(fields), Value::Object(object)) => {
                object.into_iter().filter(|(name, _)| fields.contains(&name.as_str())).collect::<Map<_, _>>().into()
            }
            (_, object) => object,
        }
    }
}

/// The position of an object in the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    value: String,
    tie: u64,
    path: String,
}

struct PageStart {
    offset: usize,
    /// The last object of the previous page.
    after: Option<SortKey>,
}

impl PageStart {
    fn encode(&self, parameters: &str) -> String {
        let key = self.after.as_ref().map(|key| (&key.value, key.tie, &key.path));
        let text = json!([parameters, self.offset, key]).to_string();
        format!("0004{}", text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn decode(cursor: &str, parameters: &str) -> Option<Self> {
        let digits = cursor.strip_prefix("0004")?.as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let (of, offset, key): (String, usize, Option<(String, u64, String)>) = serde_json::from_slice(&bytes?).ok()?;
        let after = key.map(|(value, tie, path)| SortKey { value, tie, path });
        (of == parameters).then_some(Self { offset, after })
    }
}

impl World {
    fn key(&self, stored: &Stored, sort_by: &str, request: u64) -> SortKey {
        let value = match sort_by {
            // The default order, without building the whole object.
            "display_name" => stored.display_name().to_owned(),
            _ => match stored.render("").get(sort_by) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            },
        };
        let tie = match self.behaviour.equal_names {
            EqualNames::ById => 0,
            EqualNames::NewestFirst => u64::MAX - stored.number,
            EqualNames::Unstable => {
                let mut hasher = DefaultHasher::new();
                (request, &stored.path).hash(&mut hasher);
                hasher.finish()
            }
        };
        SortKey { value, tie, path: stored.path.clone() }
    }

    /// Returns one page of a collection.
    pub(super) fn list(
        &self,
        kind: &'static Kind,
        parent: &str,
        query: &Query,
        (reader, request): (&str, u64),
    ) -> Result<Value, Refusal> {
        let page = PageRequest::parse(query)?;
        if parent != "/infra" && self.store.get(parent).is_none() {
            return Err(Refusal::not_found(parent));
        }
        let sort_by = page.sort_by.unwrap_or("display_name");
        let objects = self.store.collection(kind, parent).filter(|one| page.includes_marked || !one.is_marked());
        let direction = |order: Ordering| if page.is_ascending { order } else { order.reverse() };
        let mut objects: Vec<(SortKey, &Stored)> = objects.map(|one| (self.key(one, sort_by, request), one)).collect();
        objects.sort_by(|one, other| direction(one.0.cmp(&other.0)));
        let start = match page.cursor {
            None => PageStart { offset: 0, after: None },
            Some(cursor) => PageStart::decode(cursor, &page.parameters)
                .ok_or_else(|| Refusal::invalid("\"cursor\": it is not of a request with these parameters"))?,
        };
        let begin = match (&start.after, self.behaviour.cursor) {
            (Some(after), Cursor::Object) => objects.partition_point(|(key, _)| direction(key.cmp(after)).is_le()),
            _ => start.offset.min(objects.len()),
        };
        let end = objects.len().min(begin + page.size.min(self.behaviour.page_limit));
        let rows: Vec<Value> = objects[begin..end].iter().map(|(_, one)| page.select(self.read(one, reader))).collect();
        let mut answer = json!({"results": rows, "sort_by": sort_by, "sort_ascending": page.is_ascending});
        if end < objects.len() || self.behaviour.last_cursor == LastCursor::Present {
            let last = objects[..end].last().map(|(key, _)| key.clone());
            answer["cursor"] = json!(PageStart { offset: end, after: last }.encode(&page.parameters));
        }
        self.count(&mut answer, objects.len(), page.cursor.is_none());
        Ok(answer)
    }

    /// Adds `result_count` to the pages that have it.
    fn count(&self, answer: &mut Value, total: usize, is_first: bool) {
        let is_counted = match self.behaviour.result_count {
            ResultCount::FirstPage => is_first,
            ResultCount::EveryPage => true,
            ResultCount::Missing => false,
        };
        if is_counted {
            answer["result_count"] = json!(total);
        }
    }
}
