//! Pure: a single value. A value whose kind does not stay becomes a token as a whole.

use std::net::IpAddr;

use super::tokens::{DIGITS, TIME, Tokens};
use super::words::{self, Segment, vim};

/// Replacement of a password, a cookie, a token or another credential. It is the same for all.
pub(super) const REMOVED: &str = "removed";

/// Name of its count.
pub(super) const CREDENTIALS: &str = "credentials";

/// Removes a credential. Not even its equality with other credentials is kept.
pub(super) fn credential(tokens: &mut Tokens, text: &str) -> String {
    match text.is_empty() || words::is_own(text) {
        true => text.to_owned(),
        false => {
            tokens.removed(CREDENTIALS);
            REMOVED.to_owned()
        }
    }
}

/// Replaces a value of a field that contains schema words.
pub(super) fn word(tokens: &mut Tokens, text: &str) -> String {
    if words::is_word(text) { text.to_owned() } else { value(tokens, text) }
}

/// Replaces a value of a field that contains numbers or ranges of ports.
pub(super) fn number(tokens: &mut Tokens, text: &str) -> String {
    let (first, last) = text.split_once('-').unwrap_or((text, "0"));
    if is_small(text) || (is_small(first) && is_small(last)) { text.to_owned() } else { value(tokens, text) }
}

/// Replaces a value of a field that contains versions or build numbers.
pub(super) fn version(tokens: &mut Tokens, text: &str) -> String {
    if is_version(text) { text.to_owned() } else { word(tokens, text) }
}

/// Returns true for a version or a build number, which are public for every product. A few addresses also have this
/// form, but the fields for versions contain no addresses.
pub(super) fn is_version(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    let is_number =
        |part: &str, digits| (1..=digits).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    match parts.as_slice() {
        [build] => is_number(build, 8),
        [first, rest @ ..] => rest.len() <= 3 && is_number(first, 2) && rest.iter().all(|part| is_number(part, 1)),
        [] => false,
    }
}

