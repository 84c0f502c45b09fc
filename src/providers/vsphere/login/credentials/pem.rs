//! Pure: detects a PEM certificate in a user name. A certificate requires another kind of login.
//!
//! Mirrors the use of `pem.Decode` in `connection.go:login`: the first complete block anywhere in the text counts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Result of [`kind_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemKind {
    /// No PEM.
    No,
    /// At least one complete block.
    Complete,
    /// The beginning of a block, but no complete block.
    Broken,
}

const BEGIN: &str = "-----BEGIN ";

/// Searches for a complete block of any kind.
pub fn kind_of(text: &str) -> PemKind {
    if !text.contains(BEGIN) {
        return PemKind::No;
    }
    // A marker counts only at the beginning of a line.
    let starts = text
        .match_indices(BEGIN)
        .filter(|(at, _)| *at == 0 || text.get(..*at).is_some_and(|before| before.ends_with('\n')));
    match starts.into_iter().any(|(at, _)| text.get(at + BEGIN.len()..).is_some_and(is_block)) {
        true => PemKind::Complete,
        false => PemKind::Broken,
    }
}

/// Returns true if a complete block follows [`BEGIN`]: kind, headers, base64 and the end marker of the same kind.
fn is_block(rest: &str) -> bool {
    let mut lines = rest.lines();
    let Some(kind) = lines.next().and_then(|line| line.trim_end().strip_suffix("-----")) else { return false };
    let end = format!("-----END {kind}-----");
    let mut body = String::new();
    for line in lines {
        let line = line.trim();
        if line == end {
            return STANDARD.decode(&body).is_ok_and(|decoded| !decoded.is_empty());
        }
        if !(body.is_empty() && line.contains(": ")) {
            body.push_str(line);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_from_a_name() {
        let whole = "-----BEGIN CERTIFICATE-----\nMIIB\nAAAA\n-----END CERTIFICATE-----";
        for (case, text, expected) in [
            ("a name", "administrator@vsphere.local", PemKind::No),
            ("nothing", "", PemKind::No),
            ("a block", whole, PemKind::Complete),
            ("a block and a newline", &format!("{whole}\n"), PemKind::Complete),
            ("with the line ends of Windows", &whole.replace('\n', "\r\n"), PemKind::Complete),
            ("text before it", &format!("subject=CN\n{whole}"), PemKind::Complete),
            ("a chain", &format!("{whole}\n{whole}"), PemKind::Complete),
            ("headers", &whole.replace("MIIB", "Proc-Type: 4,ENCRYPTED\n\nMIIB"), PemKind::Complete),
            ("another kind", &whole.replace("CERTIFICATE", "PRIVATE KEY"), PemKind::Complete),
            ("a broken one, then a whole one", &format!("-----BEGIN X-----\n{whole}"), PemKind::Complete),
            ("in one line", &whole.replace('\n', " "), PemKind::Broken),
            ("no end", "-----BEGIN CERTIFICATE-----\nMIIB\n", PemKind::Broken),
            ("another end", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END KEY-----", PemKind::Broken),
            ("no base64", "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----", PemKind::Broken),
            ("nothing inside", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", PemKind::Broken),
            ("not at the beginning of a line", &format!("x{whole}"), PemKind::Broken),
        ] {
            assert_eq!(kind_of(text), expected, "{case}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_looked_at(text in "(-----(BEGIN|END) [A-Z ]{0,9}-----|[ -~]|\n|\u{e9}|AAAA){0,20}") {
            kind_of(&text);
        }
    }
}
