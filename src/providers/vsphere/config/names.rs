//! Pure: decides if a message may repeat an unknown name.
//!
//! Text in the place of a key may be the rest of a password or of a private key that was pasted without quotes. So a
//! message repeats a name only if the name resembles a known name, or if the name is a plain word and the section has
//! no secrets. Otherwise the message gives only the line number.

use super::fields::{Dialect, RawSection, SectionName, known_keys};

/// Internal fields that the Go program lets a file set, and keys of old examples.
const FORMER_KEYS: [&str; 6] =
    ["tenantref", "secretref", "ipfamilypriority", "service-account", "tcp-app-profile-id", "udp-app-profile-id"];

/// Maximum length of a name that is compared or repeated, in bytes.
const LONGEST: usize = 40;

/// Parts of a message about an unknown name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnknownName {
    /// The name, if it may be repeated.
    pub found: Option<String>,
    /// Text after "unknown key, ignored" or "unknown section, ignored" that suggests a known name; empty without a
    /// suggestion.
    pub hint: String,
}

/// Suggests the section's most similar key, and decides if the message may repeat the unknown key.
pub(super) fn unknown_key(section: &RawSection, written: &str) -> UnknownName {
    let meant = closest(written, section.keys());
    let hint = meant.map_or_else(String::new, |(key, letters)| {
        let spelling = match section.dialect {
            Dialect::Yaml if letters == 0 => ". YAML files use camelCase:",
            Dialect::Ini if letters == 0 => ". INI files use kebab-case:",
            _ => ";",
        };
        format!("{spelling} did you mean {}?", section.shown_key(key))
    });
    let is_shown = meant.is_some()
        || is_plain_word(section, written)
        || closest(written, known_keys().chain(FORMER_KEYS)).is_some();
    UnknownName { found: is_shown.then(|| written.to_owned()), hint }
}

/// Returns true if the name is a short word of letters, `-` and `_`, and the section has neither passwords nor
/// certificate keys.
fn is_plain_word(section: &RawSection, written: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
    let is_secret = section.keys().any(|key| ["password", "client-auth-key-file"].contains(&key));
    !is_secret && !written.is_empty() && written.len() <= LONGEST && written.chars().all(is_word)
}

/// Suggests the known section that is most similar to an unknown one.
pub(super) fn unknown_section(written: &str, dialect: Dialect) -> UnknownName {
    let rest = |which| match which {
        SectionName::Vcenter => " \"<name or address>\"",
        SectionName::Class => " \"<name>\"",
        _ => "",
    };
    let vcenter = ("vCenter", SectionName::Vcenter.yaml(), rest(SectionName::Vcenter));
    let known = SectionName::ALL.map(|which| (which.ini(), which.yaml(), rest(which))).into_iter().chain([vcenter]);
    let meant = closest(written, known.clone().map(|(name, ..)| name)).map(|(name, _)| name);
    let found =
        known.into_iter().find(|(name, ..)| Some(*name) == meant).map(|(name, yaml, rest)| match (name, dialect) {
            ("vCenter", Dialect::Ini) => format!("[{}{rest}]", SectionName::Vcenter.ini()),
            (name, Dialect::Ini) => format!("[{name}{rest}]"),
            _ => yaml.to_owned(),
        });
    UnknownName {
        found: found.is_some().then(|| written.to_owned()),
        hint: found.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default(),
    }
}

fn closest(written: &str, names: impl Iterator<Item = &'static str>) -> Option<(&'static str, usize)> {
    names.filter_map(|name| Some((name, difference(written, name)?))).min_by_key(|(_, letters)| *letters)
}

