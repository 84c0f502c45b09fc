//! Certificate thumbprints, parsed from the spellings that users paste.

use std::fmt;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The digest of a certificate in DER form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thumbprint {
    /// A SHA-1 digest.
    Sha1([u8; 20]),
    /// A SHA-256 digest.
    Sha256([u8; 32]),
}

impl Thumbprint {
    /// Parses 40 or 64 hex digits in either case, in pairs with colons or without colons. The digits may follow the name
    /// of an algorithm; see [`strip_algorithm`].
    pub fn parse(text: &str) -> Option<Self> {
        let text = strip_algorithm(text);
        if text.contains(':') && text.split(':').any(|pair| pair.len() != 2) {
            return None;
        }
        let digits = text.chars().filter(|c| *c != ':').map(|c| u8::try_from(c.to_digit(16)?).ok());
        let digits: Vec<u8> = digits.collect::<Option<_>>()?;
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        match bytes.len() {
            20 => bytes.try_into().ok().map(Thumbprint::Sha1),
            _ => bytes.try_into().ok().map(Thumbprint::Sha256),
        }
    }

    /// Returns the SHA-1 thumbprint of a certificate in DER form.
    pub fn sha1_of(der: &[u8]) -> Self {
        Thumbprint::Sha1(Sha1::digest(der).into())
    }

    /// Returns the SHA-256 thumbprint of a certificate in DER form.
    pub fn sha256_of(der: &[u8]) -> Self {
        Thumbprint::Sha256(Sha256::digest(der).into())
    }

    /// Whether the certificate in DER form has this thumbprint.
    pub fn matches(&self, der: &[u8]) -> bool {
        match self {
            Thumbprint::Sha1(_) => *self == Self::sha1_of(der),
            Thumbprint::Sha256(_) => *self == Self::sha256_of(der),
        }
    }
}

/// Removes the algorithm before the digits, such as `sha1:`, `SHA-256 ` or `SHA256 Fingerprint=`, and blanks at both
/// ends. Hex digits never begin with `s`.
pub fn strip_algorithm(text: &str) -> &str {
    let text = text.rsplit_once('=').map_or(text, |(_, digits)| digits).trim();
    let digits = ["sha256", "sha-256", "sha1", "sha-1"].iter().find_map(|name| {
        let (start, digits) = text.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(digits)
    });
    digits.map_or(text, |digits| digits.trim_start_matches([':', ' ', '\t']))
}

/// Prints upper case with colons, as govmomi and openssl do.
impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Thumbprint::Sha1(bytes) => bytes,
            Thumbprint::Sha256(bytes) => bytes,
        };
        for (position, byte) in bytes.iter().enumerate() {
            let colon = if position == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    //! Tests of all accepted spellings.

    use proptest::prelude::*;

    use super::Thumbprint;

    const SHA1: &str = "52:6C:4E:88:1D:78:AE:12:1C:F3:BB:6C:5B:F4:E2:82:86:A7:08:AF";

    #[test]
    fn every_spelling_users_paste_is_the_same_thumbprint() {
        let sha256 = Thumbprint::sha256_of(b"x").to_string();
        for written in [SHA1.to_owned(), sha256] {
            let bare = written.replace(':', "");
            let spellings = [
                written.clone(),
                written.to_lowercase(),
                bare.clone(),
                bare.to_lowercase(),
                format!("  {written}\n"),
                format!("sha256:{bare}"),
                format!("SHA-1 {written}"),
                format!("SHA256 Fingerprint={written}"),
                format!("sha1 Fingerprint={written}"),
            ];
            for spelling in spellings {
                let parsed = Thumbprint::parse(&spelling).map(|thumbprint| thumbprint.to_string());
                assert_eq!(parsed.as_ref(), Some(&written), "{spelling:?}");
            }
        }
    }

    #[test]
    fn what_is_no_thumbprint_is_refused() {
        for text in ["", "AA:BB", "zz", "52:6C:4E:88:1D:78:AE:12:1C:F3:BB:6C:5B:F4:E2:82:86:A7:08:A", "sha256:"] {
            assert_eq!(Thumbprint::parse(text), None, "{text:?}");
        }
        assert_eq!(Thumbprint::parse(&SHA1.replace("52:6C", "526:C")), None, "a colon inside a pair");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".*") {
            if let Some(thumbprint) = Thumbprint::parse(&text) {
                prop_assert_eq!(Thumbprint::parse(&thumbprint.to_string()), Some(thumbprint));
            }
        }

        #[test]
        fn a_thumbprint_survives_every_spelling(
            certificate in any::<Vec<u8>>(),
            is_sha1 in any::<bool>(),
            is_lower in any::<bool>(),
            has_colons in any::<bool>(),
            before in "( |sha-?(1|256):? ?|SHA-?(1|256) Fingerprint=)",
            after in "[ \r\n\t]{0,3}",
        ) {
            let thumbprint =
                if is_sha1 { Thumbprint::sha1_of(&certificate) } else { Thumbprint::sha256_of(&certificate) };
            let mut text = thumbprint.to_string();
            if is_lower {
                text = text.to_lowercase();
            }
            if !has_colons {
                text = text.replace(':', "");
            }
            prop_assert_eq!(Thumbprint::parse(&format!("{before}{text}{after}")), Some(thumbprint));
        }
    }
}
