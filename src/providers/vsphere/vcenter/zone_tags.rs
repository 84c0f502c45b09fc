//! Pure: the tags of objects, and the zone and region that they give.

use std::collections::BTreeSet;

use crate::clients::vim::MoRef;

/// The tag categories of zone and region; never empty, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCategories {
    /// The name of the category whose tag gives the zone.
    pub zone: String,
    /// The name of the category whose tag gives the region.
    pub region: String,
}

impl ZoneCategories {
    /// The zones among `tags`, sorted by name. With one category for both, every tag counts as zone, as in the Go
    /// program.
    pub fn zones<'a>(&self, tags: &'a [Tag]) -> impl Iterator<Item = &'a str> + use<'a> {
        names_of(&self.zone, tags)
    }

    /// The regions among `tags`, sorted by name.
    pub fn regions<'a>(&self, tags: &'a [Tag]) -> impl Iterator<Item = &'a str> + use<'a> {
        let tags = if self.region == self.zone { &[] } else { tags };
        names_of(&self.region, tags)
    }

    /// The tags of both categories without duplicates, by name.
    pub fn among(&self, tags: &[Tag]) -> Vec<Tag> {
        let of = |category: &String| {
            let tag = |name: &str| Tag { name: name.to_owned(), category: category.clone() };
            names_of(category, tags).map(tag).collect::<Vec<_>>()
        };
        let regions = if self.region == self.zone { Vec::new() } else { of(&self.region) };
        of(&self.zone).into_iter().chain(regions).collect()
    }

    /// Warnings for an object with several tags of one category, of which only the first by name counts.
    pub fn notices(&self, object: &MoRef, tags: &[Tag]) -> Vec<String> {
        let reported = |category: &str, mut names: Box<dyn Iterator<Item = &str> + '_>| {
            let first = names.next()?;
            let others: Vec<String> = names.map(|name| format!("{name:?}")).collect();
            (!others.is_empty()).then(|| {
                format!(
                    "{object} has several tags of category {category:?}: {first:?}, {}; {first:?} is taken, the first \
                     by name; detach the others",
                    others.join(", ")
                )
            })
        };
        let zones = reported(&self.zone, Box::new(self.zones(tags)));
        zones.into_iter().chain(reported(&self.region, Box::new(self.regions(tags)))).collect()
    }
}

fn names_of<'a>(category: &str, tags: &'a [Tag]) -> impl Iterator<Item = &'a str> + use<'a> {
    let of_category = tags.iter().filter(|tag| tag.category == category);
    of_category.map(|tag| tag.name.as_str()).collect::<BTreeSet<_>>().into_iter()
}

/// A tag as attached to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name of the tag; becomes the label value.
    pub name: String,
    /// The name of its category.
    pub category: String,
}

/// The tags of one object, if readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectTags {
    /// All tags; may be none. Their order has no meaning.
    Read(Vec<Tag>),
    /// Unreadable; the text says why, for operators.
    Unreadable(String),
}
