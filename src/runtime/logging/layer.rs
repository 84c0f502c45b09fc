//! Formats tracing events as lines.

use std::error::Error;
use std::fmt::Debug;

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Format;
use super::levels::{Levels, is_ours};
use super::line::{self, EventFields, Record, Value};
use super::output::{LineQueue, Stream};
use crate::base::error_chain::chain;

/// Decides once for each callsite whether its messages are logged.
impl<S: Subscriber> Layer<S> for Levels {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.pass(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.pass(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most())
    }
}

/// The format and the stream of lines.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub format: Format,
    /// Whether lines other than errors go to standard output.
    pub split: bool,
}

impl Form {
    pub fn line(self, level: Level, metadata: (&str, u32), task: Option<&str>, fields: &EventFields) -> String {
        let record = Record { time: Timestamp::now(), level, location: metadata, task, event: fields };
        match self.format {
            Format::Text => line::text(&record, std::process::id()),
            Format::Json => line::json(&record),
        }
    }

    /// Selects the stream. As in Go, a warning counts as an error in text but not in JSON, which has no severity key.
    fn stream(self, level: Level) -> Stream {
        let is_error = level == Level::ERROR || (level == Level::WARN && self.format == Format::Text);
        if self.split && !is_error { Stream::Output } else { Stream::Error }
    }
}

pub struct Lines {
    pub form: Form,
    pub queue: LineQueue,
}

impl Lines {
    pub fn write(&self, level: Level, metadata: (&str, u32), task: Option<&str>, fields: &EventFields) {
        self.queue.push(self.form.stream(level), self.form.line(level, metadata, task, fields));
    }
}

/// Name of a task, stored in its span.
struct Task(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "task" || !is_ours(attributes.metadata().target()) {
            return;
        }
        let mut fields = EventFields::default();
        attributes.record(&mut Gather(&mut fields));
        let name = fields.values.into_iter().find_map(|(key, value)| match value {
            Value::Text(name) if key == "name" => Some(name),
            _ => None,
        });
        if let (Some(name), Some(span)) = (name, context.span(id)) {
            span.extensions_mut().insert(Task(name));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut Gather(&mut fields));
        let metadata = event.metadata();
        let at = (metadata.file().unwrap_or("unknown"), metadata.line().unwrap_or_default());
        let spans = context.event_scope(event).into_iter().flatten();
        let mut tasks = spans.filter_map(|span| span.extensions().get::<Task>().map(|task| task.0.clone()));
        self.write(*metadata.level(), at, tasks.next().as_deref(), &fields);
    }
}

struct Gather<'a>(&'a mut EventFields);

impl Gather<'_> {
    fn take(&mut self, field: &Field, value: Value) {
        match value {
            // The tracing macros record the message first, so a second field named `message` is an ordinary value.
            Value::Text(text) if field.name() == "message" && self.0.message.is_empty() => self.0.message = text,
            value => self.0.values.push((field.name(), value)),
        }
    }
}

impl Visit for Gather<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, Value::Text(value.to_owned()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.take(field, Value::Text(chain(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.take(field, Value::Bare(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, Value::float(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::reload;

    use super::super::levels::Module;
    use super::super::{Verbosity, output};
    use super::*;

    type Seen = Arc<Mutex<Vec<(Stream, String)>>>;

    /// Returns a log for one test, and its written lines.
    fn log(levels: Levels, form: Form) -> (impl Subscriber + Send + Sync, Verbosity, output::FlushGuard, Seen) {
        let seen = Seen::default();
        let kept = Arc::clone(&seen);
        let write = move |stream, line: &str| kept.lock().unwrap().push((stream, line.to_owned()));
        let (queue, written) = LineQueue::start(write, |_| String::new()).unwrap();
        let (levels, handle) = reload::Layer::new(levels);
        let subscriber = tracing_subscriber::registry().with(levels).with(Lines { form, queue });
        (subscriber, Verbosity { levels: handle }, written, seen)
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn a_line_has_its_place_its_task_and_its_values_and_errors_have_their_chain() {
        let form = Form { format: Format::Text, split: true };
        let (subscriber, _, written, seen) = log(Levels::new(0, Vec::new()), form);
        tracing::subscriber::with_default(subscriber, || {
            let error: &(dyn Error + 'static) = &Outer(std::fmt::Error);
            let task = tracing::info_span!(target: "ccm::runtime::tasks", "task", name = %"nodes");
            task.in_scope(|| tracing::warn!(target: "ccm::x", error, count = 3, message = "b", "a {}", 1));
            tracing::info!(target: "ccm::x", what = %"x y", kind = ?Some("z"), "said");
            tracing::error!(target: "ccm::x", "wrong");
            tracing::debug!(target: "ccm::x", "decided");
        });
        drop(written);
        let seen = seen.lock().unwrap();
        let lines: Vec<_> = seen.iter().map(|(stream, line)| (*stream, line.split_once("] ").unwrap().1)).collect();
        assert_eq!(
            lines,
            [
                (
                    Stream::Error,
                    "\"a 1\" err=\"outer: an error occurred when formatting an argument\" logger=\"nodes\" count=3 \
                     message=\"b\"\n"
                ),
                (Stream::Output, "\"said\" what=\"x y\" kind=\"Some(\\\"z\\\")\"\n"),
                (Stream::Error, "\"wrong\"\n"),
            ]
        );
        assert!(seen.iter().all(|(_, line)| line.contains(" layer.rs:")), "{seen:?}");
    }

    #[test]
    fn verbosity_changes_while_the_process_runs_and_modules_stay() {
        let quiet = vec![Module { pattern: "layer".to_owned(), verbosity: 4 }];
        let form = Form { format: Format::Json, split: true };
        let (subscriber, verbosity, written, seen) = log(Levels::new(0, quiet), form);
        let say = |when: &'static str| {
            tracing::debug!(target: "ccm::x", when, "decision");
            tracing::trace!(target: "ccm::x", when, "data");
            tracing::warn!(target: "ccm::x", when, "trouble");
        };
        tracing::subscriber::with_default(subscriber, || {
            say("first");
            verbosity.set(6);
            say("then");
            verbosity.set(0);
            say("last");
        });
        drop(written);
        let reported: Vec<_> = seen
            .lock()
            .unwrap()
            .iter()
            .map(|(stream, line)| {
                assert_eq!(*stream, Stream::Output, "as in Go, {line}");
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                format!("{} {}", line["when"].as_str().unwrap(), line["msg"].as_str().unwrap())
            })
            .collect();
        let expected = [
            "first decision",
            "first trouble",
            "then decision",
            "then data",
            "then trouble",
            "last decision",
            "last trouble",
        ];
        assert_eq!(reported, expected);
    }
}
