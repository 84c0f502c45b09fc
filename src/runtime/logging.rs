//! The log on standard error, and the one printer of error chains.

use std::error::Error;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, reload};

/// What the log is to be like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// klog's verbosity, `-v`: 0 to 3 inform, 4 and 5 give decisions, from 6 on everything of this program.
    pub verbosity: u32,
    /// `--vmodule`: other verbosities of files whose names match a pattern.
    pub modules: Vec<(String, u32)>,
    /// `--logging-format`.
    pub format: Format,
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
    filter: reload::Handle<Targets, Registry>,
}

impl Verbosity {
    /// Changes it.
    pub fn set(&self, verbosity: u32) {
        // Only fails when the log is gone, and then nobody reads it.
        let _ = self.filter.reload(filter(verbosity));
    }
}

/// Starts the log. Fails when the process has one already.
pub fn start(settings: &Settings) -> Result<Verbosity, TryInitError> {
    let (filter, handle) = reload::Layer::new(filter(settings.verbosity));
    tracing_subscriber::registry()
        .with(filter)
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr))
        .try_init()?;
    Ok(Verbosity { filter: handle })
}

/// Which messages pass at `verbosity`. The libraries stay quieter than this program.
fn filter(verbosity: u32) -> Targets {
    let own = match verbosity {
        0..=3 => Level::INFO,
        4..=5 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let libraries = match verbosity {
        0..=3 => LevelFilter::WARN,
        4..=7 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    Targets::new()
        .with_default(libraries)
        .with_target("ccm", own)
        .with_target("vsphere_cloud_controller_manager", own)
        // It writes whole response bodies at WARN when they do not decode, Secrets among them.
        .with_target("kube_client::client", LevelFilter::ERROR)
        // It writes a line at ERROR for every answer of the 500s, which the caller handles and tells.
        .with_target("kube_client::client::builder", LevelFilter::OFF)
        .with_target("h2", LevelFilter::WARN)
        .with_target("hyper", LevelFilter::WARN)
        .with_target("hyper_util", LevelFilter::WARN)
        .with_target("reqwest", LevelFilter::WARN)
        .with_target("rustls", LevelFilter::ERROR)
}

/// The error and its sources in one line, outermost first. A source that a message repeats at its end (several
/// libraries do) is printed once.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, rest) = texts.split_first().unwrap();
        Layer { text, source: (!rest.is_empty()).then(|| Box::new(layers(rest))) }
    }

    #[test]
    fn a_chain_is_one_line_without_repetition() {
        let cases: [(&str, &[&str], &str); 3] = [
            ("alone", &["a"], "a"),
            ("each once", &["reading x", "no such file"], "reading x: no such file"),
            ("repeated by the outer one", &["open: denied", "denied", "code 13"], "open: denied: code 13"),
        ];
        for (case, texts, expected) in cases {
            assert_eq!(chain(&layers(texts)), expected, "{case}");
        }
    }

    #[test]
    fn verbosity_opens_our_messages_and_never_response_bodies() {
        let cases = [
            (0, "ccm::app", Level::INFO, true),
            (2, "ccm::app", Level::DEBUG, false),
            (4, "ccm::app", Level::DEBUG, true),
            (4, "ccm::app", Level::TRACE, false),
            (6, "ccm::app", Level::TRACE, true),
            (2, "kube_runtime::watcher", Level::INFO, false),
            (10, "kube_client::client", Level::WARN, false),
            (10, "hyper::proto", Level::DEBUG, false),
        ];
        for (verbosity, target, level, passes) in cases {
            assert_eq!(filter(verbosity).would_enable(target, &level), passes, "-v={verbosity} {target} {level}");
        }
    }
}
