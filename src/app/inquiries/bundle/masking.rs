//! Pure: removes secrets from the parts of a bundle. Parts have no secrets by design; this is the place that makes sure
//! of it, also for texts that others wrote, such as annotations of Nodes and messages of servers.
//!
//! A secret is recognized in two ways. The secrets that the process knows are masked wherever eight of their bytes
//! occur, in any encoding in which they are sent: so a clipped secret is masked, too. Other secrets are recognized by
//! their form: private keys, tokens, logins in URLs, and values behind words such as `password`.

use crate::app::inquiries::protocol::masking::MaskedNames;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Text that replaces a secret.
const MASK: &str = "***";

/// Number of bytes of a known secret that are masked wherever they occur.
const GRAM: usize = 8;

/// Minimum length of a known secret, in bytes. Shorter ones occur as parts of ordinary words.
const MIN_SECRET: usize = 4;

/// Ends of the words before a secret value, in lower case.
const KEYS: [&str; 20] = [
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "authorization",
    "client_secret",
    "cookie",
    "jsessionid",
    "passwd",
    "password",
    "private-key",
    "private_key",
    "privatekey",
    "pwd",
    "secret",
    "sessionid",
    "token",
    "vmware-api-session-id",
    "vmware_soap_session",
    "x-xsrf-token",
];

/// The attribute of an element with a text in SOAP, in lower case.
const TYPE_ATTRIBUTE: &str = " xsi:type=\"xsd:string\"";

/// Words whose value extends to the end of the line.
const WHOLE_LINE: [&str; 2] = ["authorization", "cookie"];

/// Words before a token in a header.
const SCHEMES: [&str; 2] = ["basic ", "bearer "];

/// Minimum length of a token in a header, in bytes.
const MIN_TOKEN: usize = 8;

/// Beginning of a JSON web token, which is `{"` in base64.
const WEB_TOKEN: &str = "eyj";

/// Minimum length of a JSON web token, in bytes.
const MIN_WEB_TOKEN: usize = 20;

/// Beginning of a PEM block.
const PEM: &str = "-----begin ";

/// Beginning of a PEM block in base64, which is `-----BEGIN `, in lower case.
const ENCODED_PEM: &str = "ls0tls1crudjti";

/// The secrets and user names to remove.
#[derive(Default)]
pub(super) struct SecretMasks {
    /// Sequences of eight bytes of known secrets.
    grams: HashSet<u64>,
    /// Whether a sequence begins with these two bytes, to look up few sequences of a long text.
    beginnings: HashSet<u16>,
    /// Known secrets that are shorter than a sequence.
    short: Vec<String>,
    users: MaskedNames,
}

impl SecretMasks {
    /// Creates the masks of these known secrets and user names.
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>, users: BTreeSet<String>) -> Self {
        let mut masks = Self { users: MaskedNames::new(&users), ..Self::default() };
        for secret in secrets {
            masks.add_secret(secret.trim());
        }
        masks
    }

    fn add_secret(&mut self, secret: &str) {
        if secret.len() < MIN_SECRET {
            return;
        }
        if secret.len() < GRAM {
            self.short.extend(escaped_forms(secret));
            self.short.extend(encoded_forms(secret));
        }
        for form in escaped_forms(secret).into_iter().chain(encoded_forms(secret)) {
            for gram in grams(form.as_bytes()) {
                self.grams.insert(gram);
                self.beginnings.insert(beginning(gram));
            }
        }
    }

    /// Removes the secrets and user names from all texts and keys of a document.
    pub(super) fn document(&self, document: Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.document(item)).collect()),
            Value::Object(fields) => {
                let field = |(key, field): (String, Value)| match field {
                    Value::String(_) if is_key(&key) => (key, Value::String(MASK.to_owned())),
                    field => (self.text(&key), self.document(field)),
                };
                Value::Object(fields.into_iter().map(field).collect())
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Removes the secrets and user names from a text.
    pub(super) fn text(&self, text: &str) -> String {
        let mut ranges = secrets_by_form(text);
        ranges.extend(self.known_secrets(text));
        for secret in &self.short {
            ranges.extend(text.match_indices(secret.as_str()).map(|(start, found)| start..start + found.len()));
        }
        // By lines, because the names need more memory than the text.
        masked(text, ranges).split_inclusive('\n').map(|line| self.users.masked(line)).collect()
    }

    /// Returns the places of known secrets and of their parts.
    fn known_secrets(&self, text: &str) -> Vec<Range<usize>> {
        let found = grams(text.as_bytes()).enumerate().filter(|(_, gram)| {
            // Most sequences begin with other bytes.
            self.beginnings.contains(&beginning(*gram)) && self.grams.contains(gram)
        });
        found.map(|(start, _)| start..start + GRAM).collect()
    }
}

