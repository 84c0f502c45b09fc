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
pub fn nearest<'a>(typed: &str, names: &'a [String]) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-').split('=').next().unwrap_or_default().to_lowercase();
    let (edits, name) = names.iter().map(|name| (edits(&typed, name), name)).min()?;
    let is_near = edits * 3 <= typed.len().max(name.len()) || (typed.len() > 3 && name.contains(typed.as_str()));
    is_near.then_some(name.as_str())
}

/// Insertions, deletions and replacements between two words.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut next = vec![at + 1];
        for ((other, pair), left) in to.iter().zip(row.windows(2)).zip(1..) {
            let [diagonal, above] = pair else { continue };
            let here = next.get(left - 1).copied().unwrap_or(usize::MAX - 1);
            next.push((diagonal + usize::from(*other != letter)).min(above + 1).min(here + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn the_nearest_flag_is_named_and_no_far_one() {
        let names = ["cloud-config", "controllers", "kubeconfig", "v"].map(str::to_owned);
        let cases = [
            ("--cluod-config", Some("cloud-config")),
            ("--cloud-conf=/x", Some("cloud-config")),
            ("--controller", Some("controllers")),
            ("--kube-config", Some("kubeconfig")),
            ("--webhook-secure-port", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(nearest(typed, &names), expected, "{typed}");
        }
    }
}
