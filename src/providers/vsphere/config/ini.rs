//! The INI dialect: sections, keys and values as `gcfg` reads them.

use zeroize::Zeroizing;

use super::fields::{Dialect, KeySpec, RawField, RawFile, RawSection, RawValue, SectionName, SectionsMut, ValueKind};
use super::gcfg::{self, End, Item};
use super::problems::ProblemReport;
use super::traps;
use crate::providers::vsphere::config::address_rules::equal_fold;

/// Parses the whole text. Errors go into the report; the result contains all valid parts.
pub(super) fn read(text: &str, report: &mut ProblemReport) -> RawFile {
    let (items, errors) = gcfg::scan(text);
    for error in errors {
        report.error(Some(error.line), format!("column {}: {}", error.column, error.message));
    }
    let mut file = RawFile::new(Dialect::Ini);
    let mut section: Option<&mut RawSection> = None;
    for item in items {
        match item {
            Item::Section { name, subsection, line } => section = enter(&mut file, &name, subsection, line, report),
            Item::Variable { key, value, end, is_quoted, line } => {
                if let Some(section) = &mut section {
                    warn_of_traps(section, &key, value.as_ref(), (end, is_quoted), line, report);
                    add(section, &key, value, line, report);
                }
            }
        }
    }
    file
}

/// Enters the section of a header. Sections with the same name are merged; a header without keys also defines a
/// vCenter. `None` means that the keys of this section are ignored.
fn enter<'a>(
    file: &'a mut RawFile,
    name: &str,
    subsection: Option<String>,
    line: usize,
    report: &mut ProblemReport,
) -> Option<&'a mut RawSection> {
    let Some(which) = SectionName::ALL.into_iter().find(|which| equal_fold(which.ini(), name)) else {
        report.warn_of_unknown_section(line, name, Dialect::Ini);
        return None;
    };
    match (file.sections_mut(which), subsection) {
        (SectionsMut::Named(sections), subsection) => enter_named(sections, which, subsection, line, report),
        (SectionsMut::Single(section), None) => {
            section.line.get_or_insert(line);
            Some(section)
        }
        (SectionsMut::Single(_), Some(_)) => {
            report.warn_in(line, Some(&format!("[{name}]")), None, "ignored: this section takes no name");
            None
        }
    }
}

/// Enters a named section. A vCenter needs a name. A class without a name is valid, as in the Go program.
fn enter_named<'a>(
    sections: &'a mut Vec<RawSection>,
    which: SectionName,
    subsection: Option<String>,
    line: usize,
    report: &mut ProblemReport,
) -> Option<&'a mut RawSection> {
    let Some(key) = subsection.or_else(|| (which == SectionName::Class).then(String::new)) else {
        let expected = "expected a name: [VirtualCenter \"<name or address>\"]";
        report.error_of_named(which, line, Dialect::Ini, expected);
        return None;
    };
    let index = sections.iter().position(|section| section.key == key).unwrap_or(sections.len());
    if index == SectionName::MAX_SECTIONS {
        report.error_once(which, line, Dialect::Ini);
        return None;
    }
    if index == sections.len() {
        sections.push(RawSection::named(which, key, Some(line), Dialect::Ini));
    }
    sections.get_mut(index)
}

/// Warns of a value that may be misread.
fn warn_of_traps(
    section: &RawSection,
    written: &str,
    value: Option<&Zeroizing<String>>,
    (end, is_quoted): (End, bool),
    line: usize,
    report: &mut ProblemReport,
) {
    let (Some(key), Some(value)) = (section.find_key(written), value) else { return };
    for odd in traps::of_ini(key, value, end, is_quoted) {
        report.warn_within(section, line, key.0, odd);
    }
}

fn add(
    section: &mut RawSection,
    written: &str,
    value: Option<Zeroizing<String>>,
    line: usize,
    report: &mut ProblemReport,
) {
    let Some(key) = section.find_key(written) else {
        // A line without a value is more likely the rest of a broken line than a mistyped key, so its text is not
        // repeated.
        report.warn_of_unknown_key(line, section, value.map(|_| written));
        return;
    };
    report.warn_of_second(section, line, key.0, section.line_of(key.0));
    let value = parse_value(key, value).unwrap_or_else(|expected| {
        report.error_within(section, line, Some(key.0), expected);
        RawValue::Mistake
    });
    section.fields.push(RawField { name: key.0, line: Some(line), value });
}

fn parse_value((name, kind, _): KeySpec, value: Option<Zeroizing<String>>) -> Result<RawValue, &'static str> {
    match (kind, value) {
        (ValueKind::Flag, None) => Ok(RawValue::Flag(true)),
        (_, None) => Err("expected '=' and a value"),
        (ValueKind::Text | ValueKind::List, Some(text)) => Ok(RawValue::Text(text)),
        // The Go program reads the port as text: empty means "not set".
        (ValueKind::Number, Some(text)) if name == "port" && text.is_empty() => Ok(RawValue::Unset),
        (ValueKind::Number, Some(text)) => parse_number(text.trim())
            .map(RawValue::Number)
            .ok_or("expected a whole number, decimal or hexadecimal with 0x"),
        (ValueKind::Map, Some(text)) => parse_map(&text).map(RawValue::Map).ok_or(MAP),
        (ValueKind::Flag, Some(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(RawValue::Flag(true)),
            "false" | "no" | "off" | "0" => Ok(RawValue::Flag(false)),
            _ => Err("expected true, yes, on or 1, or false, no, off or 0"),
        },
    }
}

/// Maximum length of the text of a map, in bytes. NSX allows 30 tags, with scopes of 128 and tags of 256 characters.
const LONGEST_MAP: usize = 64 << 10;

const MAP: &str = r#"unmarshalling load balancer tags failed: expected a JSON object of texts of at most 64 KiB, for example {\"scope\": \"tag\"}"#;

/// Parses a JSON object of texts. As in the Go program, a null value is an empty text, and empty text means no entries.
fn parse_map(text: &str) -> Option<Vec<(String, Zeroizing<String>)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    if text.len() > LONGEST_MAP {
        return None;
    }
    let entries = match serde_json::from_str(text).ok()? {
        serde_json::Value::Object(entries) => entries,
        serde_json::Value::Null => return Some(Vec::new()),
        _ => return None,
    };
    let parsed = entries.into_iter().map(|(scope, value)| match value {
        serde_json::Value::String(tag) => Some((scope, Zeroizing::new(tag))),
        serde_json::Value::Null => Some((scope, Zeroizing::default())),
        _ => None,
    });
    parsed.collect()
}

/// Parses a decimal number, with optional leading zeros, or a hexadecimal number.
fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}
