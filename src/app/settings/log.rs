//! The flags of the log.

use super::{SettingsCheck, flags};
use crate::runtime::logging::{Format, LogSettings, Module};
use std::time::Duration;

/// The highest verbosity, as in klog, which uses a signed 32-bit number.
const MAX_VERBOSITY: u32 = i32::MAX.unsigned_abs();

impl SettingsCheck<'_> {
    pub(super) fn logging(&mut self) -> LogSettings {
        let verbosity = self.options.text(flags::V);
        if parse_verbosity(verbosity).is_none() {
            self.invalid(flags::V, verbosity, "expected a whole number such as 2");
        }
        let choices = [("text", Format::Text), ("", Format::Text), ("json", Format::Json)];
        let format = self.choice(flags::LOGGING_FORMAT, &choices, "text or json").unwrap_or_default();
        let modules = self.modules();
        if format == Format::Json && !modules.is_empty() {
            let value = self.options.list(flags::VMODULE).join(",");
            self.invalid(flags::VMODULE, &value, "works with --logging-format=text only");
        }
        // Only the flag of the format in use has an effect.
        let (text, json) = (self.boolean(flags::LOG_TEXT_SPLIT_STREAM), self.boolean(flags::LOG_JSON_SPLIT_STREAM));
        // The following flags have no effect, since no line is buffered. A value that Go rejects is still an error.
        let flag = flags::LOG_FLUSH_FREQUENCY;
        if self.duration(flag) == Some(Duration::ZERO) {
            self.invalid(flag, self.options.text(flag), "expected more than 0s");
        }
        for flag in [flags::LOG_TEXT_INFO_BUFFER_SIZE, flags::LOG_JSON_INFO_BUFFER_SIZE] {
            let size = self.options.text(flag);
            if !is_quantity(size) {
                self.invalid(flag, size, "expected a size such as 0, 512 or 64Ki");
            }
        }
        let split = if format == Format::Json { json } else { text };
        LogSettings { verbosity: parse_verbosity(verbosity).unwrap_or_default(), modules, format, split }
    }

    /// Parses items of the form `pattern=N`, as klog does. Ignores empty items.
    fn modules(&mut self) -> Vec<Module> {
        let mut modules = Vec::new();
        for item in self.options.list(flags::VMODULE).iter().filter(|item| !item.is_empty()) {
            let parts = item.split_once('=').filter(|(pattern, _)| !pattern.is_empty());
            match parts.and_then(|(pattern, level)| Some((pattern.to_owned(), parse_verbosity(level)?))) {
                Some((pattern, verbosity)) => modules.push(Module { pattern, verbosity }),
                None => {
                    let expected = "expected a file's name or pattern and a whole number such as node*=4";
                    self.invalid(flags::VMODULE, item, expected);
                }
            }
        }
        modules
    }
}

fn parse_verbosity(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= MAX_VERBOSITY)
}

/// Returns true for a Kubernetes quantity: a decimal number and a suffix such as Ki, M or e3.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.matches('.').count() <= 1 && number.bytes().any(|byte| byte.is_ascii_digit());
    let is_suffix = match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        other => other.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i32>().is_ok()),
    };
    is_number && is_suffix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::files::SystemFiles;
    use crate::app::options::{self, Invocation};
    use crate::app::settings::SettingError;
    use crate::providers::vsphere::config::Environment;

    fn settled(arguments: &[&str]) -> Result<LogSettings, Vec<SettingError>> {
        let program = std::iter::once("vsphere-cloud-controller-manager").chain(arguments.iter().copied());
        let Ok(Invocation::Run(options)) = options::parse(program.map(Into::into)) else { panic!("{arguments:?}") };
        let environment = Environment::default();
        let mut check = SettingsCheck::new(&options, &SystemFiles, &environment);
        let settings = check.logging();
        if check.errors.is_empty() { Ok(settings) } else { Err(check.errors) }
    }

    #[test]
    fn the_flags_mean_what_they_mean_in_go() {
        let module = |pattern: &str, verbosity| Module { pattern: pattern.to_owned(), verbosity };
        let cases: [(&[&str], LogSettings); 8] = [
            (&[], LogSettings::default()),
            (&["-v=4"], LogSettings { verbosity: 4, ..LogSettings::default() }),
            (
                &["--vmodule=node*=4,a/b=6,", "--vmodule=x=0"],
                LogSettings {
                    modules: vec![module("node*", 4), module("a/b", 6), module("x", 0)],
                    ..LogSettings::default()
                },
            ),
            (&["--logging-format=json"], LogSettings { format: Format::Json, ..LogSettings::default() }),
            (&["--log-text-split-stream"], LogSettings { split: true, ..LogSettings::default() }),
            // The flag of the JSON format has no effect on the text format, as in Go.
            (&["--log-json-split-stream"], LogSettings::default()),
            (
                &["--log-json-split-stream=true", "--logging-format=json"],
                LogSettings { format: Format::Json, split: true, ..LogSettings::default() },
            ),
            (
                &["--log-flush-frequency=1m", "--log-text-info-buffer-size=64Ki", "--log-json-info-buffer-size=1e3"],
                LogSettings::default(),
            ),
        ];
        for (arguments, expected) in cases {
            assert_eq!(settled(arguments), Ok(expected), "{arguments:?}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let cases: [(&[&str], &str); 15] = [
            (&["-v=loud"], "-v=loud: expected a whole number such as 2"),
            (&["-v=-1"], "-v=-1: expected a whole number such as 2"),
            (&["-v=2147483648"], "-v=2147483648: expected a whole number such as 2"),
            (&["--vmodule=node"], "--vmodule=node: expected a file's name or pattern"),
            (&["--vmodule=node="], "--vmodule=node=: expected a file's name or pattern"),
            (&["--vmodule==4"], "--vmodule==4: expected a file's name or pattern"),
            (&["--vmodule=a=b=4"], "--vmodule=a=b=4: expected a file's name or pattern"),
            (&["--vmodule=a=-4"], "--vmodule=a=-4: expected a file's name or pattern"),
            (&["--vmodule=a=4", "--logging-format=json"], "--vmodule=a=4: works with --logging-format=text only"),
            (&["--logging-format=xml"], "--logging-format=xml: expected text or json"),
            (&["--log-flush-frequency=0"], "--log-flush-frequency=0: expected more than 0s"),
            (&["--log-flush-frequency=-1s"], "--log-flush-frequency=-1s: it is negative"),
            (&["--log-text-split-stream=yes"], "--log-text-split-stream=yes: expected true or false"),
            (&["--log-text-info-buffer-size=much"], "--log-text-info-buffer-size=much: expected a size"),
            (&["--log-json-info-buffer-size=1.2.3Ki"], "--log-json-info-buffer-size=1.2.3Ki: expected a size"),
        ];
        for (arguments, expected) in cases {
            let wrong = settled(arguments).unwrap_err();
            let messages = wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(wrong.len() == 1 && messages.starts_with(expected), "{arguments:?}: {messages}");
        }
    }
}
