//! Pure: the pause of deletions that an operator orders: its annotations on the Lease, and when it ends.
//!
//! The end is a time of the API server's clock. An annotation that cannot be read pauses deletions, because an operator
//! who wrote one meant to pause them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// Annotation with the end of the pause (RFC 3339).
pub const ANNOTATION_UNTIL: &str = "vsphere-ccm.dev/deletions-paused-until";
/// Annotation with the operator's cause for the pause.
pub const ANNOTATION_CAUSE: &str = "vsphere-ccm.dev/deletions-paused-because";

/// Maximum length of a pause that the command orders.
pub const MAX_LENGTH: Duration = Duration::from_secs(7 * 24 * 3600);
/// Minimum length of a pause that the command orders. A shorter one would end soon after its acknowledgement.
pub const MIN_LENGTH: Duration = Duration::from_secs(60);
/// Maximum length of a cause, in characters.
pub const MAX_CAUSE: usize = 256;

/// Maximum length of a text of somebody else in a message, in characters.
const MAX_SHOWN: usize = 60;

/// The annotations of a pause. Both are optional, because other programs can write them, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseAnnotations {
    until: Option<String>,
    cause: Option<String>,
}

/// A pause of deletions that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionPause {
    /// Deletions pause until this time.
    Until {
        /// The end of the pause, by the clock of the API server.
        until: Timestamp,
        /// The operator's cause, if there is one.
        cause: Option<String>,
    },
    /// Deletions pause, because the annotations cannot be read.
    Unreadable {
        /// The fault of the annotations.
        fault: String,
    },
}

impl PauseAnnotations {
    /// Reads the annotations of the Lease.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let text = |name: &str, limit: usize| annotations.get(name).map(|text| clipped(text, limit));
        Self { until: text(ANNOTATION_UNTIL, MAX_SHOWN), cause: text(ANNOTATION_CAUSE, MAX_CAUSE) }
    }

    /// Returns the pause at this time of the API server's clock; `None` if deletions do not pause. Without a time, a
    /// pause has not ended.
    pub fn pause_at(&self, server_time: Option<Timestamp>) -> Option<DeletionPause> {
        let Some(until) = &self.until else {
            self.cause.as_ref()?;
            let fault = format!("the annotation {ANNOTATION_CAUSE} is there without {ANNOTATION_UNTIL}");
            return Some(DeletionPause::Unreadable { fault });
        };
        let Ok(end) = until.trim().parse::<Timestamp>() else {
            let fault =
                format!("the annotation {ANNOTATION_UNTIL} is {until:?}, and not a time such as 2026-11-30T04:00:00Z");
            return Some(DeletionPause::Unreadable { fault });
        };
        if server_time.is_some_and(|time| time >= end) {
            return None;
        }
        Some(DeletionPause::Until { until: end, cause: self.cause.clone() })
    }
}

/// Writes `2026-11-30T04:00:00Z (vCenter upgrade)`, or the fault.
impl fmt::Display for DeletionPause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeletionPause::Until { until, cause: Some(cause) } => write!(formatter, "until {until} ({cause})"),
            DeletionPause::Until { until, cause: None } => write!(formatter, "until {until}"),
            DeletionPause::Unreadable { fault } => formatter.write_str(fault),
        }
    }
}

/// Checks what the command orders.
///
/// # Errors
/// The fault, for the command's user.
pub fn check_order(length: Duration, cause: &str) -> Result<(), String> {
    if length < MIN_LENGTH || length > MAX_LENGTH {
        return Err("the length of the pause is not between 1 minute and 7 days (168h)".to_owned());
    }
    let characters = cause.chars().count();
    if cause.trim().is_empty() || characters > MAX_CAUSE {
        return Err(format!("the cause of the pause has {characters} characters, expected 1 to {MAX_CAUSE}"));
    }
    if cause.chars().any(char::is_control) {
        return Err("the cause of the pause has line breaks or other control characters".to_owned());
    }
    Ok(())
}

/// Returns the end of a pause of this length that begins at this time, in whole seconds, rounded up.
pub fn end_of_pause(server_time: Timestamp, length: Duration) -> Timestamp {
    let end = server_time.checked_add(length).unwrap_or(Timestamp::MAX);
    let seconds = end.as_second().saturating_add(i64::from(end.subsec_nanosecond() > 0));
    Timestamp::from_second(seconds).unwrap_or(end)
}

/// Adds the annotations of a pause, in place of earlier ones.
pub fn add_pause(annotations: &mut BTreeMap<String, String>, until: Timestamp, cause: &str) {
    annotations.insert(ANNOTATION_UNTIL.to_owned(), until.to_string());
    annotations.insert(ANNOTATION_CAUSE.to_owned(), cause.trim().to_owned());
}

/// Removes the annotations of a pause. Returns whether there were any, also of a pause that has ended.
pub fn remove_pause(annotations: &mut BTreeMap<String, String>) -> bool {
    let removed = [annotations.remove(ANNOTATION_UNTIL), annotations.remove(ANNOTATION_CAUSE)];
    removed.iter().any(Option::is_some)
}

