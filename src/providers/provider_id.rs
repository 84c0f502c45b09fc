//! Provider IDs and the BIOS UUID in them; mirrors `pkg/cloudprovider/vsphere/util.go`.

use std::fmt;
use std::str::FromStr;

/// The scheme of this provider's IDs.
pub const SCHEME: &str = "vsphere";

const PREFIX: &str = "vsphere://";

/// Lengths of the five groups of a UUID, in hex digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// A BIOS UUID. Its text form is lower case, dashed 8-4-4-4-12.
///
/// A VM's UUID exists in two byte orders. The provider ID has vCenter's byte order. Many guests report their
/// `systemUUID` in the other byte order. This type does not record its byte order; see [`BiosUuid::byte_swapped`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BiosUuid([u8; 16]);

/// Error for a text that is not a UUID. The message does not repeat the text, because the caller names the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hex digits")]
pub struct InvalidUuid;

impl BiosUuid {
    /// Reverses the bytes of each of the first three groups, as `ConvertK8sUUIDtoNormal` does.
    #[must_use]
    pub fn byte_swapped(&self) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let [i, j, k, l, m, n, o, p] = rest;
        Self([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
    }

    /// Returns true if the UUIDs are equal in the same byte order or in swapped byte order.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || self.byte_swapped() == *other
    }

    /// Returns the provider ID of the VM with this UUID. The UUID must be in vCenter's byte order.
    pub fn provider_id(&self) -> String {
        format!("{PREFIX}{self}")
    }
}

impl FromStr for BiosUuid {
    type Err = InvalidUuid;

