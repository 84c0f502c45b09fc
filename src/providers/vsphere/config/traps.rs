//! Pure: finds values that are valid but probably not intended. A warning names the line and never the value.

use std::collections::HashMap;

use super::fields::{KeySpec, RawFile, RawValue, SectionName, ValueKind};
use super::gcfg::End;
use super::problems::ProblemReport;
use crate::base::yaml::Entry;

/// Returns true if the key is part of a login. A server rejects a login with a value that is cut off.
fn is_login(key: &str) -> bool {
    matches!(key, "user" | "password" | "vmc-access-token")
}

const COMMENT: &str =
    "the value ends where `;` or `#` begins a comment: write it in double quotes if they belong to it";

pub(super) fn of_ini((key, kind, _): KeySpec, text: &str, end: End, is_quoted: bool) -> Vec<&'static str> {
    let is_in = |open: char, close: char| text.len() > 1 && text.starts_with(open) && text.ends_with(close);
    let mut odd = Vec::new();
    if end == End::Cut || end == End::Comment && is_login(key) {
        odd.push(COMMENT);
    }
    if ends_with_line_break(key, text) {
        odd.push(LINE_BREAK);
    }
    if is_in('\'', '\'') && !is_quoted {
        odd.push("the single quotes belong to the value: write double quotes, or none");
    }
    if kind == ValueKind::List && is_in('[', ']') {
        odd.push("the brackets belong to the value: INI files have lists without them, separated by commas");
    }
    odd
}

/// Lines of a YAML file that may have a comment after a value, by line number. Their number and length are limited,
/// because each value of a login is compared with its line.
pub(super) struct CommentableLines<'a>(HashMap<usize, &'a str>);

impl<'a> CommentableLines<'a> {
    const MAX_WARNINGS: usize = 1000;
    const LONGEST: usize = 1000;

    pub fn lines_of(file: &'a str) -> Self {
        let lines = file.lines().enumerate().map(|(at, line)| (at + 1, line));
        let has_comment = |line: &str| line.len() <= Self::LONGEST && (line.contains(" #") || line.contains("\t#"));
        Self(lines.filter(|(_, line)| has_comment(line)).take(Self::MAX_WARNINGS).collect())
    }

    /// Returns true if a comment cuts off this unquoted value of a login. In other values, a comment is intended.
    pub fn cuts(&self, line: usize, key: &str, value: &str) -> bool {
        let Some(written) = self.0.get(&line).filter(|_| is_login(key)) else { return false };
        let is_comment = |rest: &str| rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#');
        match value {
            "" => written.split_once(':').is_some_and(|(_, rest)| is_comment(rest)),
            value => {
                written.match_indices(value).filter_map(|(at, found)| written.get(at + found.len()..)).any(is_comment)
            }
        }
    }
}

pub(super) const CUT_IN_YAML: &str =
    "the value ends where ` #` begins a comment: write it in quotes if that belongs to it";

pub(super) const LINE_BREAK: &str =
    "the line break at the end belongs to the value: write `|-` in place of `|` in YAML, or leave `\\n` out";

/// Returns true if the value is a login that servers reject because of its line break.
pub(super) fn ends_with_line_break(key: &str, value: &str) -> bool {
    is_login(key) && value.ends_with('\n')
}

/// Returns an error if the file is a kubeconfig or another manifest, and not a `vsphere.conf`.
pub(super) fn of_other_files(top: &[Entry]) -> Option<&'static str> {
    let has = |key: &str| top.iter().any(|entry| entry.key == key);
    if SectionName::ALL.iter().any(|which| has(which.yaml())) {
        return None;
    }
    if has("apiVersion") && has("clusters") && has("users") {
        return Some("this is a kubeconfig: expected a vsphere.conf, with global and vcenter");
    }
    let is_manifest = has("apiVersion") && has("kind");
    is_manifest.then_some("this is a manifest: use the text below `data`")
}

/// Returns the first line with content and the error, if the text is shell variables, HTML, XML or base64.
pub(super) fn of_other_texts(file: &str) -> Option<(usize, &'static str)> {
    let is_content = |line: &&str| !line.is_empty() && !line.starts_with(['#', ';']);
    let mut lines = file.lines().map(str::trim).enumerate();
    let (at, line) = lines.find(|(_, line)| is_content(line))?;
    let expected = if ["export ", "GOVC_", "$env:"].iter().any(|begin| line.starts_with(begin)) {
        "these are variables of a shell, such as govc reads: expected [Section] or section:"
    } else if line.starts_with('<') {
        "this is HTML or XML: expected [Section] or section:"
    } else if is_base64(file) {
        "this is base64, as below `data` of a Secret: expected the text that it encodes"
    } else {
        return None;
    };
    Some((at + 1, expected))
}

/// Returns true if the text is base64. A file of either dialect has a bracket or a colon and so is not base64.
fn is_base64(file: &str) -> bool {
    let digits = file.trim().trim_end_matches('=');
    let is_digit = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/' || c.is_ascii_whitespace();
    digits.len() >= 20 && digits.chars().all(is_digit)
}

/// Returns the line of a second document, if the second document has content.
pub(super) fn second_document(file: &str) -> Option<usize> {
    let is_marker = |line: &str| line == "---" || line.starts_with("--- ");
    let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with(['#', '%']);
    let lines = || file.lines().enumerate();
    let (first, _) = lines().find(|(_, line)| is_content(line))?;
    let (marker, _) = lines().skip(first + 1).find(|(_, line)| is_marker(line))?;
    lines().skip(marker + 1).any(|(_, line)| is_content(line)).then_some(marker + 1)
}

pub(super) fn warn_of_placeholders(raw: &RawFile, report: &mut ProblemReport) {
    for section in raw.sections() {
        for field in &section.fields {
            let is_odd = match &field.value {
                RawValue::Text(text) => is_placeholder(text),
                RawValue::List(items) => items.iter().any(|item| is_placeholder(item)),
                RawValue::Map(entries) => entries.iter().any(|(_, text)| is_placeholder(text)),
                RawValue::Unset | RawValue::Flag(_) | RawValue::Number(_) | RawValue::Mistake => false,
            };
            if let (true, Some(line)) = (is_odd, field.line) {
                report.warn_within(section, line, field.name, "this is probably a placeholder that was not replaced");
            }
        }
    }
}

fn is_placeholder(text: &str) -> bool {
    let has = |open: &str, close: &str| text.split_once(open).is_some_and(|(_, rest)| rest.contains(close));
    has("${", "}") || has("{{", "}}") || text.trim().eq_ignore_ascii_case("change-me")
}
