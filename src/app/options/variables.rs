//! Pure: warnings about unknown environment variables with the prefix `CCM_`. A misspelled variable leaves its flag at
//! the default. For example, Nodes are deleted if `CCM_NODE_DELETION=off` is misspelled.

use std::ffi::OsString;

use super::{flags, nearest};

const PREFIX: &str = "CCM_";

/// Returns a warning for each unknown name with the prefix. The warning contains the nearest valid name, if one is
/// similar. Omits the variables that Kubernetes sets for Services.
pub(super) fn warnings(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let known: Vec<&str> = flags::all().filter_map(|flag| flag.variable).collect();
    let words: Vec<String> =
        known.iter().filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_ascii_lowercase).collect();
    let unknown = names.into_iter().map(|name| name.to_string_lossy().into_owned()).filter_map(|name| {
        let (prefix, rest) = name.split_at_checked(PREFIX.len())?;
        if !prefix.eq_ignore_ascii_case(PREFIX) || known.contains(&name.as_str()) || is_service_link(&name) {
            return None;
        }
        let near = nearest(rest, words.iter().map(String::as_str));
        let hint = near.map(|word| format!("; did you mean {PREFIX}{}?", word.to_ascii_uppercase()));
        Some(format!("environment variable {name}: unknown, ignored{}", hint.unwrap_or_default()))
    });
    let mut unknown: Vec<String> = unknown.collect();
    unknown.sort();
    unknown
}

/// Returns true for the name of a variable that Kubernetes sets for a Service named `ccm` or `ccm-…`.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(names: &[&str]) -> Vec<String> {
        warnings(names.iter().map(OsString::from))
    }

    #[test]
    fn a_misspelled_variable_is_warned_of_with_the_nearest_name() {
        for (name, expected) in [
            ("CCM_NODE_DELETIONS", "; did you mean CCM_NODE_DELETION?"),
            ("CCM_NODE_DELETE", "; did you mean CCM_NODE_DELETION?"),
            ("CCM_NODEDELETION", "; did you mean CCM_NODE_DELETION?"),
            ("ccm_node_deletion", "; did you mean CCM_NODE_DELETION?"),
            ("CCM_NODE_DELETION_LIMITS", "; did you mean CCM_NODE_DELETION_LIMIT?"),
            ("CCM_STAND_BY", "; did you mean CCM_STANDBY?"),
            ("CCM_", ""),
            ("CCM_CLOUD_CONFIG", ""),
        ] {
            assert_eq!(warned(&[name]), [format!("environment variable {name}: unknown, ignored{expected}")]);
        }
        assert_eq!(warned(&["CCM_Z", "CCM_A"]).len(), 2);
    }

    #[test]
    fn known_variables_service_links_and_those_of_others_are_not() {
        let links = [
            "CCM_SERVICE_HOST",
            "CCM_METRICS_SERVICE_HOST",
            "CCM_METRICS_SERVICE_PORT",
            "CCM_METRICS_SERVICE_PORT_HTTPS",
            "CCM_METRICS_PORT",
            "CCM_METRICS_PORT_443_TCP",
            "CCM_METRICS_PORT_443_TCP_ADDR",
        ];
        assert_eq!(warned(&links), Vec::<String>::new());
        let known: Vec<&str> = flags::all().filter_map(|flag| flag.variable).collect();
        assert!(known.contains(&"CCM_NODE_DELETION") && known.iter().all(|name| name.starts_with(PREFIX)));
        assert_eq!(warned(&known), Vec::<String>::new());
        let links: Vec<&&str> = known.iter().filter(|name| is_service_link(name)).collect();
        assert_eq!(links, Vec::<&&str>::new(), "Kubernetes may set them for a Service");
        assert_eq!(
            warned(&["PATH", "VSPHERE_USER", "CCMX", "CCM", "", "é", "XCCM_NODE_DELETION"]),
            Vec::<String>::new()
        );
    }
}
