//! Reads categories, tags and their attachments.
//!
//! Answers silently omit objects that the user has no privilege to read, so an empty list does not prove that there are
//! no objects. An empty list may be `null`, but an answer without the list is malformed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::exchange::TaggingCall;
use super::{Client, Error, Refusal};
use crate::clients::object::MoRef;

/// Maximum number of ids in a batch call, as documented by VMware.
const BATCH: usize = 2_000;

/// A category of tags.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Category {
    /// The URN of the category.
    pub id: String,
    /// The name, unique within the vCenter.
    pub name: String,
}

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Tag {
    /// The URN of the tag.
    pub id: String,
    /// The name, unique within the category.
    pub name: String,
    /// The URN of the category.
    pub category_id: String,
}

/// The objects that a tag is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TagObjects {
    /// The tag's URN.
    pub tag_id: String,
    /// The objects that the user can read. The simulator answers `null` for an unknown tag.
    #[serde(rename = "object_ids", deserialize_with = "list")]
    pub objects: Vec<MoRef>,
}

/// The tags attached to an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ObjectTags {
    /// The object.
    #[serde(rename = "object_id")]
    pub object: MoRef,
    /// The URNs of the tags that the user can read.
    #[serde(deserialize_with = "list")]
    pub tag_ids: Vec<String>,
}

/// Reads a required list; `null` is an empty one.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Client {
    /// Returns the ids of all categories.
    pub async fn list_categories(&self) -> Result<Vec<String>, Error> {
        let ids: Option<Vec<String>> = self.get("category.list", None).await?;
        Ok(ids.unwrap_or_default())
    }

    /// Returns a category, or `None` if the category does not exist.
    pub async fn fetch_category(&self, id: &str) -> Result<Option<Category>, Error> {
        absent_when_not_found(self.get("category.get", Some(id)).await)
    }

    /// Returns the ids of a category's tags, or `None` if the category does not exist.
    pub async fn list_tags_of_category(&self, category: &str) -> Result<Option<Vec<String>>, Error> {
        let body = Some(json!({ "category_id": category }));
        let call = TaggingCall { operation: "tag.list-tags-for-category", id: Some(category), body };
        let ids: Result<Option<Vec<String>>, Error> = self.fetch(call).await;
        Ok(absent_when_not_found(ids)?.map(Option::unwrap_or_default))
    }

    /// Returns a tag, or `None` if the tag does not exist.
    pub async fn fetch_tag(&self, id: &str) -> Result<Option<Tag>, Error> {
        absent_when_not_found(self.get("tag.get", Some(id)).await)
    }

    /// Returns the objects of many tags, read in batches. Answers may omit tags that are unknown or unreadable.
    pub async fn list_attached_objects_on_tags(&self, tags: &[String]) -> Result<Vec<TagObjects>, Error> {
        self.fetch_batches("tag-association.list-attached-objects-on-tags", "tag_ids", tags).await
    }

    /// Returns the tags of many objects, read in batches. Answers may omit objects that are unknown or unreadable.
    pub async fn list_attached_tags_on_objects(&self, objects: &[MoRef]) -> Result<Vec<ObjectTags>, Error> {
        self.fetch_batches("tag-association.list-attached-tags-on-objects", "object_ids", objects).await
    }

    async fn get<T: DeserializeOwned>(&self, operation: &'static str, id: Option<&str>) -> Result<T, Error> {
        self.fetch(TaggingCall { operation, id, body: None }).await
    }

    async fn fetch_batches<I: Serialize, T: DeserializeOwned>(
        &self,
        operation: &'static str,
        field: &'static str,
        ids: &[I],
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for batch in ids.chunks(BATCH) {
            let body = Some(json!({ (field): batch }));
            let rows: Option<Vec<T>> = self.fetch(TaggingCall { operation, id: None, body }).await?;
            all.extend(rows.into_iter().flatten());
        }
        Ok(all)
    }
}

fn absent_when_not_found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is(Refusal::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests;