/// Returns the beginning of a text of somebody else, without control characters.
fn clipped(text: &str, limit: usize) -> String {
    let clean = |char: char| if char.is_control() { ' ' } else { char };
    let mut clipped: String = text.chars().take(limit).map(clean).collect();
    if text.chars().nth(limit).is_some() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "2026-11-30T04:00:00Z";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn annotations(until: Option<&str>, cause: Option<&str>) -> BTreeMap<String, String> {
        let entries = [(ANNOTATION_UNTIL, until), (ANNOTATION_CAUSE, cause)];
        entries.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.to_owned()))).collect()
    }

    /// Returns the pause as text, and `-` for none.
    fn shown(until: Option<&str>, cause: Option<&str>, server_time: Option<&str>) -> String {
        let pause = PauseAnnotations::of(&annotations(until, cause)).pause_at(server_time.map(time));
        match pause {
            None => "-".to_owned(),
            Some(DeletionPause::Unreadable { .. }) => "unreadable".to_owned(),
            Some(pause) => pause.to_string(),
        }
    }

    #[test]
    fn a_pause_ends_at_its_time_of_the_api_servers_clock() {
        let upgrade = Some("vCenter upgrade");
        let paused = "until 2026-11-30T04:00:00Z (vCenter upgrade)";
        for (server_time, expected) in [
            (Some("2026-11-30T00:00:00Z"), paused),
            (Some("2026-11-30T03:59:59Z"), paused),
            (Some(END), "-"),
            (Some("2027-01-01T00:00:00Z"), "-"),
            // Without a clock, nothing shows that the pause has ended.
            (None, paused),
        ] {
            assert_eq!(shown(Some(END), upgrade, server_time), expected, "{server_time:?}");
        }
        let other_zone = shown(Some("2026-11-30T06:00:00+02:00"), None, Some("2026-11-30T03:59:59Z"));
        assert_eq!(other_zone, "until 2026-11-30T04:00:00Z");
        assert_eq!(shown(None, None, Some(END)), "-");
        assert_eq!(shown(None, None, None), "-", "without an annotation there is no pause, whatever the time is");
    }

    #[test]
    fn an_annotation_that_cannot_be_read_pauses() {
        let long = "9".repeat(100_000);
        let texts =
            ["", " ", "yes", "4h", "2026-11-30", "2026-11-30T04:00:00", "2026-13-30T04:00:00Z", "\u{0}", &long, "-1"];
        for text in texts {
            for server_time in [None, Some(END), Some("9999-01-01T00:00:00Z")] {
                assert_eq!(shown(Some(text), None, server_time), "unreadable", "{text:.40?} {server_time:?}");
            }
        }
        assert_eq!(shown(None, Some("vCenter upgrade"), Some(END)), "unreadable", "the end is missing");
        let pause = PauseAnnotations::of(&annotations(Some(&long), Some(&long))).pause_at(None).unwrap();
        assert!(pause.to_string().len() < 300, "{pause}");
    }

    #[test]
    fn a_far_end_and_a_long_cause_pause_too() {
        let cause = "x".repeat(100_000);
        let pause = shown(Some("9999-12-30T00:00:00Z"), Some(&cause), Some(END));
        assert!(pause.starts_with("until 9999-12-30T00:00:00Z (xxx") && pause.len() < 400, "{pause}");
        assert_eq!(shown(Some(END), Some("a\nb\u{1b}[31m"), None), "until 2026-11-30T04:00:00Z (a b [31m)");
    }

    #[test]
    fn an_order_has_a_length_up_to_seven_days_and_a_cause() {
        let hour = Duration::from_secs(3600);
        for (length, cause, is_valid) in [
            (4 * hour, "vCenter upgrade", true),
            (MAX_LENGTH, "é", true),
            (MIN_LENGTH, "x", true),
            (MAX_LENGTH + Duration::from_nanos(1), "x", false),
            (MIN_LENGTH - Duration::from_nanos(1), "x", false),
            (Duration::ZERO, "x", false),
            (Duration::MAX, "x", false),
            (hour, "", false),
            (hour, "  ", false),
            (hour, "two\nlines", false),
        ] {
            assert_eq!(check_order(length, cause).is_ok(), is_valid, "{length:?} {cause:?}");
        }
        assert!(check_order(hour, &"é".repeat(MAX_CAUSE)).is_ok());
        assert!(check_order(hour, &"é".repeat(MAX_CAUSE + 1)).is_err());
    }

    #[test]
    fn what_an_order_writes_is_read_as_the_same_pause_and_other_annotations_stay() {
        let mut written: BTreeMap<String, String> = [("other".to_owned(), "kept".to_owned())].into();
        let until = end_of_pause(time("2026-11-30T00:00:00.000000001Z"), Duration::from_secs(4 * 3600));
        assert_eq!(until, time("2026-11-30T04:00:01Z"));
        add_pause(&mut written, until, " vCenter upgrade ");
        let pause = PauseAnnotations::of(&written).pause_at(Some(time(END)));
        assert_eq!(pause, Some(DeletionPause::Until { until, cause: Some("vCenter upgrade".to_owned()) }));
        assert!(remove_pause(&mut written));
        assert!(!remove_pause(&mut written));
        assert_eq!(written, [("other".to_owned(), "kept".to_owned())].into());
        assert_eq!(end_of_pause(Timestamp::MAX, MAX_LENGTH), Timestamp::MAX);
    }
}
