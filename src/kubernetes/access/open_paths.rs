//! Paths that need no permission. Pure. Mirrors `pkg/authorization/path` of `kubernetes/apiserver`.

/// Patterns of the paths that need no permission, without the leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenPaths(Vec<String>);

/// The error for a pattern with a star before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} has a * before its end; only the last character may be one")]
pub struct BadPattern(pub String);

impl OpenPaths {
    /// Parses patterns such as `/path` and `/beginning*`. The leading slash is optional.
    ///
    /// # Errors
    /// Returns the first pattern with a star before its end.
    pub fn parse(patterns: &[String]) -> Result<Self, BadPattern> {
        let is_bad = |pattern: &&String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        match patterns.iter().find(is_bad) {
            Some(pattern) => Err(BadPattern(pattern.clone())),
            None => Ok(Self(patterns.iter().map(|pattern| without_slash(pattern).to_owned()).collect())),
        }
    }

    /// Whether the path needs no permission.
    pub fn contains(&self, path: &str) -> bool {
        let rest = without_slash(path);
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => rest.starts_with(beginning),
            None => rest == pattern,
        })
    }
}

/// Removes at most one slash, because `//foo` and `/foo` are different paths.
fn without_slash(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, patterns, paths that match, and paths that do not.
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

    fn parsed(patterns: &[&str]) -> Result<OpenPaths, BadPattern> {
        OpenPaths::parse(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
    }

    // vectors: O-80
    #[test]
    fn o_80_a_star_is_the_last_character_or_none() {
        for pattern in ["/foo*bar", "/foo**", "*foo", "**", "/*/foo"] {
            let error = parsed(&["/healthz", pattern]).unwrap_err();
            assert_eq!(error, BadPattern(pattern.to_owned()), "O-80 {pattern}");
        }
    }

    // vectors: O-81–O-87
    #[test]
    fn o_81_to_o_87_paths_are_open_as_in_the_go_program() {
        let cases: [Case<'_>; 9] = [
            ("O-81 none", &[], &[], &["/", "", "/foo"]),
            ("O-82 the root", &["/"], &["/"], &["/foo", "//"]),
            ("O-83 a path", &["/foo"], &["/foo", "foo"], &["/", "", "/bar", "/foo/", "/fooooo", "//foo"]),
            ("O-84 with a slash at its end", &["/foo/"], &["/foo/"], &["/foo", "/"]),
            ("O-85 all below", &["/foo/*"], &["/foo/", "/foo/bar/bla"], &["/foo", "/"]),
            ("O-86 a beginning", &["/foo*"], &["/foo", "/foooo"], &["/fo", "/bar"]),
            ("O-87 all", &["/*"], &["/", "", "/foo", "//", "/foo/bar"], &[]),
            ("without a slash", &["foo"], &["/foo"], &["/bar"]),
            ("a star alone", &["*"], &["/", "/foo"], &[]),
        ];
        for (name, patterns, open, closed) in cases {
            let paths = parsed(patterns).unwrap();
            for path in open {
                assert!(paths.contains(path), "{name}: {path:?} is open");
            }
            for path in closed {
                assert!(!paths.contains(path), "{name}: {path:?} is not open");
            }
        }
    }
}
