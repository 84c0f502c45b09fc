//! Results of property reads and waits.

use std::borrow::Cow;

use super::MoRef;
use super::decoder::{DecodeError, Decoder};
use super::fault::Fault;
use super::value::{Value, read_reference, read_value};

/// One object of a property read. Unset properties are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectContent {
    /// The object.
    pub object: MoRef,
    /// Its properties by path.
    pub properties: Vec<(String, Value)>,
    /// The properties that could not be read.
    pub missing: Vec<MissingProperty>,
}

impl ObjectContent {
    /// Returns the value of a path, if the property is set and readable.
    pub fn property(&self, path: &str) -> Option<&Value> {
        self.properties.iter().find(|(name, _)| name == path).map(|(_, value)| value)
    }
}

/// A property that could not be read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProperty {
    /// The path.
    pub path: String,
    /// The server's reason.
    pub fault: Fault,
}

/// Result of one wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateSet {
    /// The opaque version for the next wait. The version of a truncated set is valid only once.
    pub version: String,
    /// The changes, by filter.
    pub filters: Vec<FilterUpdate>,
    /// Whether there are more changes. If so, the caller must start the next wait immediately.
    pub truncated: bool,
}

/// The changes for one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterUpdate {
    /// The filter.
    pub filter: MoRef,
    /// The changes, to be applied in order. One object may occur several times.
    pub objects: Vec<ObjectUpdate>,
}

/// Kind of a change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateKind {
    /// The filter now covers the object, or the server reports the object completely again.
    Enter,
    /// Some of the object's properties changed.
    Modify,
    /// The filter no longer covers the object, which was destroyed, moved away, or became unreadable.
    Leave,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUpdate {
    /// The kind of change.
    pub kind: UpdateKind,
    /// The object.
    pub object: MoRef,
    /// All set properties for `Enter`; otherwise the changed properties.
    pub changes: Vec<PropertyChange>,
    /// The properties that cannot be read.
    pub missing: Vec<MissingProperty>,
}

/// A change of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyChange {
    /// The path, as requested.
    pub name: String,
    /// The new value; `None` if the property is unset or was removed.
    pub value: Option<Value>,
}

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<ObjectContent>,
    /// The token of the next page; `None` after the last page. `0` is a valid token.
    pub(super) token: Option<String>,
}

pub(super) fn read_page(decoder: &mut Decoder<'_>) -> Result<Page, DecodeError> {
    let mut page = Page::default();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "token" => page.token = Some(decoder.text()?),
            "objects" => page.objects.push(read_object_content(decoder)?),
            _ => decoder.skip()?,
        }
    }
    Ok(page)
}

fn read_object_content(decoder: &mut Decoder<'_>) -> Result<ObjectContent, DecodeError> {
    let mut object = None;
    let mut properties = Vec::new();
    let mut missing = Vec::new();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "obj" => object = Some(read_reference(decoder, &part)?),
            "propSet" => {
                let (name, _, value) = read_change_parts(decoder)?;
                if let Some(value) = value {
                    properties.push((name, value));
                }
            }
            "missingSet" => missing.push(read_missing_property(decoder)?),
            _ => decoder.skip()?,
        }
    }
    Ok(ObjectContent { object: object.ok_or(DecodeError::Missing("obj"))?, properties, missing })
}

pub(super) fn read_update_set(decoder: &mut Decoder<'_>) -> Result<UpdateSet, DecodeError> {
    let mut version = None;
    let mut filters = Vec::new();
    let mut truncated = false;
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "version" => version = Some(decoder.text()?),
            "filterSet" => filters.push(read_filter_update(decoder)?),
            "truncated" => truncated = decoder.leaf()?.trim() == "true",
            _ => decoder.skip()?,
        }
    }
    Ok(UpdateSet { version: version.ok_or(DecodeError::Missing("version"))?, filters, truncated })
}

fn read_filter_update(decoder: &mut Decoder<'_>) -> Result<FilterUpdate, DecodeError> {
    let (mut filter, mut objects) = (None, Vec::new());
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "filter" => filter = Some(read_reference(decoder, &part)?),
            "objectSet" => objects.push(read_object_update(decoder)?),
            _ => decoder.skip()?,
        }
    }
    Ok(FilterUpdate { filter: filter.ok_or(DecodeError::Missing("filter"))?, objects })
}

fn read_object_update(decoder: &mut Decoder<'_>) -> Result<ObjectUpdate, DecodeError> {
    let mut kind = None;
    let mut object = None;
    let mut changes = Vec::new();
    let mut missing = Vec::new();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "kind" => kind = Some(parse_kind(&decoder.leaf()?)?),
            "obj" => object = Some(read_reference(decoder, &part)?),
            "changeSet" => {
                let (name, op, value) = read_change_parts(decoder)?;
                let has_value = has_value(op.as_deref())?;
                changes.push(PropertyChange { name, value: value.filter(|_| has_value) });
            }
            "missingSet" => missing.push(read_missing_property(decoder)?),
            _ => decoder.skip()?,
        }
    }
    let kind = kind.ok_or(DecodeError::Missing("kind"))?;
    Ok(ObjectUpdate { kind, object: object.ok_or(DecodeError::Missing("obj"))?, changes, missing })
}

fn parse_kind(text: &str) -> Result<UpdateKind, DecodeError> {
    match text.trim() {
        "enter" => Ok(UpdateKind::Enter),
        "modify" => Ok(UpdateKind::Modify),
        "leave" => Ok(UpdateKind::Leave),
        other => Err(DecodeError::Unexpected { element: "kind", found: other.chars().take(40).collect() }),
    }
}

/// Whether the property has a value after this operation (`PropertyChangeOp`).
fn has_value(op: Option<&str>) -> Result<bool, DecodeError> {
    match op.map(str::trim) {
        Some("assign" | "add") => Ok(true),
        Some("remove" | "indirectRemove") => Ok(false),
        Some(other) => Err(DecodeError::Unexpected { element: "op", found: other.chars().take(40).collect() }),
        None => Err(DecodeError::Missing("op")),
    }
}

type ChangeParts<'a> = (String, Option<Cow<'a, str>>, Option<Value>);

/// Reads `name`, `op` and `val` of a `changeSet` or `propSet`.
fn read_change_parts<'a>(decoder: &mut Decoder<'a>) -> Result<ChangeParts<'a>, DecodeError> {
    let mut name = None;
    let mut op = None;
    let mut value = None;
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "name" => name = Some(decoder.text()?),
            "op" => op = Some(decoder.leaf()?),
            "val" => value = Some(read_value(decoder, &part)?),
            _ => decoder.skip()?,
        }
    }
    Ok((name.ok_or(DecodeError::Missing("name"))?, op, value))
}

fn read_missing_property(decoder: &mut Decoder<'_>) -> Result<MissingProperty, DecodeError> {
    let (mut path, mut fault) = (None, None);
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "path" => path = Some(decoder.text()?),
            "fault" => fault = Some(Fault::read(decoder, false)?),
            _ => decoder.skip()?,
        }
    }
    let path = path.ok_or(DecodeError::Missing("path"))?;
    Ok(MissingProperty { path, fault: fault.ok_or(DecodeError::Missing("fault"))? })
}

#[cfg(test)]
mod tests;
