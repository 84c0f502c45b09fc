//! The flags of the log.

use super::{Check, Mistake};
use crate::app::options;
use crate::base::go_duration;
use crate::runtime::logging::{Format, Module, Settings};
use std::time::Duration;

/// klog counts verbosity in 31 bits.
const MOST_VERBOSE: u32 = i32::MAX.unsigned_abs();

/// Joins and checks the flags of the log.
///
/// # Errors
/// All that is wrong with them.
pub(super) fn settle(options: &options::Logging) -> Result<Settings, Vec<Mistake>> {
    let mut wrong = Vec::new();
    let settings = Settings {
        verbosity: noted(&mut wrong, verbosity("-v", &options.v)).unwrap_or_default(),
        modules: noted(&mut wrong, modules(&options.vmodule)).unwrap_or_default(),
        format: noted(&mut wrong, format(&options.logging_format)).unwrap_or_default(),
        split: noted(&mut wrong, split(options)).unwrap_or_default(),
    };
    if settings.format == Format::Json && !settings.modules.is_empty() {
        wrong.push(mistake("--vmodule", &options.vmodule.join(","), "works with --logging-format=text only"));
    }
    // These have no meaning here, since every line is written at once; what Go refuses is refused all the same.
    let _ = noted(&mut wrong, flush_frequency(&options.log_flush_frequency));
    let sizes = [
        ("--log-text-info-buffer-size", &options.log_text_info_buffer_size),
        ("--log-json-info-buffer-size", &options.log_json_info_buffer_size),
    ];
    for (flag, size) in sizes {
        if !is_quantity(size) {
            wrong.push(mistake(flag, size, "expected a size such as 0, 512 or 64Ki"));
        }
    }
    if wrong.is_empty() { Ok(settings) } else { Err(wrong) }
}

fn mistake(flag: &str, value: &str, why: impl Into<String>) -> Mistake {
    Mistake { place: format!("{flag}={value}"), why: why.into() }
}

fn noted<T>(wrong: &mut Vec<Mistake>, outcome: Result<T, Mistake>) -> Option<T> {
    outcome.map_err(|mistake| wrong.push(mistake)).ok()
}

fn verbosity(flag: &str, text: &str) -> Result<u32, Mistake> {
    let number = text.parse().ok().filter(|number| *number <= MOST_VERBOSE);
    number.ok_or_else(|| mistake(flag, text, "expected a whole number such as 2"))
}

/// `pattern=N`, as klog reads it: nothing between two commas is nothing.
fn modules(items: &[String]) -> Result<Vec<Module>, Mistake> {
    let module = |item: &&String| match item.split('=').collect::<Vec<_>>().as_slice() {
        [pattern, level] if !pattern.is_empty() && !level.is_empty() => {
            let verbosity = verbosity("--vmodule", level).map_err(|_| not_a_module(item))?;
            Ok(Module { pattern: (*pattern).to_owned(), verbosity })
        }
        _ => Err(not_a_module(item)),
    };
    items.iter().filter(|item| !item.is_empty()).map(|item| module(&item)).collect()
}

fn not_a_module(item: &str) -> Mistake {
    mistake("--vmodule", item, "expected a file's name or pattern and a whole number such as node*=4")
}

fn format(text: &str) -> Result<Format, Mistake> {
    match text {
        "text" | "" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        other => Err(mistake("--logging-format", other, "expected text or json")),
    }
}

/// Of the two flags the one of the format in use counts.
fn split(options: &options::Logging) -> Result<bool, Mistake> {
    let boolean =
        |flag: &str, text: &str| super::boolean(text).ok_or_else(|| mistake(flag, text, "expected true or false"));
    let text = boolean("--log-text-split-stream", &options.log_text_split_stream)?;
    let json = boolean("--log-json-split-stream", &options.log_json_split_stream)?;
    Ok(if options.logging_format == "json" { json } else { text })
}

fn flush_frequency(text: &str) -> Result<Duration, Mistake> {
    let refused = |why: String| mistake("--log-flush-frequency", text, why);
    match go_duration::parse_duration(text) {
        Ok(Duration::ZERO) => Err(refused("expected more than 0s".to_owned())),
        outcome => outcome.map_err(|error| refused(error.to_string())),
    }
}

/// Whether this is a quantity as Kubernetes spells them: a decimal number and a suffix such as Ki, M or e3.
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

impl Check<'_> {
    pub(super) fn logging(&mut self) -> Option<Settings> {
        settle(&self.options.logging).map_err(|wrong| self.mistakes.extend(wrong)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::options::{self, Asked};

    fn settled(arguments: &[&str]) -> Result<Settings, Vec<Mistake>> {
        let program = std::iter::once("vsphere-cloud-controller-manager").chain(arguments.iter().copied());
        let Ok(Asked::Run(options)) = options::parse(program.map(Into::into)) else { panic!("{arguments:?}") };
        settle(&options.logging)
    }

    #[test]
    fn the_flags_mean_what_they_mean_in_go() {
        let module = |pattern: &str, verbosity| Module { pattern: pattern.to_owned(), verbosity };
        let cases: [(&[&str], Settings); 8] = [
            (&[], Settings::default()),
            (&["-v=4"], Settings { verbosity: 4, ..Settings::default() }),
            (
                &["--vmodule=node*=4,a/b=6,", "--vmodule=x=0"],
                Settings { modules: vec![module("node*", 4), module("a/b", 6), module("x", 0)], ..Settings::default() },
            ),
            (&["--logging-format=json"], Settings { format: Format::Json, ..Settings::default() }),
            (&["--log-text-split-stream"], Settings { split: true, ..Settings::default() }),
            // The flag of the other format has no effect, as in Go.
            (&["--log-json-split-stream"], Settings::default()),
            (
                &["--log-json-split-stream=true", "--logging-format=json"],
                Settings { format: Format::Json, split: true, ..Settings::default() },
            ),
            (
                &["--log-flush-frequency=1m", "--log-text-info-buffer-size=64Ki", "--log-json-info-buffer-size=1e3"],
                Settings::default(),
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
            let told = wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(wrong.len() == 1 && told.starts_with(expected), "{arguments:?}: {told}");
        }
    }
}
