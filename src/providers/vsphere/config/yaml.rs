//! The YAML dialect: what `yaml.v2` makes of sections, keys and values.

use zeroize::Zeroizing;

use super::super::yaml::{Entry, Node, Value, parse_document};
use super::fields::{Dialect, Kind, OTHER_SECTIONS, Plain, RawField, RawFile, RawSection, RawValue};
use super::problems::Report;

/// Reads the first document. Mistakes go into the report; what is right is in the result all the same.
pub(super) fn read(text: &str, report: &mut Report) -> RawFile {
    let mut file = RawFile::new(Dialect::Yaml);
    let document = match parse_document(text) {
        Ok(document) => document,
        Err(error) => {
            let hint = "expected YAML: check the indentation (no tabs), and quote values with ': ' or ' #' in them";
            report.mistake(Some(error.line()), hint);
            return file;
        }
    };
    let Some(top) = entries(&document) else {
        report.mistake(Some(document.line), "expected a mapping with global, vcenter, labels and nodes, or [Section]");
        return file;
    };
    for entry in top {
        let plain = Plain::ALL.into_iter().find(|which| which.name().to_ascii_lowercase() == entry.key);
        match (plain, entry.key.as_str()) {
            (Some(which), _) => read_section(file.plain_mut(which), entry, report),
            (None, "vcenter") => read_vcenters(&mut file.vcenters, entry, report),
            (None, other) if OTHER_SECTIONS.iter().any(|name| name.eq_ignore_ascii_case(other)) => {}
            (None, other) => report.warn_in(entry.line, other, None, "ignored: no such section"),
        }
    }
    file
}

/// The entries of a mapping; none of a null; nothing for anything else.
fn entries(node: &Node) -> Option<&[Entry]> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        Value::Null => Some(&[]),
        Value::Scalar { .. } | Value::List(_) => None,
    }
}

/// An entry that is there twice replaces the first, as in the Go program.
fn read_vcenters(vcenters: &mut Vec<RawSection>, all: &Entry, report: &mut Report) {
    let Some(written) = entries(&all.node) else {
        report.mistake_in(all.line, "vcenter", None, "expected a mapping of names to vCenters");
        return;
    };
    for entry in written {
        let mut section = RawSection::vcenter(entry.key.clone(), Some(entry.line), Dialect::Yaml);
        read_section(&mut section, entry, report);
        match vcenters.iter_mut().find(|known| known.key == section.key) {
            Some(known) => *known = section,
            None => vcenters.push(section),
        }
    }
}

fn read_section(section: &mut RawSection, written: &Entry, report: &mut Report) {
    section.line.get_or_insert(written.line);
    let Some(fields) = entries(&written.node) else {
        report.mistake_in(written.line, &section.shown, None, "expected a mapping of keys to values");
        return;
    };
    for entry in fields {
        let Some((name, kind)) = section.find_key(&entry.key) else {
            report.warn_in(entry.line, &section.shown, Some(&entry.key), "ignored: no such key");
            continue;
        };
        let value = parse_value(kind, &entry.node.value).unwrap_or_else(|expected| {
            report.mistake_in(entry.line, &section.shown, Some(&entry.key), expected);
            RawValue::Mistake
        });
        section.fields.push(RawField { name, line: Some(entry.line), value });
    }
}

fn parse_value(kind: Kind, value: &Value) -> Result<RawValue, &'static str> {
    match (kind, value) {
        (_, Value::Null) => Ok(RawValue::Unset),
        (Kind::Text, Value::Scalar { text, .. }) => Ok(RawValue::Text(text.clone())),
        (Kind::Text, _) => Err("expected text, not a list or a mapping"),
        (Kind::Flag, Value::Scalar { text, plain: true }) => {
            parse_flag(text).map(RawValue::Flag).ok_or("expected true or false")
        }
        (Kind::Flag, _) => Err("expected true or false without quotes"),
        (Kind::Number, Value::Scalar { text, plain: true }) => match parse_number(text) {
            Some(0) => Ok(RawValue::Unset),
            Some(number) => Ok(RawValue::Number(number)),
            None => Err("expected a whole number"),
        },
        (Kind::Number, _) => Err("expected a whole number without quotes"),
        (Kind::List, Value::List(items)) => items.iter().map(item).collect::<Result<_, _>>().map(RawValue::List),
        (Kind::List, _) => Err("expected a list, for example [a, b]"),
    }
}

fn item(node: &Node) -> Result<Zeroizing<String>, &'static str> {
    match &node.value {
        Value::Scalar { text, .. } => Ok(text.clone()),
        Value::Null => Ok(Zeroizing::default()),
        Value::List(_) | Value::Map(_) => Err("expected a list of texts"),
    }
}

/// The words of YAML 1.1.
fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Decimal, `0x`, `0b`, `0o` or octal with a leading zero; `_` between digits.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let text = text.strip_prefix('+').unwrap_or(&text);
    let (digits, radix) = match text.split_at_checked(2) {
        Some(("0x", digits)) => (digits, 16),
        Some(("0b", digits)) => (digits, 2),
        Some(("0o", digits)) => (digits, 8),
        _ if text.len() > 1 && text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}
