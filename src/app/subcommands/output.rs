//! Prints reports as text, JSON or YAML.

use super::CommandOutput;
use super::arguments::{CommonOptions, OutputForm};
use crate::app::reports::text::is_control;
use crate::app::reports::{self, Emphasis, Line, Verdict};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const RESET: &str = "\u{1b}[0m";

/// Returns the output of a command with this report.
pub fn report(
    kind: &str,
    report: &impl Serialize,
    lines: &[Line],
    verdict: Verdict,
    options: &CommonOptions,
) -> CommandOutput {
    let output = match options.form {
        _ if options.is_quiet => String::new(),
        OutputForm::Text => text(lines, has_colors()),
        OutputForm::Json => json(&document(kind, report, verdict)),
        OutputForm::Yaml => yaml(&document(kind, report, verdict)),
    };
    CommandOutput { output, messages: String::new(), exit_code: verdict.exit_code() }
}

fn document(kind: &str, report: &impl Serialize, verdict: Verdict) -> Value {
    // Cannot fail: all keys of reports are texts.
    reports::document(kind, verdict, serde_json::to_value(report).unwrap_or_default())
}

fn json(document: &Value) -> String {
    format!("{}\n", escaped(&format!("{document:#}")))
}

fn yaml(document: &Value) -> String {
    match serde_saphyr::to_string(&YamlValue(document)) {
        Ok(text) if text.ends_with('\n') => escaped(&text),
        Ok(text) => format!("{}\n", escaped(&text)),
        // JSON is YAML, too.
        Err(_) => json(document),
    }
}

/// Escapes the characters with which a name of another program could control a terminal. In both forms, a text with
/// such characters is in double quotes, where the escape means the same character.
fn escaped(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for char in document.chars() {
        if is_escaped(char) {
            // Writing to a text does not fail.
            let _ = write!(text, "\\u{:04x}", u32::from(char));
        } else {
            text.push(char);
        }
    }
    text
}

/// Whether the character needs an escape. Line breaks separate the lines of both forms.
fn is_escaped(char: char) -> bool {
    char != '\n' && is_control(char)
}

/// A value whose texts with control characters are in double quotes, the only style of YAML that has escapes.
struct YamlValue<'a>(&'a Value);

impl Serialize for YamlValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if text.chars().any(is_escaped) => DoubleQuoted(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(YamlValue)),
            Value::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(name, field)| (name, YamlValue(field))))
            }
            other => other.serialize(serializer),
        }
    }
}

fn text(lines: &[Line], has_colors: bool) -> String {
    let mut text = String::new();
    for line in lines {
        let color = match line.emphasis {
            Emphasis::Plain => "",
            Emphasis::Notice => YELLOW,
            Emphasis::Finding => RED,
        };
        if has_colors && !color.is_empty() {
            text.extend([color, line.text(), RESET, "\n"]);
        } else {
            text.extend([line.text(), "\n"]);
        }
    }
    text
}

/// Whether standard output is a terminal with colors, and the user has not turned them off by `NO_COLOR`.
fn has_colors() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !is_off && !is_dumb && std::io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::subcommands::arguments::AnswerSource;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;
    use std::time::Duration;

    fn options(form: OutputForm, is_quiet: bool) -> CommonOptions {
        CommonOptions {
            form,
            timeout: Duration::from_secs(1),
            waits: false,
            is_quiet,
            masks_users: false,
            process: None,
            source: AnswerSource::Process { may_detach: false },
        }
    }

    #[test]
    fn each_form_has_the_report_and_the_exit_code() {
        let lines = [Line::new(Emphasis::Finding, "a: \"b\"")];
        let printed = |form, is_quiet| {
            report("Probe", &json!({"a": "b: c"}), &lines, Verdict::Findings, &options(form, is_quiet))
        };
        let expected = |output: &str| CommandOutput { output: output.into(), messages: String::new(), exit_code: 1 };
        assert_eq!(printed(OutputForm::Text, false), expected("a: \"b\"\n"));
        assert_eq!(printed(OutputForm::Text, true), expected(""));
        let json: serde_json::Value = serde_json::from_str(&printed(OutputForm::Json, false).output).unwrap();
        let document =
            json!({"apiVersion": "cli.vsphere-ccm.dev/v1", "kind": "Probe", "result": "findings", "a": "b: c"});
        assert_eq!(json, document);
        let yaml = printed(OutputForm::Yaml, false).output;
        for line in ["apiVersion: cli.vsphere-ccm.dev/v1", "kind: Probe", "result: findings", "a: \"b: c\""] {
            assert!(yaml.lines().any(|printed| printed == line), "{line} in {yaml}");
        }
    }

    /// Returns the document that a reader of YAML gets.
    fn read_yaml(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn the_yaml_of_each_golden_file_is_the_same_document_as_its_json() {
        for (name, document) in crate::app::reports::golden::documents() {
            assert_eq!(read_yaml(&yaml(&document)), document, "{name}");
            assert_eq!(serde_json::from_str::<Value>(&json(&document)).unwrap(), document, "{name}");
        }
    }

    #[test]
    fn no_text_of_another_program_controls_the_terminal() {
        let hostile = "a\u{9b}31m\u{202e}\u{2066}\u{7f}\u{85}\u{1b}[2J\u{2028}b\r\t\"\\";
        let document = json!({"name": hostile, "lines": format!("{hostile}\nb"), "list": [hostile, {"a": hostile}]});
        let json = json(&document);
        assert!(json.contains("a\\u009b31m\\u202e\\u2066\\u007f\\u0085\\u001b[2J\\u2028b"), "{json}");
        for text in [json, yaml(&document)] {
            assert!(!text.chars().any(is_escaped), "{text:?}");
            assert_eq!(read_yaml(&text), document, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn yaml_and_json_are_the_same_document_whatever_its_texts_are(
            texts in vec(prop_oneof![hostile_text(), any::<String>(), Just("x ".repeat(60))], 1..6)
        ) {
            let document = json!({"name": texts[0], "list": texts, "objects": [{"text": texts[0], "number": 7}]});
            for text in [json(&document), yaml(&document)] {
                prop_assert!(!text.chars().any(is_escaped), "{:?}", text);
                prop_assert_eq!(&read_yaml(&text), &document, "{:?}", text);
            }
        }
    }

    /// Texts of pieces that have a meaning in YAML or for a terminal.
    fn hostile_text() -> impl Strategy<Value = String> {
        const MARKS: &str = "\u{9b}\u{202e}\u{feff}\n -:#'\"\\~|>&*!%@`{[,a\t\0";
        let words = ["null", "yes", "1e3", "0x1f", "2026-11-24", "- ", ": "].map(str::to_owned);
        let pieces: Vec<String> = MARKS.chars().map(String::from).chain(words).collect();
        vec(select(pieces), 0..12).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn colors_are_for_what_needs_attention() {
        let lines = [(Emphasis::Plain, "a"), (Emphasis::Notice, "b"), (Emphasis::Finding, "c\n")]
            .map(|(one, text)| Line::new(one, text));
        assert_eq!(text(&lines, false), "a\nb\nc \n");
        assert_eq!(text(&lines, true), "a\n\u{1b}[33mb\u{1b}[0m\n\u{1b}[31mc \u{1b}[0m\n");
    }
}
