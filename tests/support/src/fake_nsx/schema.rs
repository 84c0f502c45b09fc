//! Checks a body against the table of types, fills in defaults, and finds the references in it.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::kinds::{COMMON, Field, Kind, READ_ONLY, Shape, Variant};
use super::refusal::Refusal;

type Object = Map<String, Value>;

/// A reference: the path, and the collections that it may point to.
pub(super) type Reference = (String, &'static [&'static str]);

/// A body with defaults, without the fields that only the manager writes.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) variant: &'static Variant,
    pub(super) body: Object,
    pub(super) references: Vec<Reference>,
}

/// Returns the fields of a body that the client may write, without `null`s.
pub(super) fn writable(sent: &Object) -> Object {
    let is_ignored = |name: &str| READ_ONLY.contains(&name) || matches!(name, "id" | "_revision" | "resource_type");
    let fields = sent.iter().filter(|(name, value)| !is_ignored(name) && !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Checks the body of the object with this id: each field is known and has its type. Unknown fields that the object
/// already has are accepted as fields of a newer manager, with any value.
pub(super) fn check(
    kind: &'static Kind,
    id: &str,
    sent: &Object,
    existing: Option<&Object>,
) -> Result<Checked, Refusal> {
    if sent.get("id").is_some_and(|sent| sent != id) {
        return Err(Refusal::invalid(format!("\"id\": differs from {id} in the path")));
    }
    if sent.get("_revision").is_some_and(|revision| !revision.is_null() && !revision.is_i64()) {
        return Err(Refusal::invalid("\"_revision\": an integer is expected"));
    }
    let variant = variant_of(kind, sent)?;
    let is_known = |name: &str| COMMON.iter().chain(variant.fields).any(|field| field.name == name);
    let is_newer = |name: &str| !is_known(name) && existing.is_some_and(|existing| existing.contains_key(name));
    let (newer, mut body): (Object, Object) = writable(sent).into_iter().partition(|(name, _)| is_newer(name));
    let mut references = Vec::new();
    check_fields("", &[COMMON, variant.fields], &mut body, &mut references)?;
    body.extend(newer);
    Ok(Checked { variant, body, references })
}

/// Like [`check`], for an object that is changed by hand: nothing is rejected.
pub(super) fn take(kind: &'static Kind, sent: &Object) -> Checked {
    let variant = variant_of(kind, sent).unwrap_or(&kind.variants[0]);
    let mut body = writable(sent);
    let mut references = Vec::new();
    let mut complete = body.clone();
    if check_fields("", &[COMMON, variant.fields], &mut complete, &mut references).is_ok() {
        body = complete;
    }
    Checked { variant, body, references }
}

fn variant_of(kind: &'static Kind, sent: &Object) -> Result<&'static Variant, Refusal> {
    let named = match sent.get("resource_type") {
        None | Some(Value::Null) if !kind.is_polymorphic => return Ok(&kind.variants[0]),
        None | Some(Value::Null) => return Err(Refusal::invalid("\"resource_type\": is required")),
        Some(named) => named.as_str().unwrap_or_default(),
    };
    let found = kind.variants.iter().find(|variant| variant.name == named);
    found.ok_or_else(|| Refusal::invalid(format!("\"resource_type\": {named:?} is no type of {}", kind.collection())))
}

fn check_fields(
    at: &str,
    fields: &[&'static [Field]],
    object: &mut Object,
    references: &mut Vec<Reference>,
) -> Result<(), Refusal> {
    let known = || fields.iter().copied().flatten();
    for (name, value) in object.iter_mut() {
        let Some(field) = known().find(|field| field.name == name) else {
            return Err(Refusal::new(400, 220, format!("Json parse error: Unrecognized field \"{at}{name}\"")));
        };
        check_value(&format!("{at}{name}"), &field.shape, value, references)?;
    }
    for field in known().filter(|field| !object.contains_key(field.name)).collect::<Vec<_>>() {
        if field.is_required {
            return Err(Refusal::invalid(format!("\"{at}{}\": is required", field.name)));
        }
        if let Some(default) = field.default {
            let default = serde_json::from_str(default).expect("the table has JSON");
            object.insert(field.name.to_owned(), default);
        }
    }
    Ok(())
}

fn check_value(
    at: &str,
    shape: &'static Shape,
    value: &mut Value,
    references: &mut Vec<Reference>,
) -> Result<(), Refusal> {
    let text = value.as_str();
    let is_valid = match shape {
        Shape::Any => true,
        Shape::Bool => value.is_boolean(),
        Shape::Int(least, most) => value.as_i64().is_some_and(|number| (*least..=*most).contains(&number)),
        Shape::Text(most) => text.is_some_and(|text| text.chars().count() <= *most),
        Shape::OneOf(values) => text.is_some_and(|text| values.contains(&text)),
        Shape::Ip => text.is_some_and(|text| text.parse::<IpAddr>().is_ok()),
        Shape::Cidr => text.is_some_and(|text| cidr(text).is_some()),
        Shape::Port => text.and_then(port).is_some(),
        Shape::Ports => text.and_then(ports).is_some(),
        Shape::Path(collections) => {
            references.extend(text.map(|path| (path.to_owned(), *collections)));
            text.is_some_and(|path| path.starts_with("/infra/"))
        }
        Shape::List(entry, least, most) => return check_list(at, entry, (*least, *most), value, references),
        Shape::Object(fields) => match value.as_object_mut() {
            Some(object) => return check_fields(&format!("{at}."), &[fields], object, references),
            None => false,
        },
        Shape::Union(discriminator, variants) => return check_union(at, discriminator, variants, value, references),
    };
    if is_valid { Ok(()) } else { Err(wrong(at, value)) }
}

fn wrong(at: &str, value: &Value) -> Refusal {
    Refusal::invalid(format!("\"{at}\": {value} is not of the type or range of the field"))
}

fn check_list(
    at: &str,
    entry: &'static Shape,
    (least, most): (usize, usize),
    value: &mut Value,
    references: &mut Vec<Reference>,
) -> Result<(), Refusal> {
    match value.as_array_mut() {
        Some(entries) if (least..=most).contains(&entries.len()) => {
            let mut entries = entries.iter_mut().enumerate();
            entries.try_for_each(|(index, value)| check_value(&format!("{at}[{index}]"), entry, value, references))
        }
        _ => Err(wrong(at, value)),
    }
}

fn check_union(
    at: &str,
    discriminator: &str,
    variants: &'static [Variant],
    value: &mut Value,
    references: &mut Vec<Reference>,
) -> Result<(), Refusal> {
    let named = value.get(discriminator).and_then(Value::as_str).map(str::to_owned);
    let variant = variants.iter().find(|variant| Some(variant.name) == named.as_deref());
    let (Some(variant), Some(object)) = (variant, value.as_object_mut()) else {
        return Err(Refusal::invalid(format!("\"{at}.{discriminator}\": {named:?} is no known type")));
    };
    let kept = object.remove(discriminator);
    let checked = check_fields(&format!("{at}."), &[variant.fields], object, references);
    object.extend(kept.map(|kept| (discriminator.to_owned(), kept)));
    checked
}

/// Returns address and length of a prefix.
pub(super) fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Returns the first and the last port of a port or a range.
pub(super) fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some((first, last))
}
