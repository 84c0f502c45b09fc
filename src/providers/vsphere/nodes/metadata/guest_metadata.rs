//! Pure: reads the static addresses in a VM's cloud-init metadata, which decide the order of the Node's addresses.
//!
//! Mirrors the reading half of `nodemanager.go:sortStaticallyConfiguredAddressesFirst`. The Go program fails the whole
//! discovery if metadata is unreadable, so that the Node is never initialized. It accepts only `base64`, and reads
//! ethernets in random order. If metadata is unreadable, this program continues without an order. It accepts every
//! encoding that cloud-init accepts, and keeps the order of the document.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::IpAddr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::MultiGzDecoder;

use crate::base::addresses::parse_ip;
use crate::base::limited_read::read_limited;
use crate::base::yaml::{self, Aliases, Entry, Node, Value, YamlError};

/// Maximum size of a metadata or network document, in bytes, decoded and unpacked.
const MAX_BYTES: usize = 1 << 20;

/// Go's `base64.StdEncoding`: padded, and lenient about unused bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Reason why metadata gives no order. Errors repeat nothing of the metadata, because it may contain secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A document exceeds the size limit.
    #[error("{0} is larger than {MAX_BYTES} bytes")]
    TooLarge(&'static str),
    /// A document is not padded standard base64.
    #[error("{0} is not padded standard base64")]
    Base64(&'static str),
    /// A document is not gzip.
    #[error("{0} is not gzip data")]
    Gzip(&'static str),
    /// A document is not UTF-8 text.
    #[error("{0} is not UTF-8 text")]
    Utf8(&'static str),
    /// A document is not YAML.
    #[error("{0} cannot be read")]
    Yaml(&'static str, #[source] YamlError),
    /// A value has an unexpected form.
    #[error("cannot unmarshal {0}: expected {1}")]
    Shape(&'static str, &'static str),
}

const METADATA: &str = "guestinfo.metadata";
const NETWORK: &str = "the network section of guestinfo.metadata";

/// Returns the static addresses in document order, without duplicates.
///
/// The encodings are those of cloud-init's VMware data source: `base64`, `b64`, `gzip+base64`, `gz+b64`, and none for
/// plain text. Any other encoding gives no order. The Go program accepts only `base64`.
///
/// # Errors
/// Fails if the metadata cannot be read. The addresses then keep the guest's order.
pub fn parse_static_order(metadata: Option<&str>, encoding: Option<&str>) -> Result<Vec<IpAddr>, MetadataError> {
    let Some(metadata) = metadata.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    let bytes = match encoding.unwrap_or_default() {
        "base64" | "b64" => decode_base64(metadata, METADATA)?,
        "gzip+base64" | "gz+b64" => unpack(&decode_base64(metadata, METADATA)?, METADATA)?,
        "" if metadata.len() > MAX_BYTES => return Err(MetadataError::TooLarge(METADATA)),
        "" => metadata.as_bytes().to_vec(),
        _ => return Ok(Vec::new()),
    };
    let document = parse_yaml(bytes, METADATA)?;
    let Some(top) = map_of(&document, METADATA)? else { return Ok(Vec::new()) };
    let network = find(top, "network");
    match text_of(find(top, "network.encoding"), "network.encoding")? {
        Some("base64" | "b64") => encoded_network(network, false),
        Some("gzip+base64" | "gz+b64") => encoded_network(network, true),
        _ => match network {
            Some(network) => addresses_of(network),
            None => Ok(Vec::new()),
        },
    }
}

fn encoded_network(network: Option<&Node>, gzip: bool) -> Result<Vec<IpAddr>, MetadataError> {
    let Some(text) = text_of(network, "network")? else { return Ok(Vec::new()) };
    let mut bytes = decode_base64(text, NETWORK)?;
    if gzip {
        bytes = unpack(&bytes, NETWORK)?;
    }
    addresses_of(&parse_yaml(bytes, NETWORK)?)
}

fn decode_base64(text: &str, document: &'static str) -> Result<Vec<u8>, MetadataError> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    // The estimate exceeds the decoded length by up to two bytes of padding.
    if digits.len() / 4 * 3 > MAX_BYTES + 2 {
        return Err(MetadataError::TooLarge(document));
    }
    let bytes = BASE64.decode(digits).map_err(|_| MetadataError::Base64(document))?;
    if bytes.len() > MAX_BYTES { Err(MetadataError::TooLarge(document)) } else { Ok(bytes) }
}

fn unpack(bytes: &[u8], document: &'static str) -> Result<Vec<u8>, MetadataError> {
    match read_limited(MultiGzDecoder::new(bytes), 0, MAX_BYTES) {
        Ok(mut unpacked) => Ok(std::mem::take(&mut *unpacked)),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(MetadataError::TooLarge(document)),
        Err(_) => Err(MetadataError::Gzip(document)),
    }
}

fn parse_yaml(bytes: Vec<u8>, document: &'static str) -> Result<Node, MetadataError> {
    let text = String::from_utf8(bytes).map_err(|_| MetadataError::Utf8(document))?;
    yaml::parse_document(&text, Aliases::Refused).map_err(|source| MetadataError::Yaml(document, source))
}

/// Returns the addresses of a netplan document: the `addresses` of each entry of `ethernets`.
fn addresses_of(network: &Node) -> Result<Vec<IpAddr>, MetadataError> {
    let (mut addresses, mut observed) = (Vec::new(), HashSet::new());
    let Some(ethernets) = map_of(network, "network")?.and_then(|network| find(network, "ethernets")) else {
        return Ok(addresses);
    };
    for ethernet in map_of(ethernets, "ethernets")?.unwrap_or_default() {
        let Some(listed) = map_of(&ethernet.node, "an ethernet")?.and_then(|map| find(map, "addresses")) else {
            continue;
        };
        for item in list_of(listed, "addresses")? {
            let text = text_of(Some(item), "an address")?.unwrap_or_default();
            let text = text.split_once('/').map_or(text, |(address, _)| address);
            let Some(ip) = parse_ip(text) else { continue };
            if observed.insert(ip) {
                addresses.push(ip);
            }
        }
    }
    Ok(addresses)
}

/// Returns the last value of a key; `None` if the value is null.
fn find<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Node> {
    let node = entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.node)?;
    if matches!(node.value, Value::Null) { None } else { Some(node) }
}

fn map_of<'a>(node: &'a Node, what: &'static str) -> Result<Option<&'a [Entry]>, MetadataError> {
    match &node.value {
        Value::Map(entries) => Ok(Some(entries)),
        Value::Null => Ok(None),
        Value::Scalar { .. } | Value::List(_) => Err(MetadataError::Shape(what, "a mapping")),
    }
}

fn list_of<'a>(node: &'a Node, what: &'static str) -> Result<&'a [Node], MetadataError> {
    match &node.value {
        Value::List(items) => Ok(items),
        _ => Err(MetadataError::Shape(what, "a list")),
    }
}

fn text_of<'a>(node: Option<&'a Node>, what: &'static str) -> Result<Option<&'a str>, MetadataError> {
    match node.map(|node| &node.value) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Scalar { text, .. }) => Ok(Some(text)),
        Some(Value::List(_) | Value::Map(_)) => Err(MetadataError::Shape(what, "text")),
    }
}

#[cfg(test)]
mod tests;