/// Counts the letters that differ, ignoring case, `-` and `_`. Returns `None` if more than two letters differ, if more
/// than one letter of a name with fewer than six letters differs, or if `written` is longer than [`LONGEST`].
fn difference(written: &str, name: &str) -> Option<usize> {
    if written.len() > LONGEST {
        return None;
    }
    let letters = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
    let (written, name) = (letters(written), letters(name));
    let most = if name.len() < 6 { 1 } else { 2 };
    Some(strsim::levenshtein(&written, &name)).filter(|letters| *letters <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(section: &RawSection, written: &str) -> (Option<String>, String) {
        let UnknownName { found: shown, hint } = unknown_key(section, written);
        (shown, hint)
    }

    #[test]
    fn an_unknown_key_names_the_key_that_was_meant_in_the_spelling_of_the_file() {
        let yaml = |which| RawSection::new(which, Dialect::Yaml);
        let ini = |which| RawSection::new(which, Dialect::Ini);
        for (section, written, hint) in [
            (
                yaml(SectionName::Nodes),
                "internal-network-subnet-cidr",
                ". YAML files use camelCase: did you mean internalNetworkSubnetCidr?",
            ),
            (
                yaml(SectionName::Nodes),
                "exclude-internal-network-subnet-cidr",
                ". YAML files use camelCase: did you mean excludeInternalNetworkSubnetCidr?",
            ),
            (yaml(SectionName::Global), "insecureflag", ". YAML files use camelCase: did you mean insecureFlag?"),
            (ini(SectionName::Global), "insecureFlag", ". INI files use kebab-case: did you mean insecure-flag?"),
            (ini(SectionName::Global), "ca_file", ". INI files use kebab-case: did you mean ca-file?"),
            (ini(SectionName::Global), "ca-fiel", "; did you mean ca-file?"),
            (yaml(SectionName::Global), "usr", "; did you mean user?"),
            (yaml(SectionName::Global), "passwort", "; did you mean password?"),
            (yaml(SectionName::Labels), "zones", "; did you mean zone?"),
            // Keys that are known in other sections or appear in old examples get no hint.
            (yaml(SectionName::Labels), "thumbprint", ""),
            (yaml(SectionName::Global), "secretref", ""),
            (ini(SectionName::Global), "tenantref", ""),
        ] {
            assert_eq!(key(&section, written), (Some(written.to_owned()), hint.to_owned()));
        }
        let class = RawSection::named(SectionName::Class, "web".to_owned(), Some(1), Dialect::Ini);
        for section in [class, ini(SectionName::LoadBalancer), yaml(SectionName::Nodes)] {
            assert_eq!(key(&section, "colour"), (Some("colour".to_owned()), String::new()));
            assert_eq!(key(&section, "aWxsIG5ldmVyIHRlbGw="), (None, String::new()));
        }
        for written in ["", "hunter2", "s3cr", "aWxsIG5ldmVyIHRlbGw", "colour", &"x".repeat(1000)] {
            assert_eq!(key(&yaml(SectionName::Global), written), (None, String::new()), "{written}");
        }
    }

    #[test]
    fn an_unknown_section_names_the_section_that_was_meant() {
        for (written, dialect, hint) in [
            ("Lables", Dialect::Ini, "; did you mean [Labels]?"),
            ("lables", Dialect::Yaml, "; did you mean labels?"),
            ("Global", Dialect::Yaml, "; did you mean global?"),
            ("virtual-center", Dialect::Ini, "; did you mean [VirtualCenter \"<name or address>\"]?"),
            ("vCenter", Dialect::Ini, "; did you mean [VirtualCenter \"<name or address>\"]?"),
            ("virtualCenter", Dialect::Yaml, "; did you mean vcenter?"),
            ("loadbalancers", Dialect::Yaml, "; did you mean loadBalancer?"),
            ("LoadBalancerClasses", Dialect::Ini, "; did you mean [LoadBalancerClass \"<name>\"]?"),
            ("NSX", Dialect::Ini, "; did you mean [NSXT]?"),
            ("routes", Dialect::Yaml, "; did you mean route?"),
        ] {
            let found = unknown_section(written, dialect);
            assert_eq!((found.found.as_deref(), found.hint.as_str()), (Some(written), hint));
        }
        assert_eq!(unknown_section("default-VirtualCenter", Dialect::Ini), UnknownName::default());
    }
}
