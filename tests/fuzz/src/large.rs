//! Fuzz targets that expand short inputs to large documents and limit the memory for reading them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ccm::providers::vsphere::config;
use ccm::providers::vsphere::nodes::metadata::guest_metadata::parse_static_order;

use crate::guest::{MAX_BYTES, gzip};
use crate::{heap, nsx, rest};

/// Upper limit of heap use while one document is read, in bytes.
const MOST_HEAP: usize = 8 << 20;

/// Size of the largest answer tried, in bytes. It is above the limit that the product accepts.
const LARGEST_ANSWER: usize = 5 << 20;

/// Upper limit of heap use while an answer of this size is read, in bytes.
const MOST_HEAP_OF_ANSWER: usize = 128 << 20;

/// Upper limit of heap use while an error answer of this size is read, in bytes. It allows three copies of the answer,
/// one of them the copy of the test, and little else.
const MOST_HEAP_OF_REFUSAL: usize = 16 << 20;

/// Expands lines `TIMES TEXT` to an answer of up to 5 MiB, of NSX and of vCenter, and reads it as a success and as an
/// error.
pub fn answer(bytes: &[u8]) {
    let body = expand(&String::from_utf8_lossy(bytes), LARGEST_ANSWER);
    for (status, most) in [(200, MOST_HEAP_OF_ANSWER), (404, MOST_HEAP_OF_REFUSAL)] {
        for (what, read) in nsx::READS.iter().chain(rest::READS) {
            let ((), peak) = heap::peak(|| read(status, body.as_bytes()));
            assert!(peak < most, "{what}, HTTP status {status}: {peak} bytes of heap are held for {}", body.len());
        }
    }
}

/// Expands lines `TIMES TEXT` to a document of up to 1 MiB. Reads it as guest metadata in every encoding and as
/// `vsphere.conf`.
pub fn document(bytes: &[u8]) {
    let document = expand(&String::from_utf8_lossy(bytes), MAX_BYTES as usize);
    let unpacked = STANDARD.encode(&document);
    let packed = STANDARD.encode(gzip(document.as_bytes()));
    let inside = |encoding: &str, text: &str| format!("network.encoding: {encoding}\nnetwork: {text}\n");
    let plain = read("plain", &document, None);
    if !document.is_empty() {
        assert_eq!(read("base64", &unpacked, Some("base64")), plain, "base64 changes what is read");
        assert_eq!(read("gzip+base64", &packed, Some("gzip+base64")), plain, "gzip changes what is read");
    }
    read("inside, base64", &inside("base64", &unpacked), None);
    let twice = STANDARD.encode(gzip(inside("gzip+base64", &packed).as_bytes()));
    read("inside, gzip+base64", &twice, Some("gzip+base64"));
    // Folded as base64 often is: each line encodes 57 bytes of the inner document.
    let lines: Vec<_> = unpacked.as_bytes().chunks(76).map(String::from_utf8_lossy).collect();
    read("inside, in lines", &inside("b64", &format!("|\n  {}", lines.join("\n  "))), None);
    let (_, peak) = heap::peak(|| config::parse(&document, "f").is_ok());
    is_small("vsphere.conf", peak);
}

/// Returns the addresses or the error as text.
fn read(form: &str, metadata: &str, encoding: Option<&str>) -> String {
    let (order, peak) = heap::peak(|| parse_static_order(Some(metadata), encoding));
    is_small(form, peak);
    format!("{order:?}")
}

fn is_small(form: &str, peak: usize) {
    assert!(peak < MOST_HEAP, "{form}: {peak} bytes of heap are held");
}

/// Repeats the text of each line as often as the number before it, or once without a number. In the text `\n` is a line
/// break and `\i` is the number of the repetition. The result has at most `most` bytes.
fn expand(runs: &str, most: usize) -> String {
    let mut document = String::new();
    for line in runs.lines() {
        let numbered = line.split_once(' ').and_then(|(times, text)| Some((times.parse::<u32>().ok()?, text)));
        let (times, text) = numbered.unwrap_or((1, line));
        let text = text.replace("\\n", "\n");
        let is_numbered = text.contains("\\i");
        for index in 0..times as usize {
            let piece = if is_numbered { &text.replace("\\i", &index.to_string()) } else { &text };
            if piece.is_empty() || document.len() + piece.len() > most {
                break;
            }
            document.push_str(piece);
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn a_few_bytes_become_a_document() {
        assert_eq!(expand("a: [\n3 x\\i, \n]\\n", 100), "a: [x0, x1, x2, ]\n");
        assert_eq!(expand("4000000000 A", 1 << 20).len(), 1 << 20);
    }
}
