//! Blocks of PEM text, read as Go's `encoding/pem` reads them: text around the blocks and blocks that are broken are
//! skipped, lines may end in blanks or a carriage return, and a block begins at the beginning of a line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// One block. What it holds may be a private key.
pub struct Block {
    /// For example `CERTIFICATE`.
    pub label: String,
    /// Whether its headers say that it is encrypted, as OpenSSL did before PKCS #8.
    pub is_encrypted: bool,
    /// What it holds, usually DER.
    pub content: Zeroizing<Vec<u8>>,
}

/// All blocks whose content can be decoded.
pub fn blocks(text: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Vec<&[u8]>)> = None;
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end) {
        if let Some(label) = label(line, b"-----BEGIN ") {
            open = Some((label, Vec::new()));
        } else if let Some(end) = label(line, b"-----END ") {
            if let Some((label, lines)) = open.take().filter(|(label, _)| *label == end) {
                blocks.extend(decode(label, &lines));
            }
        } else if let Some((_, lines)) = &mut open {
            lines.push(line);
        }
    }
    blocks
}

fn label(line: &[u8], start: &[u8]) -> Option<String> {
    let label = line.strip_prefix(start)?.strip_suffix(b"-----")?;
    String::from_utf8(label.to_vec()).ok()
}

fn decode(label: String, lines: &[&[u8]]) -> Option<Block> {
    let is_header = |line: &&&[u8]| line.contains(&b':');
    let is_encrypted = lines.iter().filter(is_header).any(|line| line.ends_with(b"ENCRYPTED"));
    let body: Vec<&[u8]> = lines.iter().filter(|line| !is_header(line)).copied().collect();
    let content = STANDARD.decode(&*Zeroizing::new(body.concat())).ok()?;
    Some(Block { label, is_encrypted, content: Zeroizing::new(content) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: &str = "-----BEGIN CERTIFICATE-----\naGVs\nbG8=\n-----END CERTIFICATE-----\n";

    /// As `pem.Decode` of Go.
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
