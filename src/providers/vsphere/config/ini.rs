//! The INI dialect: what `gcfg` makes of sections, keys and values.

use zeroize::Zeroizing;

use super::super::addresses::equal_fold;
use super::fields::{
    Dialect, Key, Kind, MAX_VCENTERS, Plain, RawField, RawFile, RawSection, RawValue, TOO_MANY, find_other_section,
};
use super::gcfg::{self, Item};
use super::problems::Report;

/// Reads the whole text. Mistakes go into the report; what is right is in the result all the same.
pub(super) fn read(text: &str, report: &mut Report) -> RawFile {
    let (items, errors) = gcfg::scan(text);
    for error in errors {
        report.mistake(Some(error.line), format!("column {}: {}", error.column, error.message));
    }
    let mut file = RawFile::new(Dialect::Ini);
    let mut section: Option<&mut RawSection> = None;
    for item in items {
        match item {
            Item::Section { name, subsection, line } => section = enter(&mut file, &name, subsection, line, report),
            Item::Variable { key, value, line } => {
                if let Some(section) = &mut section {
                    add(section, &key, value, line, report);
                }
            }
        }
    }
    file
}

/// A header: sections of the same name are one; a header alone makes a vCenter. `None` if its variables are ignored.
fn enter<'a>(
    file: &'a mut RawFile,
    name: &str,
    subsection: Option<String>,
    line: usize,
    report: &mut Report,
) -> Option<&'a mut RawSection> {
    if equal_fold(name, "VirtualCenter") {
        let Some(key) = subsection else {
            report.mistake_in(line, "[VirtualCenter]", None, "expected a name: [VirtualCenter \"<name or address>\"]");
            return None;
        };
        let index = file.vcenters.iter().position(|section| section.key == key).unwrap_or(file.vcenters.len());
        if index == MAX_VCENTERS {
            report.mistake_once(line, "[VirtualCenter]", TOO_MANY);
            return None;
        }
        if index == file.vcenters.len() {
            file.vcenters.push(RawSection::vcenter(key, Some(line), Dialect::Ini));
        }
        return file.vcenters.get_mut(index);
    }
    let plain = Plain::ALL.into_iter().find(|which| equal_fold(which.name(), name));
    match (plain, subsection) {
        (Some(which), None) => {
            let section = file.plain_mut(which);
            section.line.get_or_insert(line);
            Some(section)
        }
        (Some(_), Some(_)) => {
            report.warn_in(line, &format!("[{name}]"), None, "ignored: this section takes no name");
            None
        }
        (None, _) => {
            match find_other_section(name) {
                Some(other) => report.warn_of_other_section(line, other, Dialect::Ini),
                None => report.warn_of_unknown_section(line, name, Dialect::Ini),
            }
            None
        }
    }
}

fn add(section: &mut RawSection, written: &str, value: Option<Zeroizing<String>>, line: usize, report: &mut Report) {
    let Some(key) = section.find_key(written) else {
        // A line without a value is rather the rest of a broken one than a mistyped key.
        report.warn_of_unknown_key(line, section, value.map(|_| written));
        return;
    };
    let value = parse_value(key, value).unwrap_or_else(|expected| {
        report.mistake_in(line, &section.shown, Some(key.0), expected);
        RawValue::Mistake
    });
    section.fields.push(RawField { name: key.0, line: Some(line), value });
}

fn parse_value((name, kind): Key, value: Option<Zeroizing<String>>) -> Result<RawValue, &'static str> {
    match (kind, value) {
        (Kind::Flag, None) => Ok(RawValue::Flag(true)),
        (_, None) => Err("expected '=' and a value"),
        (Kind::Text | Kind::List, Some(text)) => Ok(RawValue::Text(text)),
        // Text in the Go program: empty means "not set".
        (Kind::Number, Some(text)) if name == "port" && text.is_empty() => Ok(RawValue::Unset),
        (Kind::Number, Some(text)) => parse_number(text.trim())
            .map(RawValue::Number)
            .ok_or("expected a whole number, decimal or hexadecimal with 0x"),
        (Kind::Flag, Some(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(RawValue::Flag(true)),
            "false" | "no" | "off" | "0" => Ok(RawValue::Flag(false)),
            _ => Err("expected true, yes, on or 1, or false, no, off or 0"),
        },
    }
}

/// Decimal, also with leading zeros, or hexadecimal.
fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}
