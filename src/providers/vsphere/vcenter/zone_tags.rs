//! Pure: the tags of objects, and the resulting zone and region.

use std::collections::BTreeSet;

use crate::clients::vim::MoRef;

/// The names of the tag categories of zone and region. The names are case-sensitive and never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCategories {
    /// The category whose tag is the zone.
    pub zone: String,
    /// The category whose tag is the region.
    pub region: String,
}

impl ZoneCategories {
    /// Returns the zones among `tags`, sorted by name. If zone and region have the same category, its tags are
    /// zones.
    pub fn zones<'a>(&self, tags: &'a [Tag]) -> impl Iterator<Item = &'a str> + use<'a> {
        names_of(&self.zone, tags)
    }

    /// Returns the regions among `tags`, sorted by name.
    pub fn regions<'a>(&self, tags: &'a [Tag]) -> impl Iterator<Item = &'a str> + use<'a> {
        let tags = if self.region == self.zone { &[] } else { tags };
        names_of(&self.region, tags)
    }

    /// Returns the tags of both categories without duplicates.
    pub fn among(&self, tags: &[Tag]) -> Vec<Tag> {
        let tag = |category: &str, name: &str| Tag { name: name.to_owned(), category: category.to_owned() };
        let zones = self.zones(tags).map(|name| tag(&self.zone, name));
        zones.chain(self.regions(tags).map(|name| tag(&self.region, name))).collect()
    }

    /// Returns warnings about several tags of one category on an object. Only the first tag by name counts.
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

/// A tag of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name of the tag, which becomes the label value.
    pub name: String,
    /// The name of the tag's category.
    pub category: String,
}

/// The tags of one object, if readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectTags {
    /// All tags, possibly none. The order has no meaning.
    Read(Vec<Tag>),
    /// The tags are unreadable. The text is the reason, for operators.
    Unreadable(String),
}
