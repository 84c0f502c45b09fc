//! Pure: parses booleans and lists as Go's flag packages do.

/// Parses a boolean as `strconv.ParseBool` does.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Splits a line of comma-separated values. In a double-quoted field, a comma is text and `""` is a quote.
pub fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(field) = fields.last_mut() else { break };
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' if is_quoted => is_quoted = false,
            '"' if field.is_empty() => is_quoted = true,
            ',' if !is_quoted => fields.push(String::new()),
            _ => field.push(character),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_commas_together_and_are_not_part_of_the_field() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[""]),
            ("a,b", &["a", "b"]),
            ("a,,b", &["a", "", "b"]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"*\"", &["*"]),
            ("\"a\"\"b\"", &["a\"b"]),
            ("a b, c", &["a b", " c"]),
        ];
        for (line, expected) in cases {
            assert_eq!(fields(line), expected, "{line}");
        }
    }
}
