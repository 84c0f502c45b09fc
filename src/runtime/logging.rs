//! The log, in klog's forms.

mod layer;
mod levels;
mod line;
mod output;

use std::panic::PanicHookInfo;
use std::sync::Arc;

use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, reload};

use layer::{Form, Lines};
use levels::Levels;
pub use levels::Module;
use line::Said;
pub use output::FlushGuard;
use output::LineQueue;

/// What the log is to be like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// klog's verbosity, `-v`: 0 to 3 inform, 4 and 5 give decisions, from 6 on everything of this program.
    pub verbosity: u32,
    /// `--vmodule`: more from files whose names match a pattern.
    pub modules: Vec<Module>,
    /// `--logging-format`.
    pub format: Format,
    /// Whether errors alone go to standard error, and the rest to standard output.
    pub split: bool,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// klog's header, message, key-values.
    #[default]
    Text,
    /// One JSON object, with klog's keys.
    Json,
}

/// How loud the log is, from now on. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Verbosity {
    levels: reload::Handle<Levels, Registry>,
}

impl Verbosity {
    /// Changes it; `--vmodule` stays.
    pub fn set(&self, verbosity: u32) {
        // Only fails when the log is gone, and then nobody reads it.
        let _ = self.levels.modify(|levels| levels.set(verbosity));
    }
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operating system gives no thread.
    #[error("cannot start the thread of the log")]
    Thread(#[from] std::io::Error),
    /// The process has one already.
    #[error("cannot start the log")]
    Twice(#[from] TryInitError),
}

/// Starts the log, panics among it. The last lines are written when [`FlushGuard`] is dropped.
pub fn start(settings: &Settings) -> Result<(Verbosity, FlushGuard), StartError> {
    let (levels, handle) = reload::Layer::new(Levels::new(settings.verbosity, settings.modules.clone()));
    let form = Form { format: settings.format, split: settings.split };
    let (queue, written) = LineQueue::start(output::to_process, move |count| lost(form, count))?;
    let lines = Arc::new(Lines { form, queue: queue.clone() });
    tracing_subscriber::registry().with(levels).with(Lines { form, queue }).try_init()?;
    std::panic::set_hook(Box::new(move |panic| tell(&lines, panic)));
    Ok((Verbosity { levels: handle }, written))
}

fn lost(form: Form, count: u64) -> String {
    let said = Said { message: format!("{count} messages are lost: nobody read the log"), values: Vec::new() };
    form.line(Level::WARN, (file!(), line!()), None, &said)
}

/// The place of a panic; its message is the error of the task that ends by it, and told with that.
fn tell(lines: &Lines, panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or(("unknown", 0), |at| (at.file(), at.line()));
    let message = panic.payload_as_str().unwrap_or("without a message");
    lines.write(Level::ERROR, place, None, &Said { message: format!("panic: {message}"), values: Vec::new() });
}
