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
            && wanted.iter().zip(&datacenter.path).all(|(pattern, name)| matches_name(pattern, name));
    }
    datacenter.path.last().is_some_and(|name| matches_name(item, name))
}

/// Whether a name matches a pattern. A `/` in a name is no separator: vCenter stores it as `%2f`, and so it is matched.
fn matches_name(pattern: &str, name: &str) -> bool {
    glob(pattern, &name.replace('/', "%2f"))
}

/// Shell patterns as Go's `path.Match` has them: `*`, `?`, `[a-z]`, `[^a-z]` and `\` before a special character. `*` and `?`
/// do not match `/`, classes do. A malformed pattern matches nothing.
///
/// The last `*` that was passed is where a mismatch goes back to, so that the time is at most the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut rest, mut left) = (pattern.as_slice(), text.as_slice());
    let mut last_star: Option<(&[char], &[char])> = None;
    loop {
        if let ['*', after @ ..] = rest {
            last_star = Some((after, left));
            rest = after;
            continue;
        }
        let step = match left.split_first() {
            None if rest.is_empty() => return true,
            None => None,
            Some((character, after)) => one(rest, *character).map(|rest| (rest, after)),
        };
        match (step, last_star) {
            (Some((next, after)), _) => (rest, left) = (next, after),
            // The star takes one character more.
            (None, Some((after, from))) => match from.split_first() {
                Some((character, fewer)) if *character != '/' => {
                    last_star = Some((after, fewer));
                    (rest, left) = (after, fewer);
                }
                _ => return false,
            },
            (None, None) => return false,
        }
    }
}

/// What of the pattern is left after it has taken this character; `None` when it does not take it.
fn one(pattern: &[char], character: char) -> Option<&[char]> {
    match pattern {
        ['?', rest @ ..] => (character != '/').then_some(rest),
        ['\\', literal, rest @ ..] => (*literal == character).then_some(rest),
        ['[', '^', class @ ..] => in_class(class, character).and_then(|(is_in, rest)| (!is_in).then_some(rest)),
        ['[', class @ ..] => in_class(class, character).and_then(|(is_in, rest)| is_in.then_some(rest)),
        [literal, rest @ ..] => (*literal == character && !matches!(*literal, '\\' | '[')).then_some(rest),
        [] => None,
    }
}

/// Whether the character is in the class that ends at `]`, and what follows. `None` for a class that is not one.
fn in_class(mut class: &[char], character: char) -> Option<(bool, &[char])> {
    let (mut is_in, mut is_first) = (false, true);
    loop {
        if let (false, [']', rest @ ..]) = (is_first, class) {
            return Some((is_in, rest));
        }
        is_first = false;
        let (low, rest) = bound(class)?;
        let (high, rest) = match rest {
            ['-', rest @ ..] => bound(rest)?,
            _ => (low, rest),
        };
        is_in |= (low..=high).contains(&character);
        class = rest;
    }
}

/// One end of a range in a class, and what follows.
fn bound(class: &[char]) -> Option<(char, &[char])> {
    match class {
        ['\\', literal, rest @ ..] => Some((*literal, rest)),
        [] | ['\\' | '-' | ']', ..] => None,
        [literal, rest @ ..] => Some((*literal, rest)),
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

    /// Those of Go's `path/match_test.go`; a bad pattern matches nothing.
    const OF_GO: &[(&str, &str, bool)] = &[
        ("abc", "abc", true),
        ("*", "abc", true),
        ("*c", "abc", true),
        ("a*", "a", true),
        ("a*", "abc", true),
        ("a*", "ab/c", false),
        ("a*/b", "abc/b", true),
        ("a*/b", "a/c/b", false),
        ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
        ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
        ("a*b?c*x", "abxbbxdbxebxczzx", true),
        ("a*b?c*x", "abxbbxdbxebxczzy", false),
        ("ab[c]", "abc", true),
        ("ab[b-d]", "abc", true),
        ("ab[e-g]", "abc", false),
        ("ab[^c]", "abc", false),
        ("ab[^b-d]", "abc", false),
        ("ab[^e-g]", "abc", true),
        ("a\\*b", "a*b", true),
        ("a\\*b", "ab", false),
        ("a?b", "a☺b", true),
        ("a[^a]b", "a☺b", true),
        ("a???b", "a☺b", false),
        ("a[^a][^a][^a]b", "a☺b", false),
        ("[a-ζ]*", "α", true),
        ("*[a-ζ]", "A", false),
        ("a?b", "a/b", false),
        ("a*b", "a/b", false),
        ("[\\]a]", "]", true),
        ("[\\-]", "-", true),
        ("[x\\-]", "x", true),
        ("[x\\-]", "-", true),
        ("[x\\-]", "z", false),
        ("[\\-x]", "x", true),
        ("[\\-x]", "-", true),
        ("[\\-x]", "a", false),
        ("[]a]", "]", false),
        ("[-]", "-", false),
        ("[x-]", "x", false),
        ("[x-]", "-", false),
        ("[x-]", "z", false),
        ("[-x]", "x", false),
        ("[-x]", "-", false),
        ("[-x]", "a", false),
        ("\\", "a", false),
        ("[a-b-c]", "a", false),
        ("[", "a", false),
        ("[^", "a", false),
        ("[^bc", "a", false),
        ("a[", "a", false),
        ("a[", "ab", false),
        ("a[", "x", false),
        ("a/b[", "x", false),
        ("*x", "xxx", true),
    ];

    #[test]
    fn patterns_match_as_in_go() {
        let wrong: Vec<_> = OF_GO.iter().filter(|(pattern, text, expected)| glob(pattern, text) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_name_with_a_slash_is_matched_as_vcenter_stores_it() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["F0".into(), "a/b".into()] };
        for (item, expected) in [("*", true), ("a*b", true), ("a%2fb", true), ("/F0/a%2fb", true), ("a?b", false)] {
            assert_eq!(covers(&[item.into()], &datacenter), expected, "{item}");
        }
    }

    /// Each star would multiply the time, if each tried every rest of the name.
    #[test]
    fn many_stars_take_no_longer_than_the_product_of_the_lengths() {
        let (pattern, text) = (format!("{}b", "a*".repeat(12)), "a".repeat(80));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(glob(&pattern, &text)));
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(false));
    }

    #[test]
    fn w36_a_datacenter_named_like_an_id_is_found_by_name() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["vm-dc1".into()] };
        assert!(covers(&["vm-dc1".into()], &datacenter));
    }
}
