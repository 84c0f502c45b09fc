//! Pure: the value of `--node-labels`, as the flag package of Go programs reads a map.

use crate::base::csv::fields;

/// A part that is no pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no pair; expected key=value, several of them separated by commas")]
pub struct NoPair(String);

/// Reads `a=b,c=d`. A text with one `=` is one pair, whose value may have commas. One with more is a line of comma
/// separated values: a part may stand in double quotes, in which commas mean nothing and `""` is a quote.
///
/// # Errors
/// A part that is not `key=value`.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, NoPair> {
    // A block in YAML ends in a line break.
    let text = text.trim_end_matches(['\r', '\n']);
    let parts = match text.matches('=').count() {
        1 => vec![text.trim_matches('"').to_owned()],
        _ => fields(text),
    };
    let pair = |part: String| match part.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(NoPair(part)),
    };
    parts.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_as_go_reads_them() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("a=b", &[("a", "b")]),
            ("a=", &[("a", "")]),
            ("a=b,c=d", &[("a", "b"), ("c", "d")]),
            ("a=b,c=d\n", &[("a", "b"), ("c", "d")]),
            ("a=b,c", &[("a", "b,c")]),
            ("\"a=b\"", &[("a", "b")]),
            ("\"a=b,c\",d=e", &[("a", "b,c"), ("d", "e")]),
            ("\"a=\"\"b\"\"\",d=e", &[("a", "\"b\""), ("d", "e")]),
            ("a=b=c", &[("a", "b=c")]),
            ("a=b, c=d", &[("a", "b"), (" c", "d")]),
        ];
        for (text, expected) in cases {
            let read = pairs(text).unwrap();
            let read: Vec<_> = read.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(read, *expected, "{text:?}");
        }
        for (text, part) in [("", ""), ("a", "a"), ("a,b", "a"), ("a=b,c=d,e", "e"), ("a=b,c=d,", "")] {
            assert_eq!(pairs(text), Err(NoPair(part.to_owned())), "{text:?}");
        }
    }
}