/// Returns all sequences of eight bytes, as numbers.
fn grams(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let mut last = 0;
    let numbers = bytes.iter().map(move |byte| {
        last = last << 8 | u64::from(*byte);
        last
    });
    numbers.skip(GRAM - 1)
}

fn beginning(gram: u64) -> u16 {
    u16::try_from(gram >> 48).unwrap_or_default()
}

/// Returns the secret as it is, as a quoted text, and as in XML and URLs.
fn escaped_forms(secret: &str) -> Vec<String> {
    let xml = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let quoted: String = secret.escape_debug().collect();
    let json = Value::from(secret).to_string();
    let url = percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC).to_string();
    vec![secret.to_owned(), xml, quoted, json.trim_matches('"').to_owned(), url]
}

/// Returns the secret in base64, at each of the three places at which it may begin in a longer text. The characters
/// that also encode neighbours are left out.
fn encoded_forms(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for (offset, mixed) in [(0, 0), (1, 2), (2, 3)] {
        let bytes = [vec![0; offset], secret.as_bytes().to_vec()].concat();
        let whole = bytes.len() / 3 * 4;
        for encoded in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.push(encoded.chars().take(whole).skip(mixed).collect());
        }
    }
    forms.retain(|form: &String| form.len() >= MIN_SECRET);
    forms
}

/// Replaces the ranges, of which some may overlap. A character that is only partly in a range is replaced as well.
fn masked(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| range.start);
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    for range in ranges {
        let start = text.floor_char_boundary(range.start);
        let end = text.ceil_char_boundary(range.end);
        if start > copied || copied == 0 {
            masked.push_str(text.get(copied..start).unwrap_or_default());
            masked.push_str(MASK);
        }
        copied = copied.max(end);
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    masked
}

/// Whether the key of a field announces a secret.
fn is_key(key: &str) -> bool {
    let key = key.to_lowercase();
    KEYS.iter().any(|word| key.ends_with(word))
}

/// Returns the places of secrets that are recognized by their form.
fn secrets_by_form(text: &str) -> Vec<Range<usize>> {
    // Keeps the length in bytes, so that places in one text are places in the other one.
    let lower = text.to_ascii_lowercase();
    let mut ranges = Vec::new();
    let mut at = 0;
    let mut before = b' ';
    while let Some(byte) = lower.as_bytes().get(at) {
        let found = match byte {
            b':' => lower.get(at..).and_then(login_in_url),
            b'-' if before != b'-' => lower.get(at..).and_then(private_key),
            byte if byte.is_ascii_alphabetic() => {
                let token = if before.is_ascii_alphanumeric() { None } else { lower.get(at..).and_then(token_at) };
                token.or_else(|| lower.get(at..).and_then(secret_behind_key))
            }
            _ => None,
        };
        match found {
            Some(range) => {
                ranges.push(at + range.start..at + range.end);
                at += range.end.max(1);
                before = b' ';
            }
            None => {
                // The letter of an escaped line break or tab is no part of the word after it.
                let is_escape = before == b'\\' && matches!(*byte, b'n' | b'r' | b't');
                before = if is_escape { b' ' } else { *byte };
                at += 1;
            }
        }
    }
    ranges
}

