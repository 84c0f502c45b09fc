//! Pure: durations and line breaks in the text of reports.

use jiff::Timestamp;

/// Maximum width of a line, in columns.
const WIDTH: usize = 100;

/// Separates two fields of a line.
const GAP: &str = "   ";

/// Indentation of continued lines, in columns.
pub const INDENT: usize = 2;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Returns a duration in its two largest units: `3 d 4 h`, `6 m 12 s`, `41 s`.
pub fn duration(seconds: u64) -> String {
    let units = [(DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "m"), (MINUTE, "m", 1, "s")];
    for (large, large_unit, small, small_unit) in units {
        if seconds >= large {
            let rest = seconds % large / small;
            let rest = if rest == 0 { String::new() } else { format!(" {rest} {small_unit}") };
            return format!("{} {large_unit}{rest}", seconds / large);
        }
    }
    format!("{seconds} s")
}

/// Returns the date of a time that is more than ten years away, for which a number of days says little.
pub fn far_date(today: Timestamp, time: Timestamp) -> Option<String> {
    let years = time.as_second().saturating_sub(today.as_second()) / (365 * 24 * 3600);
    (years >= 10).then(|| time.strftime("%Y-%m-%d").to_string())
}

/// Returns a count with its noun, in the plural unless the count is one.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Whether a character controls a terminal, breaks a line, or changes the direction of text.
pub fn is_control(char: char) -> bool {
    let is_direction = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}');
    let is_isolate = matches!(char, '\u{2066}'..='\u{2069}');
    let is_break = matches!(char, '\u{2028}' | '\u{2029}');
    char.is_control() || is_direction || is_isolate || is_break
}

/// Replaces control characters by spaces, also those that break lines or change the direction of text.
pub fn clean(text: &str) -> String {
    text.chars().map(|char| if is_control(char) { ' ' } else { char }).collect()
}

/// Joins fields to lines. A field that does not fit begins a line that is indented by `indent` columns; a field that is
/// wider than a line is broken between words. Control characters become spaces.
pub fn wrapped(fields: &[String], indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for field in fields {
        let clean = clean(field);
        let clean = clean.trim_end();
        match lines.last_mut() {
            Some(line) if width(line) + GAP.len() + width(clean) <= WIDTH => {
                line.push_str(GAP);
                line.push_str(clean);
            }
            before => {
                let first = if before.is_some() { indent } else { 0 };
                lines.extend(broken(clean, &" ".repeat(first), indent));
            }
        }
    }
    lines
}

/// Breaks a text between words. The first line begins with `first`, each further line with `indent` columns. Control
/// characters become spaces.
pub fn hanging(first: &str, text: &str, indent: usize) -> Vec<String> {
    broken(clean(text).trim_end(), first, indent)
}

/// Breaks a field between words. The first line begins with `first`, the others with `indent` columns.
fn broken(field: &str, first: &str, indent: usize) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut is_empty = true;
    for word in field.split(' ') {
        let fits = lines.last().is_some_and(|line| width(line) + 1 + width(word) <= WIDTH);
        if !is_empty && !fits {
            lines.push(" ".repeat(indent));
            is_empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
    }
    lines
}

/// Quotes a word for a shell, if it needs quotes. Control characters become spaces.
pub fn shell_word(word: &str) -> String {
    let word = clean(word);
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-:%@+=,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    format!("'{}'", in_shell_quotes(&word))
}

/// Returns a text as it stands between single quotes in a shell.
pub fn in_shell_quotes(text: &str) -> String {
    text.replace('\'', "'\\''")
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_two_units() {
        let table = [
            (0, "0 s"),
            (41, "41 s"),
            (60, "1 m"),
            (372, "6 m 12 s"),
            (7200, "2 h"),
            (7260, "2 h 1 m"),
            (273_600, "3 d 4 h"),
            (18_230_400, "211 d"),
        ];
        for (seconds, expected) in table {
            assert_eq!(duration(seconds), expected);
        }
        assert_eq!([count(1, "VM"), count(0, "VM"), count(12, "VM")], ["1 VM", "0 VMs", "12 VMs"]);
    }

    #[test]
    fn words_for_a_shell_are_quoted_when_they_need_it() {
        for (word, expected) in [
            ("/dc-1/vm/k8s%2fa", "/dc-1/vm/k8s%2fa"),
            ("/dc 1/vm", "'/dc 1/vm'"),
            ("it's; rm", "'it'\\''s; rm'"),
            ("a\nb", "'a b'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }

    #[test]
    fn only_a_time_in_ten_years_or_later_has_a_far_date() {
        let today: Timestamp = "2026-11-24T03:12:41Z".parse().unwrap();
        for (time, expected) in [
            ("2026-11-24T03:12:00Z", None),
            ("2035-11-24T03:12:00Z", None),
            ("4096-01-01T00:00:00Z", Some("4096-01-01")),
        ] {
            assert_eq!(far_date(today, time.parse().unwrap()).as_deref(), expected);
        }
    }

    #[test]
    fn no_character_of_another_program_controls_the_terminal() {
        for char in ['\u{1b}', '\u{9b}', '\n', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{61c}', '\u{2028}'] {
            assert_eq!(clean(&format!("a{char}b")), "a b", "{char:?}");
        }
        assert_eq!(clean("Zürich, 東京"), "Zürich, 東京");
    }

    #[test]
    fn the_further_lines_of_a_hanging_text_are_indented() {
        let text = format!("{} y\u{7}z", "x".repeat(96));
        assert_eq!(hanging("  ✓ ", &text, 8), [format!("  ✓ {}", "x".repeat(96)), "        y z".to_owned()]);
    }

    #[test]
    fn lines_have_at_most_100_columns_and_lose_no_word() {
        let fields = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(wrapped(&fields(&["a", "b  c"]), INDENT), ["a   b  c"]);
        let wide = "x".repeat(60);
        assert_eq!(wrapped(&fields(&[&wide, &wide, "y"]), 4), [wide.clone(), format!("    {wide}   y")]);
        let words = (0..60).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ");
        let lines = wrapped(&fields(&["subject", &words]), INDENT);
        assert!(lines.len() > 3 && lines.iter().all(|line| width(line) <= WIDTH), "{lines:#?}");
        let joined = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        assert_eq!(joined, format!("subject {words}"));
        let unbreakable = "z".repeat(150);
        assert_eq!(wrapped(&fields(&[&unbreakable]), INDENT), [unbreakable]);
        assert_eq!(
            wrapped(&fields(&["a\u{1b}[31m\nb"]), INDENT),
            ["a [31m b"],
            "no control character reaches a terminal"
        );
    }
}
