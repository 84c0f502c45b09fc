//! Pure: which datacenters a vCenter entry covers.
//!
//! Searches are made without a datacenter argument (one call instead of one per datacenter), and what they find is
//! held against the configured items here. Mirrors `pkg/common/vclib/datacenter.go:GetAllDatacenter`: an item is a
//! name (glob), an inventory path, or a managed object id.

use super::snapshot::Datacenter;

/// Whether `datacenter` is one of `items`. No items means every datacenter.
pub fn covers(items: &[String], datacenter: &Datacenter) -> bool {
    let mut items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()).peekable();
    items.peek().is_none() || items.any(|item| matches(item, datacenter))
}

fn matches(item: &str, datacenter: &Datacenter) -> bool {
    if item == datacenter.id || item.strip_prefix("Datacenter:") == Some(datacenter.id.as_str()) {
        return true;
    }
    if item.contains('/') {
        let wanted: Vec<&str> = item.split('/').filter(|part| !part.is_empty()).collect();
        // An absolute path may name the root folder, which has no place in the datacenter's path.
        let wanted = match wanted.split_first() {
            Some((&"Datacenters", rest)) if rest.len() == datacenter.path.len() => rest.to_vec(),
            _ => wanted,
        };
        return wanted.len() == datacenter.path.len()
            && wanted.iter().zip(&datacenter.path).all(|(pattern, name)| glob(pattern, name));
    }
    datacenter.path.last().is_some_and(|name| glob(item, name))
}

/// Shell patterns as Go's `path.Match` has them: `*`, `?`, `[a-z]`, `[^a-z]` and `\` before a special character.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    glob_from(&pattern, &text)
}

fn glob_from(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => {
            // Runs of stars are one star; each remaining star tries every tail once.
            if rest.first() == Some(&'*') {
                return glob_from(rest, text);
            }
            (0..=text.len()).any(|skip| text.get(skip..).is_some_and(|tail| glob_from(rest, tail)))
        }
        Some(('?', rest)) => text.split_first().is_some_and(|(_, tail)| glob_from(rest, tail)),
        Some(('[', rest)) => text.split_first().is_some_and(|(first, tail)| match class(rest, *first) {
            Some((true, rest)) => glob_from(rest, tail),
            _ => false,
        }),
        Some(('\\', rest)) => match (rest.split_first(), text.split_first()) {
            (Some((wanted, rest)), Some((first, tail))) => wanted == first && glob_from(rest, tail),
            _ => false,
        },
        Some((wanted, rest)) => {
            text.split_first().is_some_and(|(first, tail)| wanted == first && glob_from(rest, tail))
        }
    }
}

/// Whether `character` is in the class that `pattern` opens, and what follows the class. None if it never ends.
fn class(pattern: &[char], character: char) -> Option<(bool, &[char])> {
    let (negated, mut rest) = match pattern.split_first() {
        Some(('^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    let mut found = false;
    let mut is_first = true;
    loop {
        let (low, after) = rest.split_first()?;
        if *low == ']' && !is_first {
            return Some((found != negated, after));
        }
        is_first = false;
        let (high, after) = match after {
            ['-', high, after @ ..] if *high != ']' => (high, after),
            _ => (low, after),
        };
        found |= (*low..=*high).contains(&character);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_a_name_a_pattern_a_path_or_an_id() {
        let in_folder = Datacenter { id: "datacenter-3".into(), path: vec!["F0".into(), "DC1".into()] };
        for (case, items, expected) in [
            ("no item covers all", vec![], true),
            ("blank items are none", vec![" ", ""], true),
            ("name", vec!["DC1"], true),
            ("name with blanks around", vec![" DC1 "], true),
            ("name is case-sensitive", vec!["dc1"], false),
            ("pattern", vec!["DC*"], true),
            ("pattern of one character", vec!["DC?"], true),
            ("pattern with a class", vec!["DC[0-2]"], true),
            ("pattern with a negated class", vec!["DC[^0-2]"], false),
            ("escaped star", vec!["DC\\*"], false),
            ("class that never ends", vec!["DC[0-2"], false),
            ("everything", vec!["*"], true),
            ("absolute path", vec!["/F0/DC1"], true),
            ("path with the root folder", vec!["/Datacenters/F0/DC1"], true),
            ("relative path", vec!["F0/DC1"], true),
            ("path that stops short", vec!["/DC1"], false),
            ("id", vec!["datacenter-3"], true),
            ("type and id", vec!["Datacenter:datacenter-3"], true),
            ("another id", vec!["datacenter-4"], false),
            ("one of several", vec!["DC7", "DC1"], true),
        ] {
            let items: Vec<String> = items.into_iter().map(String::from).collect();
            assert_eq!(covers(&items, &in_folder), expected, "{case}");
        }
    }

    #[test]
    fn w36_a_datacenter_named_like_an_id_is_found_by_name() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["vm-dc1".into()] };
        assert!(covers(&["vm-dc1".into()], &datacenter));
    }
}
