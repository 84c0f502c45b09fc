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

/// A text that is not a thumbprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a certificate thumbprint: expected 40 (SHA-1) or 64 (SHA-256) hex digits, with or without colons"
)]
pub struct ParseThumbprintError {
    text: String,
}

impl Thumbprint {
    /// Parses `AA:BB:…` in either case, with or without colons. Whitespace is ignored. A leading algorithm such as
    /// `sha256:` or `SHA256 Fingerprint=` is accepted.
    ///
    /// # Errors
    /// An error if the text without the algorithm is not 40 or 64 hex digits.
    pub fn parse(text: &str) -> Result<Self, ParseThumbprintError> {
        let refused = || ParseThumbprintError { text: text.chars().take(120).collect() };
        let bare = text.trim();
        let bare = bare.rsplit_once('=').map_or(bare, |(_, digits)| digits).trim();
        let bare = strip_algorithm(bare);
        let digits: Vec<u8> = bare
            .chars()
            .filter(|c| *c != ':' && !c.is_whitespace())
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or_else(refused)?;
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(high << 4 | low),
                _ => None,
            })
            .collect::<Option<_>>()
            .ok_or_else(refused)?;
        if let Ok(digest) = <[u8; 20]>::try_from(bytes.as_slice()) {
            return Ok(Thumbprint::Sha1(digest));
        }
        <[u8; 32]>::try_from(bytes.as_slice()).map(Thumbprint::Sha256).map_err(|_| refused())
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

/// Removes a leading algorithm name, such as `sha1:` or `sha-256:`. Hex digits never begin with `s`.
fn strip_algorithm(text: &str) -> &str {
    let lower = text.to_ascii_lowercase();
    for name in ["sha256", "sha-256", "sha1", "sha-1"] {
        if lower.starts_with(name)
            && let Some(rest) = text.get(name.len()..)
        {
            return rest.trim_start_matches([':', ' ', '\t']);
        }
    }
    text
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
                assert_eq!(parsed.as_ref(), Ok(&written), "{spelling:?}");
            }
        }
    }

    #[test]
    fn what_is_no_thumbprint_is_refused_with_its_text() {
        for text in ["", "AA:BB", "zz", "52:6C:4E:88:1D:78:AE:12:1C:F3:BB:6C:5B:F4:E2:82:86:A7:08:A", "sha256:"] {
            assert!(Thumbprint::parse(text).is_err(), "{text:?}");
        }
        assert!(Thumbprint::parse("nonsense").unwrap_err().to_string().starts_with("\"nonsense\" is not"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".*") {
            if let Ok(thumbprint) = Thumbprint::parse(&text) {
                prop_assert_eq!(Thumbprint::parse(&thumbprint.to_string()), Ok(thumbprint));
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
            prop_assert_eq!(Thumbprint::parse(&format!("{before}{text}{after}")), Ok(thumbprint));
        }
    }
}
