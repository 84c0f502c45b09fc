//! What a guest says of itself: its cloud-init metadata.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ccm::providers::vsphere::nodes::metadata::guest_metadata::{MetadataError, parse_static_order};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::laws::{cuts, is_told_well};

/// No document of more bytes is read.
pub const MAX_BYTES: u32 = 1 << 20;

/// The first line is the encoding, the rest the metadata; `pack` packs it in every encoding, and `bomb` makes a document
/// of it that is too large when it is unpacked.
pub fn metadata(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (encoding, metadata) = text.split_once('\n').unwrap_or(("", &text));
    match encoding {
        "pack" => packed(metadata),
        "bomb" => bomb(metadata),
        _ => drop(read(metadata, Some(encoding))),
    }
}

fn read(metadata: &str, encoding: Option<&str>) -> Result<Vec<IpAddr>, MetadataError> {
    let order = parse_static_order(Some(metadata), encoding);
    match &order {
        Ok(order) => {
            let distinct: HashSet<_> = order.iter().collect();
            assert_eq!(distinct.len(), order.len(), "an address stands twice in the order");
        }
        Err(error) => is_told_well(error),
    }
    order
}

/// The encoding of a document changes nothing of what it says; a cut one is refused.
fn packed(document: &str) {
    let plain = read(document, None);
    let unpacked = STANDARD.encode(document);
    let squeezed = gzip(document.as_bytes());
    if !document.is_empty() {
        assert_eq!(read(&unpacked, Some("base64")), plain, "base64 changes what is read");
        assert_eq!(read(&STANDARD.encode(&squeezed), Some("gzip+base64")), plain, "gzip changes what is read");
        for cut in cuts(&squeezed) {
            if let Ok(order) = read(&STANDARD.encode(cut), Some("gz+b64")) {
                assert!(order.is_empty() && cut.is_empty(), "a part of a document is taken for the whole");
            }
        }
    }
    let inside = format!("network.encoding: gzip+base64\nnetwork: {}\n", STANDARD.encode(squeezed));
    let _ = read(&inside, None);
}

/// Some kilobytes that unpack to more than is read.
fn bomb(document: &str) {
    let mut large = document.as_bytes().to_vec();
    large.resize(document.len() + MAX_BYTES as usize + 1, b'\n');
    let squeezed = STANDARD.encode(gzip(&large));
    let refused = read(&squeezed, Some("gzip+base64"));
    assert!(
        matches!(refused, Err(MetadataError::TooLarge { .. })),
        "a document that is too large is read: {refused:?}"
    );
    let inside = format!("network.encoding: gz+b64\nnetwork: {squeezed}\n");
    assert!(matches!(read(&inside, None), Err(MetadataError::TooLarge { .. })), "one inside is read");
}

/// The bytes, packed.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("memory takes all");
    packer.finish().expect("memory takes all")
}