    /// Accepts surrounding blanks and upper case, as the Go program does.
    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let text = text.trim();
        if !text.split('-').map(str::len).eq(GROUPS) {
            return Err(InvalidUuid);
        }
        let mut digits = text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let mut digit = || digits.next().flatten().and_then(|digit| u8::try_from(digit).ok()).ok_or(InvalidUuid);
            *byte = digit()? << 4 | digit()?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for BiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses the UUID of a provider ID, or a bare UUID, as `GetUUIDFromProviderID` does.
///
/// # Errors
/// Fails if the ID contains no valid UUID. The Go program searches vCenter for any text. This program rejects a
/// malformed ID, so that the ID never makes a VM look deleted.
pub fn parse_provider_id(provider_id: &str) -> Result<BiosUuid, InvalidUuid> {
    provider_id.strip_prefix(PREFIX).unwrap_or(provider_id).parse()
}

/// Parses a machine id (`/etc/machine-id`), which is a UUID without dashes. A kubelet that cannot read the UUID of the
/// firmware reports the machine id as `systemUUID` (cadvisor, `utils/sysfs/sysfs.go:GetSystemUUID`).
pub fn parse_machine_id(text: &str) -> Option<BiosUuid> {
    let digits = text.trim();
    let is_whole = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_whole.then(|| u128::from_str_radix(digits, 16).ok()).flatten()?;
    Some(BiosUuid(number.to_be_bytes()))
}

/// Returns true if a provider ID belongs to this provider: it has the scheme `vsphere://` or is a bare UUID. This
/// program never touches a Node with any other provider ID.
pub fn is_own(provider_id: &str) -> bool {
    provider_id.starts_with(PREFIX) || provider_id.parse::<BiosUuid>().is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // vectors: U1–U4
    #[test]
    fn vectors_of_the_go_program_hold() {
        // Id of the vector, provider ID or UUID, and the byte-swapped form. `None` if the text cannot be parsed.
        let vectors = [
            ("U1", "56492e42-22ad-3911-6d72-59cc8f26bc90", Some("422e4956-ad22-1139-6d72-59cc8f26bc90")),
            ("U2", "422E4956-AD22-1139-6D72-59CC8F26BC90", Some("56492e42-22ad-3911-6d72-59cc8f26bc90")),
            // differs: Go returns an empty text for an empty text; here a UUID must have digits.
            ("U4", "", None),
        ];
        for (id, text, swapped) in vectors {
            let got = text.parse::<BiosUuid>().ok().map(|uuid| uuid.byte_swapped().to_string());
            assert_eq!(got.as_deref(), swapped, "{id}");
        }
        let u3: BiosUuid = "42278c9d-79fb-f2af-b060-d7f167fa261c".parse().unwrap();
        assert_eq!(u3.byte_swapped().byte_swapped(), u3, "U3");
    }

    #[test]
    fn a_machine_id_is_a_uuid_without_dashes() {
        let id = "423740e7c66e05e39d0b9e1205b24d43";
        let vectors = [
            (id, Some("423740e7-c66e-05e3-9d0b-9e1205b24d43")),
            (" 423740E7C66E05E39D0B9E1205B24D43\n", Some("423740e7-c66e-05e3-9d0b-9e1205b24d43")),
            ("423740e7-c66e-05e3-9d0b-9e1205b24d43", None),
            ("423740e7c66e05e39d0b9e1205b24d4", None),
            ("423740e7c66e05e39d0b9e1205b24d433", None),
            ("+23740e7c66e05e39d0b9e1205b24d43", None),
            ("423740g7c66e05e39d0b9e1205b24d43", None),
            ("", None),
        ];
        for (text, want) in vectors {
            assert_eq!(parse_machine_id(text).map(|uuid| uuid.to_string()).as_deref(), want, "{text:?}");
        }
        assert_eq!(parse_provider_id(id), Err(InvalidUuid), "a provider ID has the dashes");
        assert!(!is_own(id));
    }

    // vectors: U5
    #[test]
    fn provider_ids_are_read_as_the_go_program_reads_them() {
        let uuid = "423740e7-c66e-05e3-9d0b-9e1205b24d43";
        let vectors = [
            ("U5 upper case", "vsphere://423740E7-C66E-05E3-9D0B-9E1205B24D43", Some(uuid)),
            ("U5 bare", uuid, Some(uuid)),
            ("U5 empty", "", None),
            ("blanks", "vsphere:// 423740e7-c66e-05e3-9d0b-9e1205b24d43 ", Some(uuid)),
            ("scheme only", "vsphere://", None),
            ("foreign scheme", "k3s://host", None),
            ("one digit short", "vsphere://423740e7-c66e-05e3-9d0b-9e1205b24d4", None),
            ("one digit long", "vsphere://423740e7-c66e-05e3-9d0b-9e1205b24d433", None),
            ("dash moved", "vsphere://423740e7c-66e-05e3-9d0b-9e1205b24d43", None),
            ("no hex", "vsphere://423740g7-c66e-05e3-9d0b-9e1205b24d43", None),
            ("not ASCII", "vsphere://42374é7-c66e-05e3-9d0b-9e1205b24d43", None),
        ];
        for (id, text, want) in vectors {
            assert_eq!(parse_provider_id(text).ok().map(|uuid| uuid.to_string()).as_deref(), want, "{id}");
        }
    }

    #[test]
    fn only_our_scheme_and_bare_uuids_are_own() {
        let vectors = [
            ("vsphere://423740e7-c66e-05e3-9d0b-9e1205b24d43", true),
            ("vsphere://garbage", true),
            ("423740e7-c66e-05e3-9d0b-9e1205b24d43", true),
            ("k3s://423740e7-c66e-05e3-9d0b-9e1205b24d43", false),
            ("aws:///eu-west-1a/i-0", false),
            ("VSPHERE://423740e7-c66e-05e3-9d0b-9e1205b24d43", false),
            ("worker-1", false),
            ("", false),
        ];
        for (text, want) in vectors {
            assert_eq!(is_own(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_provider_id_survives_the_round_trip(bytes in any::<[u8; 16]>()) {
            let hex = |range: std::ops::Range<usize>| bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let dashed = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-");
            let uuid: BiosUuid = dashed.parse().unwrap();
            prop_assert_eq!(uuid.to_string(), dashed.clone());
            prop_assert_eq!(parse_provider_id(&uuid.provider_id()), Ok(uuid.clone()));
            prop_assert_eq!(uuid.byte_swapped().byte_swapped(), uuid);
        }

        #[test]
        fn no_text_breaks_the_parser(text in "\\PC*") {
            if let Ok(uuid) = parse_provider_id(&text) {
                prop_assert_eq!(uuid.to_string().len(), 36);
            }
        }
    }
}
