//! Pure: matches shell patterns as Go's `path.Match` and `filepath.Match` do.

/// Returns true if the pattern matches all of `name`. `*` matches any number of characters except `/`, and `?` matches
/// one character except `/`. `[a-c]` and `[^a-c]` match one character in or outside a class, even `/`. `\` makes the
/// next character literal. A malformed pattern matches nothing.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    matches_from(&pattern, &name)
}

/// Whether the pattern is well-formed.
pub fn is_well_formed(pattern: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let mut rest = pattern.as_slice();
    loop {
        rest = match rest {
            [] => return true,
            ['\\', _, rest @ ..] => rest,
            ['\\'] => return false,
            ['[', '^', class @ ..] | ['[', class @ ..] => match in_class(class, '/') {
                Some((_, rest)) => rest,
                None => return false,
            },
            [_, rest @ ..] => rest,
        };
    }
}

/// Backtracks only to the last `*`, so the time is at most proportional to the product of both lengths.
fn matches_from(pattern: &[char], name: &[char]) -> bool {
    let (mut rest, mut left) = (pattern, name);
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
            Some((char, after)) => one(rest, *char).map(|rest| (rest, after)),
        };
        match (step, last_star) {
            (Some((next, after)), _) => (rest, left) = (next, after),
            (None, Some((after, from))) => match from.split_first() {
                Some((char, fewer)) if *char != '/' => {
                    last_star = Some((after, fewer));
                    (rest, left) = (after, fewer);
                }
                _ => return false,
            },
            (None, None) => return false,
        }
    }
}

/// Returns the pattern after the element that matches this character. Returns `None` if the character does not match.
fn one(pattern: &[char], char: char) -> Option<&[char]> {
    match pattern {
        ['?', rest @ ..] => (char != '/').then_some(rest),
        ['\\', literal, rest @ ..] => (*literal == char).then_some(rest),
        ['[', '^', class @ ..] => in_class(class, char).and_then(|(is_in, rest)| (!is_in).then_some(rest)),
        ['[', class @ ..] => in_class(class, char).and_then(|(is_in, rest)| is_in.then_some(rest)),
        [literal, rest @ ..] => (*literal == char && !matches!(*literal, '\\' | '[')).then_some(rest),
        [] => None,
    }
}

/// Returns whether the character is in the class, and the pattern after the `]` of the class. `None` if the class is
/// malformed.
fn in_class(mut class: &[char], char: char) -> Option<(bool, &[char])> {
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
        is_in |= (low..=high).contains(&char);
        class = rest;
    }
}

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

    /// Test cases of Go's `path/match_test.go`. A bad pattern is an error in Go; in this program it matches nothing.
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

    /// Patterns for which Go returns `ErrBadPattern`.
    const MALFORMED: &[&str] = &["[]a]", "[-]", "[x-]", "[-x]", "\\", "[a-b-c]", "[", "[^", "[^bc", "a[", "a/b["];

    #[test]
    fn a_pattern_is_malformed_where_go_says_so() {
        for (pattern, ..) in OF_GO {
            assert_eq!(is_well_formed(pattern), !MALFORMED.contains(pattern), "{pattern}");
        }
    }

    /// Further test cases, with the results of Go's `filepath.Match`.
    const OTHERS: &[(&str, &str, bool)] = &[
        ("node", "node", true),
        ("node", "nodes", false),
        ("*", "node", true),
        ("*", "", true),
        ("*", "a/b", false),
        ("a*", "a/b", false),
        ("*/b", "a/b", true),
        ("node*", "node_lifecycle", true),
        ("*cycle", "node_lifecycle", true),
        ("n*l*e", "node_lifecycle", true),
        ("n*x*e", "node_lifecycle", false),
        ("n?de", "node", true),
        ("n?de", "n/de", false),
        ("[l-o]ode", "node", true),
        ("[^l-o]ode", "node", false),
        ("[^a-c]ode", "node", true),
        ("[]]", "]", false),
        ("[\\]]", "]", true),
        ("[a-]", "-", false),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("\\", "\\", false),
        ("[", "[", false),
        ("", "", true),
        ("", "a", false),
    ];

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, expected) in OF_GO.iter().chain(OTHERS) {
            assert_eq!(matches(pattern, name), *expected, "{pattern} {name}");
        }
    }

    /// A search that tries every remaining part of the name for each star would multiply the time with each star.
    #[test]
    fn many_stars_take_no_longer_than_the_product_of_the_lengths() {
        let (pattern, text) = (format!("{}b", "a*".repeat(12)), "a".repeat(80));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(matches(&pattern, &text)));
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(false));
    }

    proptest::proptest! {
        #[test]
        fn no_pattern_breaks_the_reader(pattern in "[*?\\[\\]^a\\\\/-]{0,12}", name in "[a/*\\]-]{0,12}") {
            let _ = matches(&pattern, &name);
        }
    }
}
