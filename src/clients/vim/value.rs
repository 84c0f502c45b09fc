//! Property values, in the shapes that this program needs.

use super::MoRef;
use super::decoder::{DecodeError, Decoder, StartTag, TextOrChild};

/// The value of a property. The path determines the meaning of the value; the shape determines the variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A scalar as written: a string, number, boolean, enumeration or time.
    Text(String),
    /// A reference.
    Ref(MoRef),
    /// A list of references.
    Refs(Vec<MoRef>),
    /// The interfaces of `guest.net`.
    Nics(Vec<GuestNic>),
    /// One entry of `config.extraConfig`.
    OptionValue {
        /// The key.
        key: String,
        /// The value as text.
        value: String,
    },
    /// A value that this program does not read.
    Other,
}

/// One network interface that the guest reports (`GuestNicInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestNic {
    /// The port group; missing for interfaces without a virtual NIC.
    pub network: Option<String>,
    /// The addresses as reported, neither validated nor normalized.
    pub ip_addresses: Vec<String>,
    /// The key of the virtual NIC (4000…), or -1 for an interface that has none.
    pub device_config_id: i32,
}

impl Value {
    /// Returns the text of a scalar, or the value of an option.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::OptionValue { value: text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the reference, if the value is a single reference.
    pub fn as_ref(&self) -> Option<&MoRef> {
        match self {
            Value::Ref(object) => Some(object),
            _ => None,
        }
    }
}

/// Decodes a name for display. vCenter stores `/`, `\` and `%` as `%2f`, `%5c` and `%25`, and escapes nothing else.
pub fn decode_name(name: &str) -> String {
    // `%25` comes last, because it yields the first character of the other escapes.
    const ESCAPES: [(&str, &str); 5] = [("%2f", "/"), ("%2F", "/"), ("%5c", "\\"), ("%5C", "\\"), ("%25", "%")];
    ESCAPES.iter().fold(name.to_owned(), |name, (escape, character)| name.replace(escape, character))
}

pub(super) fn read_value(decoder: &mut Decoder<'_>, start: &StartTag<'_>) -> Result<Value, DecodeError> {
    if let Some(kind) = &start.object_type {
        return Ok(Value::Ref(MoRef::new(kind, decoder.leaf()?)));
    }
    match decoder.text_or_child()? {
        TextOrChild::Text(text) => Ok(match start.xml_type.as_deref() {
            Some("ArrayOfGuestNicInfo") => Value::Nics(Vec::new()),
            Some("ArrayOfManagedObjectReference") => Value::Refs(Vec::new()),
            Some(other) if other.starts_with("ArrayOf") => Value::Other,
            _ => Value::Text(text.into_owned()),
        }),
        TextOrChild::Child(child) => match child.name {
            "ManagedObjectReference" => read_list(decoder, child, read_reference).map(Value::Refs),
            "GuestNicInfo" => read_list(decoder, child, |decoder, _| read_nic(decoder)).map(Value::Nics),
            _ => read_option(decoder, child),
        },
    }
}

pub(super) fn read_reference(decoder: &mut Decoder<'_>, start: &StartTag<'_>) -> Result<MoRef, DecodeError> {
    let kind = start.object_type.as_deref().ok_or(DecodeError::Missing("type"))?;
    Ok(MoRef::new(kind, decoder.leaf()?))
}

/// Reads elements of the same name to the end of their parent. `first` was just entered.
fn read_list<T>(
    decoder: &mut Decoder<'_>,
    first: StartTag<'_>,
    mut read: impl FnMut(&mut Decoder<'_>, &StartTag<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = vec![read(decoder, &first)?];
    while let Some(next) = decoder.next_child()? {
        if next.name == first.name {
            items.push(read(decoder, &next)?);
        } else {
            decoder.skip()?;
        }
    }
    Ok(items)
}

/// Reads an `OptionValue`, which has a key and a value. Any other element with children becomes `Other`.
fn read_option<'a>(decoder: &mut Decoder<'a>, first: StartTag<'a>) -> Result<Value, DecodeError> {
    let (mut key, mut value) = (None, None);
    let mut next = Some(first);
    while let Some(part) = next {
        match part.name {
            "key" => key = Some(decoder.text()?),
            "value" => value = Some(decoder.text()?),
            _ => decoder.skip()?,
        }
        next = decoder.next_child()?;
    }
    Ok(match (key, value) {
        (Some(key), Some(value)) => Value::OptionValue { key, value },
        _ => Value::Other,
    })
}

fn read_nic(decoder: &mut Decoder<'_>) -> Result<GuestNic, DecodeError> {
    let mut nic = GuestNic::default();
    let mut configured = Vec::new();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "network" => nic.network = Some(decoder.text()?),
            "ipAddress" => nic.ip_addresses.push(decoder.text()?),
            "deviceConfigId" => nic.device_config_id = read_key(decoder)?,
            // `ipAddress` and `ipConfig` contain the same addresses. Some Tools versions do not report `ipAddress`.
            "ipConfig" if nic.ip_addresses.is_empty() => configured = read_configured_addresses(decoder)?,
            _ => decoder.skip()?,
        }
    }
    if nic.ip_addresses.is_empty() {
        nic.ip_addresses = configured;
    }
    Ok(nic)
}

fn read_key(decoder: &mut Decoder<'_>) -> Result<i32, DecodeError> {
    let text = decoder.leaf()?;
    let found = || DecodeError::Unexpected { element: "deviceConfigId", found: text.chars().take(40).collect() };
    text.trim().parse().map_err(|_| found())
}

fn read_configured_addresses(decoder: &mut Decoder<'_>) -> Result<Vec<String>, DecodeError> {
    let mut addresses = Vec::new();
    while let Some(part) = decoder.next_child()? {
        if part.name != "ipAddress" {
            decoder.skip()?;
            continue;
        }
        while let Some(field) = decoder.next_child()? {
            if field.name == "ipAddress" {
                addresses.push(decoder.text()?);
            } else {
                decoder.skip()?;
            }
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests;
