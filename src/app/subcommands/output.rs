//! Prints reports as text, JSON or YAML.

use super::CommandOutput;
use super::arguments::{CommonOptions, OutputForm};
use crate::app::reports::{self, Emphasis, Line, Verdict};
use serde::Serialize;
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
        OutputForm::Json => format!("{:#}\n", document(kind, report, verdict)),
        OutputForm::Yaml => yaml(&document(kind, report, verdict)),
    };
    CommandOutput { output, messages: String::new(), exit_code: verdict.exit_code() }
}

fn document(kind: &str, report: &impl Serialize, verdict: Verdict) -> serde_json::Value {
    // Cannot fail: all keys of reports are texts.
    reports::document(kind, verdict, serde_json::to_value(report).unwrap_or_default())
}

fn yaml(document: &serde_json::Value) -> String {
    match serde_saphyr::to_string(document) {
        Ok(mut text) => {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text
        }
        // JSON is YAML, too.
        Err(_) => format!("{document:#}\n"),
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

    #[test]
    fn colors_are_for_what_needs_attention() {
        let lines = [(Emphasis::Plain, "a"), (Emphasis::Notice, "b"), (Emphasis::Finding, "c\n")]
            .map(|(one, text)| Line::new(one, text));
        assert_eq!(text(&lines, false), "a\nb\nc \n");
        assert_eq!(text(&lines, true), "a\n\u{1b}[33mb\u{1b}[0m\n\u{1b}[31mc \u{1b}[0m\n");
    }
}
