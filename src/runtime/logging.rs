//! The log, in klog's formats.

mod layer;
mod levels;
mod line;
mod output;
mod recent;

use std::panic::PanicHookInfo;
use std::sync::Arc;

use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, reload};

use layer::{Form, Lines};
use levels::Levels;
pub use levels::Module;
use line::EventFields;
pub use output::FlushGuard;
use output::LineQueue;
pub use recent::RecentLog;

/// The settings of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogSettings {
    /// klog's verbosity, `-v`. 0 to 3 log info, 4 and 5 also decisions, 6 and more all messages of this program.
    pub verbosity: u32,
    /// `--vmodule`: a higher verbosity for files whose names match a pattern.
    pub modules: Vec<Module>,
    /// `--logging-format`.
    pub format: Format,
    /// Whether errors go to standard error and all other lines to standard output.
    pub split: bool,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// klog's header, message, and key-value pairs.
    #[default]
    Text,
    /// One JSON object with klog's keys.
    Json,
}

/// Handle to the verbosity of the log. Clones share the verbosity.
#[derive(Clone)]
pub struct Verbosity {
    levels: reload::Handle<Levels, Registry>,
}

impl Verbosity {
    /// Changes the verbosity. `--vmodule` stays in effect.
    pub fn set(&self, verbosity: u32) {
        // An error means that the log has been dropped, so the verbosity has no effect.
        let _ = self.levels.modify(|levels| levels.set(verbosity));
    }
}

/// Handles to the running log.
pub struct LogHandles {
    /// Its verbosity.
    pub verbosity: Verbosity,
    /// Its last lines.
    pub recent: RecentLog,
}

/// Error at the start of the log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operating system cannot create the thread that writes the log.
    #[error("cannot start the thread of the log")]
    Thread(#[from] std::io::Error),
    /// The process already has a log.
    #[error("cannot start the log")]
    Twice(#[from] TryInitError),
}

/// Starts the log, which also records panics. Dropping the [`FlushGuard`] writes the last lines.
pub fn start(settings: &LogSettings) -> Result<(LogHandles, FlushGuard), StartError> {
    let (levels, handle) = reload::Layer::new(Levels::new(settings.verbosity, settings.modules.clone()));
    let form = Form { format: settings.format, split: settings.split };
    let recent = RecentLog::default();
    let kept = recent.clone();
    let write = move |stream, line: &str| {
        kept.push(line);
        output::to_process(stream, line);
    };
    let (queue, written) = LineQueue::start(write, move |count| lost(form, count))?;
    let lines = Arc::new(Lines { form, queue: queue.clone() });
    tracing_subscriber::registry().with(levels).with(Lines { form, queue }).try_init()?;
    std::panic::set_hook(Box::new(move |panic| log_panic(&lines, panic)));
    Ok((LogHandles { verbosity: Verbosity { levels: handle }, recent }, written))
}

fn lost(form: Form, count: u64) -> String {
    let fields = EventFields {
        message: format!("{count} messages are lost, because the log was not read in time"),
        values: Vec::new(),
    };
    form.line(Level::WARN, (file!(), line!()), None, &fields)
}

fn log_panic(lines: &Lines, panic: &PanicHookInfo<'_>) {
    let location = panic.location().map_or(("unknown", 0), |at| (at.file(), at.line()));
    let message = panic.payload_as_str().unwrap_or("without a message");
    let fields = EventFields { message: format!("panic: {message}"), values: Vec::new() };
    lines.write(Level::ERROR, location, None, &fields);
}