/// Returns the place of the user and the password at the beginning of `://user:password@host`.
fn login_in_url(rest: &str) -> Option<Range<usize>> {
    let authority = rest.strip_prefix("://")?;
    let end = authority.find(|char: char| "/ \"'<>\\?#".contains(char) || char.is_whitespace());
    let (login, _) = authority.get(..end.unwrap_or(authority.len()))?.rsplit_once('@')?;
    login.contains(':').then_some(3..3 + login.len())
}

/// Returns the place of the PEM block at the beginning, if the block has a private key.
fn private_key(rest: &str) -> Option<Range<usize>> {
    let (label, _) = rest.strip_prefix(PEM)?.split_once("-----")?;
    if !label.contains("private key") {
        return None;
    }
    let end = rest.find("-----end ").map(|end| end + "-----end ".len() + label.len() + "-----".len());
    Some(0..end.unwrap_or(rest.len()).min(rest.len()))
}

/// Returns the place of the token that begins here, or behind the scheme that is here.
fn token_at(rest: &str) -> Option<Range<usize>> {
    if rest.starts_with(ENCODED_PEM) {
        return Some(0..run(rest, "+/=-_"));
    }
    if rest.starts_with(WEB_TOKEN) {
        let length = run(rest, "-_.");
        return (length >= MIN_WEB_TOKEN).then_some(0..length);
    }
    let scheme = SCHEMES.iter().find(|scheme| rest.starts_with(**scheme))?;
    let length = run(rest.get(scheme.len()..)?, "+/=-_.~");
    (length >= MIN_TOKEN).then_some(scheme.len()..scheme.len() + length)
}

/// Returns the place of the secret behind the key that is here, which may be the end of a longer word.
fn secret_behind_key(rest: &str) -> Option<Range<usize>> {
    let first = rest.bytes().next();
    // The first letter alone tells most places of a long text apart.
    let found = KEYS.iter().filter(|key| key.bytes().next() == first && rest.starts_with(**key));
    let key = found.max_by_key(|key| key.len())?;
    value_behind(rest, key)
}

/// Returns the length of the letters, digits and further characters at the beginning.
fn run(text: &str, further: &str) -> usize {
    text.find(|char: char| !char.is_ascii_alphanumeric() && !further.contains(char)).unwrap_or(text.len())
}

/// Returns the place of the value behind `key=`, `key: `, `"key":` or `<key>`.
fn value_behind(rest: &str, key: &str) -> Option<Range<usize>> {
    let behind = rest.get(key.len()..)?;
    let element = behind.strip_prefix(TYPE_ATTRIBUTE).unwrap_or(behind);
    let sign = element.trim_start_matches(['"', '\'', '\\']).trim_start_matches(' ');
    let value = sign.strip_prefix(['=', ':', '>'])?;
    // A path of a module or a URL.
    if sign.starts_with("::") || sign.starts_with("://") {
        return None;
    }
    let value = value.trim_start_matches(' ');
    // An optional value as programs print it.
    let value = value.strip_prefix("some(").unwrap_or(value);
    // A quote in a quoted text has backslashes.
    let unescaped = value.trim_start_matches('\\');
    let quote = unescaped.chars().next().filter(|char| ['"', '\''].contains(char));
    let value = quote.and_then(|quote| unescaped.strip_prefix(quote)).unwrap_or(value);
    let start = rest.len() - value.len();
    let end = match quote {
        Some(quote) => value.find(quote).map(|end| value.get(..end).unwrap_or_default().trim_end_matches('\\').len()),
        None if WHOLE_LINE.contains(&key) => value.find(['\n', '"']),
        None => value.find(|char: char| char.is_whitespace() || ",;&<>)}]\"'\\".contains(char)),
    };
    let length = end.unwrap_or(value.len());
    (length > 0).then_some(start..start + length)
}

#[cfg(test)]
mod tests;
