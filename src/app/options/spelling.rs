//! Pure: habits of Go's flag package that the parser does not have, and the nearest name of an unknown flag.

use std::ffi::OsString;

/// `--cloud_config=a_b` is `--cloud-config=a_b`: words of a flag's name may be separated by `_` as well.
pub fn as_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let dashed = |argument: OsString| match argument.to_str() {
        Some(text) if text.starts_with("--") => {
            let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
            OsString::from(name.replace('_', "-") + value)
        }
        _ => argument,
    };
    arguments.into_iter().map(dashed).collect()
}

/// The name that takes the fewest edits to come to from what was typed, if that is not another word altogether.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-').split('=').next().unwrap_or_default().to_lowercase();
    let (edits, name) = names.map(|name| (strsim::levenshtein(&typed, name), name)).min()?;
    let is_near = edits * 3 <= typed.len().max(name.len()) || (typed.len() > 3 && name.contains(typed.as_str()));
    is_near.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_flag_is_named_and_no_far_one() {
        let names = ["cloud-config", "controllers", "kubeconfig", "v"];
        let cases = [
            ("--cluod-config", Some("cloud-config")),
            ("--cloud-conf=/x", Some("cloud-config")),
            ("--controller", Some("controllers")),
            ("--kube-config", Some("kubeconfig")),
            ("--webhook-secure-port", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(nearest(typed, names.into_iter()), expected, "{typed}");
        }
    }
}
