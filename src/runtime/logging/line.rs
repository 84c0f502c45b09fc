//! Pure: formats a message as one line, in klog's text form or as one JSON object with klog's keys. A message is always
//! exactly one line, so that a line break in a value cannot forge another message.

use std::fmt::Write;

use jiff::Timestamp;
use tracing::Level;

use super::levels::verbosity_of;

const ERROR: &str = "err";

/// A message with its origin.
#[derive(Debug)]
pub struct Record<'a> {
    pub time: Timestamp,
    /// The severity, which also determines klog's verbosity.
    pub level: Level,
    /// Path of the source file, and line number.
    pub location: (&'a str, u32),
    /// Name of the task that logs the message.
    pub task: Option<&'a str>,
    pub event: &'a EventFields,
}

/// The content of a message.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct EventFields {
    pub message: String,
    /// Values by key, in the given order. The key `error` is written as `err`, as in klog.
    pub values: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Written without quotes: a number, `true` or `false`.
    Bare(String),
    /// Written in quotes.
    Text(String),
}

impl Value {
    /// Returns a number as a value. A number that is not finite is written in quotes, because JSON cannot express it.
    pub fn float(number: f64) -> Self {
        if number.is_finite() { Value::Bare(number.to_string()) } else { Value::Text(number.to_string()) }
    }
}

impl EventFields {
    fn errors(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().filter(|(key, _)| is_error(key)).map(|(_, value)| value)
    }

    fn others(&self) -> impl Iterator<Item = &(&'static str, Value)> {
        self.values.iter().filter(|(key, _)| !is_error(key))
    }
}

fn is_error(key: &str) -> bool {
    matches!(key, "error" | ERROR)
}

/// Formats `Lmmdd hh:mm:ss.uuuuuu threadid file:line] "message" err="…" logger="task" key="value" …`, in UTC. As in
/// klog, the thread ID is the process ID.
pub fn text(record: &Record<'_>, process: u32) -> String {
    let severity = match record.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let time = record.time.strftime("%m%d %H:%M:%S%.6f");
    let (path, number) = record.location;
    let file = path.rsplit('/').next().unwrap_or(path);
    let mut line = format!("{severity}{time} {process:>7} {file}:{number}] ");
    quote(&mut line, &record.event.message);
    for value in record.event.errors() {
        pair(&mut line, ERROR, value);
    }
    if let Some(task) = record.task {
        line.push_str(" logger=");
        quote(&mut line, task);
    }
    for (key, value) in record.event.others() {
        pair(&mut line, key, value);
    }
    line.push('\n');
    line
}

fn pair(line: &mut String, key: &str, value: &Value) {
    line.push(' ');
    line.push_str(key);
    line.push('=');
    match value {
        Value::Text(text) => quote(line, text),
        Value::Bare(bare) => line.push_str(bare),
    }
}

/// Quotes a text as Go's `strconv.Quote` does. Escapes line breaks and other characters that do not print.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for char in text.chars() {
        match char {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\x07' => line.push_str("\\a"),
            '\x08' => line.push_str("\\b"),
            '\x0c' => line.push_str("\\f"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\x0b' => line.push_str("\\v"),
            ' '..='~' => line.push(char),
            // `escape_debug` keeps printable characters, except quotes and backslashes, which are handled above.
            prints if !prints.is_ascii() && prints.escape_debug().len() == 1 => line.push(prints),
            // Writing to a `String` cannot fail.
            '\0'..='\x7f' => _ = write!(line, "\\x{:02x}", u32::from(char)),
            '\u{80}'..='\u{ffff}' => _ = write!(line, "\\u{:04x}", u32::from(char)),
            _ => _ = write!(line, "\\U{:08x}", u32::from(char)),
        }
    }
    line.push('"');
}

/// Formats one JSON object: `ts` in milliseconds since 1970, `logger`, `caller`, `msg`, `v`, the values, `err`. An
/// error has no `v`. A warning has the verbosity 0, because klog has no key for warnings.
pub fn json(record: &Record<'_>) -> String {
    // The 53 bits of an `f64` are exact enough for microseconds of current times, as in the Go program.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    let milliseconds = record.time.as_nanosecond() as f64 / 1e6;
    let (path, number) = record.location;
    let mut line = format!("{{\"ts\":{milliseconds}");
    if let Some(task) = record.task {
        member(&mut line, "logger", &Value::Text(task.to_owned()));
    }
    member(&mut line, "caller", &Value::Text(format!("{}:{number}", with_folder(path))));
    member(&mut line, "msg", &Value::Text(record.event.message.clone()));
    if record.level != Level::ERROR {
        member(&mut line, "v", &Value::Bare(verbosity_of(record.level).to_string()));
    }
    for (key, value) in record.event.others() {
        // A key that equals one of klog's keys gets the suffix `_`, because JSON parsers disagree about objects with
        // duplicate keys.
        let is_taken = matches!(*key, "ts" | "logger" | "caller" | "msg" | "v");
        if is_taken { member(&mut line, &format!("{key}_"), value) } else { member(&mut line, key, value) }
    }
    for value in record.event.errors().take(1) {
        member(&mut line, ERROR, value);
    }
    line.push_str("}\n");
    line
}

fn with_folder(path: &str) -> &str {
    let cut = path.rmatch_indices('/').nth(1);
    cut.and_then(|(at, _)| path.get(at + 1..)).unwrap_or(path)
}

fn member(line: &mut String, key: &str, value: &Value) {
    line.push(',');
    json_string(line, key);
    line.push(':');
    match value {
        Value::Text(text) => json_string(line, text),
        Value::Bare(bare) => line.push_str(bare),
    }
}

fn json_string(line: &mut String, text: &str) {
    line.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests;
