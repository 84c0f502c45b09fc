//! Names in the inventory, which escape three characters.

/// The name as people see it: vCenter stores `/`, `\` and `%` as `%2f`, `%5c` and `%25`, and nothing else that way.
pub fn decode_name(name: &str) -> String {
    let mut decoded = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let (character, length) = match after.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("2f") => ('/', 2),
            Some("5c") => ('\\', 2),
            Some("25") => ('%', 2),
            _ => ('%', 0),
        };
        decoded.push(character);
        rest = after.get(length..).unwrap_or_default();
    }
    decoded.push_str(rest);
    decoded
}

#[cfg(test)]
mod tests {
    //! Names that vCenter escapes.

    use super::decode_name;

    #[test]
    fn only_the_three_escapes_are_decoded_and_only_once() {
        let cases = [
            ("node-1", "node-1"),
            ("a%2fb", "a/b"),
            ("a%2Fb%5Cc", "a/b\\c"),
            ("100%25", "100%"),
            ("%252f", "%2f"),
            ("a%20b", "a%20b"),
            ("%", "%"),
            ("%2", "%2"),
            ("%é", "%é"),
            ("", ""),
        ];
        for (stored, shown) in cases {
            assert_eq!(decode_name(stored), shown, "{stored}");
        }
    }
}
