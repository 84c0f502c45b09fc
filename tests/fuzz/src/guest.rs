//! Fuzz target for the cloud-init metadata of a guest.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ccm::providers::vsphere::nodes::metadata::guest_metadata::{MetadataError, parse_static_order};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::laws::{cuts, is_told_well};

/// Upper limit of a document, in bytes. A larger document is rejected.
pub const MAX_BYTES: u32 = 1 << 20;

/// Parses metadata. The first line is the encoding, the rest is the metadata. `pack` tries every encoding. `bomb` makes
/// a document that is too large after it is unpacked.
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

/// Checks that the encoding of a document does not change the result, and that a truncated document is rejected.
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

/// Checks that a document of some kilobytes is rejected if it unpacks to more than the limit.
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

/// Returns the bytes in gzip format.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("memory takes all");
    packer.finish().expect("memory takes all")
}