/// Returns true for a number that stays.
pub(super) fn is_small(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Replaces a value of any other field.
pub(super) fn value(tokens: &mut Tokens, text: &str) -> String {
    if text.is_empty() || words::is_own(text) {
        return text.to_owned();
    }
    if let Some(kept) = shaped(tokens, text) {
        return kept;
    }
    match is_path(text) {
        true => path(tokens, text),
        false => tokens.text(text),
    }
}

/// Replaces a value that is recognized by its form: a UUID, an address, a time, or an id of a tag.
pub(super) fn shaped(tokens: &mut Tokens, text: &str) -> Option<String> {
    if is_uuid(text) {
        return Some(tokens.uuid(&text.to_ascii_lowercase()));
    }
    if is_time(text) {
        tokens.removed("times");
        return Some(TIME.to_owned());
    }
    addresses(tokens, text).or_else(|| urn(tokens, text))
}

/// Replaces the id of an object. An id that vCenter numbers keeps its prefix.
pub(super) fn id(tokens: &mut Tokens, text: &str) -> String {
    if text.is_empty() || words::is_own(text) || vim::is_well_known(text) {
        return text.to_owned();
    }
    if let Some(kept) = shaped(tokens, text) {
        return kept;
    }
    match is_path(text) {
        true => path(tokens, text),
        false => tokens.id(vim::prefix_of(text), text),
    }
}

/// Returns true for the path of an NSX object.
pub(super) fn is_path(text: &str) -> bool {
    ["/infra", "/global-infra", "/orgs"]
        .iter()
        .any(|start| text.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Replaces the path of an object. Schema words stay in their places, ids do not.
pub(super) fn path(tokens: &mut Tokens, text: &str) -> String {
    let mut is_id = false;
    let segments = text.split('/').map(|segment| {
        let kind = if is_id || segment.is_empty() { Segment::Other } else { words::segment(segment) };
        let was_id = std::mem::replace(&mut is_id, kind == Segment::Collection);
        match kind {
            Segment::Word | Segment::Collection => segment.to_owned(),
            // An empty segment is not an id.
            Segment::Other if segment.is_empty() => {
                is_id = was_id;
                String::new()
            }
            Segment::Other => id(tokens, segment),
        }
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Replaces an address, a prefix, or a range of addresses.
fn addresses(tokens: &mut Tokens, text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(tokens.address(address).to_string());
    }
    if let Some((address, length)) = text.split_once('/') {
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
        return Some(format!("{}/{length}", tokens.address(address)));
    }
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse::<IpAddr>().ok()?, last.trim().parse::<IpAddr>().ok()?);
    Some(format!("{}-{}", tokens.address(first), tokens.address(last)))
}

/// Replaces `urn:vmomi:InventoryServiceTag:<id>:GLOBAL`.
fn urn(tokens: &mut Tokens, text: &str) -> Option<String> {
    let rest = text.strip_prefix("urn:vmomi:")?;
    let (kind, rest) = rest.split_once(':')?;
    let (own, end) = rest.rsplit_once(':')?;
    (["InventoryServiceTag", "InventoryServiceCategory"].contains(&kind) && end == "GLOBAL")
        .then(|| format!("urn:vmomi:{kind}:{}:{end}", value(tokens, own)))
}

fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns true for `2026-11-28T09:07:00.123Z`, also with an offset.
fn is_time(text: &str) -> bool {
    let form = b"dddd-dd-ddTdd:dd:dd";
    let (bytes, is_of_form) = (text.as_bytes(), |(byte, form): (&u8, &u8)| match form {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    });
    let Some(rest) = bytes.get(form.len()..) else { return false };
    bytes.iter().zip(form).all(is_of_form)
        && rest.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'Z' | b'+' | b'-' | b':'))
        && rest.len() <= 16
}

#[cfg(test)]
mod tests {
    use super::{Tokens, credential, id, number, value, version, word};

    #[test]
    fn a_value_keeps_its_kind_and_nothing_else() {
        let tokens = &mut Tokens::default();
        for (text, expected) in [
            ("", ""),
            ("web-1", "text-1"),
            ("Secret Name", "text-2"),
            ("420a1b2c-3d4e-5f60-7182-93a4b5c6d7e8", "00000000-0000-4000-8000-000000000001"),
            ("420A1B2C-3D4E-5F60-7182-93A4B5C6D7E8", "00000000-0000-4000-8000-000000000001"),
            ("10.0.0.7", "192.0.2.1"),
            ("10.0.0.7/24", "192.0.2.1/24"),
            ("10.0.0.7-10.0.0.9", "192.0.2.1-192.0.2.2"),
            ("10.0.0.7:443", "text-3"),
            ("2026-11-28T09:07:00.123456Z", "2020-01-01T00:00:00Z"),
            ("2026-11-28T09:07:00 secret", "text-4"),
            ("urn:vmomi:InventoryServiceTag:42:GLOBAL", "urn:vmomi:InventoryServiceTag:text-5:GLOBAL"),
            ("urn:vmomi:Secret:42:GLOBAL", "text-6"),
            ("/infra/lb-pools/web-1", "/infra/lb-pools/text-1"),
            ("/infra/lb-pools/lb-pools", "/infra/lb-pools/id-1"),
            ("/infra//lb-pools//secret/infra", "/infra//lb-pools//id-2/infra"),
            ("/infra/realized-state/realized-entities", "/infra/realized-state/realized-entities"),
            ("/infra/secret-folder/x", "/infra/id-3/id-4"),
            ("/infrared", "text-7"),
            ("vm-2147483601", "vm-2147483601"),
            ("REALIZED", "text-8"),
            ("42", "text-5"),
        ] {
            assert_eq!(value(tokens, text), expected, "{text}");
        }
    }

    #[test]
    fn an_id_keeps_the_prefix_that_vcenter_counts_by() {
        let tokens = &mut Tokens::default();
        for (text, expected) in [
            ("vm-42", "vm-1"),
            ("vm-43", "vm-2"),
            ("domain-c8", "domain-c-1"),
            ("propertyCollector", "propertyCollector"),
            ("session[52a]52b", "id-1"),
            ("vm-secret", "id-2"),
        ] {
            assert_eq!(id(tokens, text), expected, "{text}");
        }
    }

    #[test]
    fn words_numbers_and_versions_stay_in_their_fields() {
        let tokens = &mut Tokens::default();
        assert_eq!((word(tokens, "REALIZED"), word(tokens, "SECRET")), ("REALIZED".into(), "text-1".into()));
        for (text, expected) in
            [("443", "443"), ("-1", "-1"), ("8000-8080", "8000-8080"), ("1234567", "text-2"), ("1e5", "text-3")]
        {
            assert_eq!(number(tokens, text), expected, "{text}");
        }
        for (text, expected) in [
            ("8.0.3.0", "8.0.3.0"),
            ("24022515", "24022515"),
            ("6.7", "6.7"),
            ("2024.1", "text-4"),
            ("10.0.0.17", "192.0.2.1"),
            ("8.0.3.0.1", "text-5"),
            ("123456789", "text-6"),
        ] {
            assert_eq!(version(tokens, text), expected, "{text}");
        }
    }

    #[test]
    fn a_credential_has_one_word_in_its_place() {
        let tokens = &mut Tokens::default();
        assert_eq!(
            (credential(tokens, "hunter2"), credential(tokens, "hunter3")),
            ("removed".into(), "removed".into())
        );
        assert_eq!(credential(tokens, ""), "");
        assert_eq!(tokens.counts()["credentials"], 2);
    }
}
