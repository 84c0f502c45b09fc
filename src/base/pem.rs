//! Parses PEM blocks as Go's `encoding/pem` does. Text around the blocks and malformed blocks are skipped. Spaces and
//! tabs within a line and at its end are ignored. A block begins at the start of a line.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

const BEGIN: &[u8] = b"-----BEGIN ";

/// Base64 decoder that accepts unused bits in the last character, as Go does.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A PEM block. The content may be a private key.
pub struct Block {
    /// The label, for example `CERTIFICATE`.
    pub label: String,
    /// Whether the headers mark the block as encrypted, as OpenSSL did before PKCS #8.
    pub is_encrypted: bool,
    /// The decoded content, usually DER.
    pub content: Zeroizing<Vec<u8>>,
}

/// Returns all blocks whose content can be decoded.
pub fn blocks(text: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&[u8], Vec<&[u8]>)> = None;
    for line in text.split_inclusive(|byte| *byte == b'\n').map(trimmed) {
        if let Some(end) = line.strip_prefix(b"-----END ") {
            if let Some((label, lines)) = open.take().filter(|(label, _)| *label == end) {
                blocks.extend(decode(label, &lines));
            }
            continue;
        }
        match line.windows(BEGIN.len()).rposition(|part| part == BEGIN) {
            Some(0) => open = line.strip_prefix(BEGIN).map(|label| (label, Vec::new())),
            // Go skips a block if the last `BEGIN` before the end of the block is not at the start of a line.
            Some(_) => open = None,
            None => open.iter_mut().for_each(|(_, lines)| lines.push(line)),
        }
    }
    blocks
}

/// Removes the line end and trailing whitespace, as Go's `getLine` does.
fn trimmed(line: &[u8]) -> &[u8] {
    let mut line = match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    };
    while let [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

/// Decodes one block. `label` is the rest of the first line, after [`BEGIN`].
fn decode(label: &[u8], lines: &[&[u8]]) -> Option<Block> {
    let label = String::from_utf8(label.strip_suffix(b"-----")?.to_vec()).ok()?;
    let (headers, body) = lines.split_at(lines.iter().take_while(|line| line.contains(&b':')).count());
    if body.is_empty() && !headers.is_empty() {
        return None;
    }
    let is_encrypted = headers.iter().any(|line| line.ends_with(b"ENCRYPTED"));
    let mut body = Zeroizing::new(body.concat());
    body.retain(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    let content = BASE64.decode(&*body).ok()?;
    Some(Block { label, is_encrypted, content: Zeroizing::new(content) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: &str = "-----BEGIN CERTIFICATE-----\naGVs\nbG8=\n-----END CERTIFICATE-----\n";

    /// The expected blocks are those of Go's `pem.Decode`.
    #[test]
    fn blocks_are_found_where_go_finds_them() {
        let key = BLOCK.replace("CERTIFICATE", "PRIVATE KEY");
        let encrypted = BLOCK.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1);
        for (case, text, expected) in [
            ("one", BLOCK.to_owned(), 1),
            ("no line break at the end", BLOCK.trim().to_owned(), 1),
            ("carriage returns", BLOCK.replace('\n', "\r\n"), 1),
            ("blanks at the ends of lines", BLOCK.replace('\n', " \t\n"), 1),
            ("text around", format!("Bag Attributes\n  a: b\n{BLOCK}text\n{key}"), 2),
            ("headers", BLOCK.replacen("-----\n", "-----\na: b\n\n", 1), 1),
            ("encrypted", encrypted, 1),
            ("a broken block before", format!("{}{BLOCK}", BLOCK.replace("aGVs", "!!!!")), 1),
            ("half a block before", format!("-----BEGIN CERTIFICATE-----\naGVs\n{BLOCK}"), 1),
            ("half a block after", format!("{BLOCK}-----BEGIN CERTIFICATE-----\naGVs"), 1),
            ("another end", BLOCK.replace("END CERTIFICATE", "END PRIVATE KEY"), 0),
            ("byte order mark", format!("\u{feff}{BLOCK}"), 0),
            ("indented", format!("  {}", BLOCK.replace('\n', "\n  ")), 0),
            ("one line", BLOCK.replace('\n', " "), 0),
            ("blanks inside lines", BLOCK.replace("aGVs\nbG8=", "aG Vs\n\tbG\t8 =\n \n"), 1),
            ("carriage returns inside lines", BLOCK.replace("aGVs", "aG\rVs"), 1),
            ("another blank inside a line", BLOCK.replace("aGVs", "aG\u{b}Vs"), 0),
            ("a colon behind the first line", BLOCK.replace("aGVs\n", "aGVs\na: b\n"), 0),
            ("bits that are not needed", BLOCK.replace("bG8=", "bG9="), 1),
            ("headers without an empty line", BLOCK.replacen("-----\n", "-----\na: b\n", 1), 1),
            ("headers alone", BLOCK.replace("aGVs\nbG8=", "a: b"), 0),
            ("a carriage return at the end alone", format!("{}\r", BLOCK.trim()), 0),
            ("text behind the end", BLOCK.replace("END CERTIFICATE-----", "END CERTIFICATE----- x"), 0),
            ("a beginning inside a line", BLOCK.replace("aGVs\n", "aGVs\nx-----BEGIN CERTIFICATE-----\n"), 0),
            ("a beginning that does not end", format!("-----BEGIN X\n{BLOCK}"), 1),
            ("an end before", format!("-----END CERTIFICATE-----\n{BLOCK}"), 1),
            ("nothing", String::new(), 0),
        ] {
            let found = blocks(text.as_bytes());
            assert_eq!(found.len(), expected, "{case}");
            assert!(found.iter().all(|block| *block.content == b"hello"), "{case}");
            assert_eq!(found.iter().any(|block| block.is_encrypted), case == "encrypted", "{case}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(text in any::<Vec<u8>>()) {
            blocks(&text);
        }
    }
}
