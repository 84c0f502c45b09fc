//! Pure: parses and formats durations as Go does, such as `1h2m3s` and `1.5h`. Mirrors `time.ParseDuration`.

use std::time::Duration;

/// Error in the text of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    /// The text does not consist of numbers with units. Examples: `10`, `5 minutes`.
    #[error("it is not a duration such as 1h2m3s, 1.5h or 100ms")]
    Form,
    /// The duration is negative. Go accepts negative durations, but no flag of this program needs one.
    #[error("it is negative")]
    Negative,
    /// The duration exceeds Go's maximum of 2^63-1 nanoseconds, about 292 years.
    #[error("it is longer than 2562047h")]
    TooLong,
}

const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    // Go accepts the micro sign and the Greek letter mu.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration. The text can begin with a sign. `0` needs no unit.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let (is_negative, unsigned) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => (false, text),
    };
    let nanoseconds = match unsigned {
        "0" => 0,
        "" => return Err(InvalidDuration::Form),
        _ => parse_terms(unsigned)?,
    };
    if is_negative && nanoseconds > 0 {
        return Err(InvalidDuration::Negative);
    }
    let nanoseconds = i64::try_from(nanoseconds).map_err(|_| InvalidDuration::TooLong)?;
    Ok(Duration::from_nanos(nanoseconds.unsigned_abs()))
}

fn parse_terms(mut rest: &str) -> Result<u128, InvalidDuration> {
    let mut total = 0_u128;
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |char| !char.is_ascii_digit() && char != '.');
        let (unit, after) = split_at_first(after, |char| char.is_ascii_digit() || char == '.');
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidDuration::Form)?;
        total = total.checked_add(parse_number(number, *scale)?).ok_or(InvalidDuration::TooLong)?;
        rest = after;
    }
    Ok(total)
}

fn split_at_first(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

/// Parses a decimal number such as `1`, `1.`, `.5` or `1.5` and converts it to nanoseconds. `scale` is the length of
/// the unit in nanoseconds. Drops fractions of a nanosecond, as Go does.
fn parse_number(text: &str, scale: u128) -> Result<u128, InvalidDuration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(InvalidDuration::Form);
    }
    let digits = |text: &str| text.bytes().map(|digit| u128::from(digit - b'0')).collect::<Vec<_>>();
    let mut nanoseconds = 0_u128;
    for digit in digits(whole) {
        nanoseconds =
            nanoseconds.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(InvalidDuration::TooLong)?;
    }
    nanoseconds = nanoseconds.checked_mul(scale).ok_or(InvalidDuration::TooLong)?;
    // 18 digits are more precise than a nanosecond in every unit.
    let (mut part, mut place) = (0_u128, 1_u128);
    for digit in digits(fraction).into_iter().take(18) {
        part = part * 10 + digit;
        place *= 10;
    }
    nanoseconds.checked_add(part * scale / place).ok_or(InvalidDuration::TooLong)
}

/// Formats a duration as Go does: `5m0s`, `1h0m0s`, `1.5s`, `100ms`.
pub fn spelled(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    if duration < Duration::from_secs(1) {
        let (unit, scale) = match nanoseconds {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("\u{b5}s", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{}{unit}", with_fraction(nanoseconds, scale));
    }
    let minutes = duration.as_secs() / 60;
    let seconds = with_fraction(nanoseconds - u128::from(minutes) * 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats a duration in whole seconds, rounded up, such as `72s`.
pub fn whole_seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}

fn with_fraction(value: u128, scale: u128) -> String {
    let (whole, fraction) = (value / scale, value % scale);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    format!("{whole}.{fraction:0width$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pause_is_shown_in_whole_seconds() {
        for (milliseconds, shown) in [(71_557, "72s"), (937, "1s"), (0, "0s"), (60_000, "60s"), (1, "1s")] {
            assert_eq!(whole_seconds(Duration::from_millis(milliseconds)), shown);
        }
        assert_eq!(whole_seconds(Duration::MAX), format!("{}s", u64::MAX));
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases: &[(&str, Result<u64, InvalidDuration>)] = &[
            ("1h2m3s", Ok(3_723_000_000_000)),
            ("1.5h", Ok(5_400_000_000_000)),
            ("100ms", Ok(100_000_000)),
            ("500us", Ok(500_000)),
            ("500\u{b5}s", Ok(500_000)),
            ("500\u{3bc}s", Ok(500_000)),
            ("7ns", Ok(7)),
            (".5s", Ok(500_000_000)),
            ("5.s", Ok(5_000_000_000)),
            ("+5s", Ok(5_000_000_000)),
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("0.9ns", Ok(0)),
            ("3s1h", Ok(3_603_000_000_000)),
            ("9223372036854775807ns", Ok(9_223_372_036_854_775_807)),
            ("9223372036854775808ns", Err(InvalidDuration::TooLong)),
            ("99999999999999999999999999999999999999999s", Err(InvalidDuration::TooLong)),
            ("-5s", Err(InvalidDuration::Negative)),
            ("", Err(InvalidDuration::Form)),
            ("-", Err(InvalidDuration::Form)),
            ("10", Err(InvalidDuration::Form)),
            (".s", Err(InvalidDuration::Form)),
            ("1.2.3s", Err(InvalidDuration::Form)),
            ("5 s", Err(InvalidDuration::Form)),
            ("5d", Err(InvalidDuration::Form)),
            ("s", Err(InvalidDuration::Form)),
            ("1h 2m", Err(InvalidDuration::Form)),
            ("\u{666}s", Err(InvalidDuration::Form)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), expected.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn durations_are_spelled_as_go_spells_them() {
        for text in ["5m0s", "1h0m0s", "1.5s", "100ms", "10s", "0s", "1h2m3.25s", "7ns", "1.001ms"] {
            assert_eq!(spelled(parse_duration(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn a_spelled_duration_is_read_back(nanoseconds in 0..=i64::MAX.unsigned_abs()) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse_duration(&spelled(duration)), Ok(duration));
        }
    }
}
