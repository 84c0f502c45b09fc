//! Pure: selects the messages that are logged, by verbosity, file and target.

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::base::glob;

/// klog's verbosity of debug messages, which report decisions.
const DEBUG: u32 = 4;
/// klog's verbosity of trace messages, which report data.
const TRACE: u32 = 6;

/// A pattern of `--vmodule` and its verbosity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Pattern for the file name without folder and `.rs`. A pattern that contains `/` is for the path below `src/`,
    /// without `.rs`. See `glob::matches`.
    pub pattern: String,
    /// Verbosity of matching files. Has no effect below the verbosity of the log.
    pub verbosity: u32,
}

impl Module {
    fn is_about(&self, file: &str) -> bool {
        let path = file.strip_suffix(".rs").unwrap_or(file);
        let path = path.strip_prefix("src/").unwrap_or(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        glob::matches(&self.pattern, if self.pattern.contains('/') { path } else { name })
    }
}

/// Filter of log messages.
#[derive(Debug, Clone)]
pub struct Levels {
    verbosity: u32,
    modules: Vec<Module>,
    others: Targets,
}

impl Levels {
    /// Creates a filter for messages up to `verbosity`. Files that match a module use the module's verbosity if higher.
    pub fn new(verbosity: u32, modules: Vec<Module>) -> Self {
        Self { verbosity, modules, others: libraries(verbosity) }
    }

    /// Sets the verbosity and keeps the modules.
    pub fn set(&mut self, verbosity: u32) {
        self.verbosity = verbosity;
        self.others = libraries(verbosity);
    }

    pub fn pass(&self, metadata: &Metadata<'_>) -> bool {
        self.passes(metadata.target(), *metadata.level(), metadata.file().unwrap_or_default())
    }

    fn passes(&self, target: &str, level: Level, file: &str) -> bool {
        if !is_ours(target) {
            return self.others.would_enable(target, &level);
        }
        let needed = verbosity_of(level);
        // As in klog, the first matching pattern applies, and it never lowers the verbosity.
        needed <= self.verbosity
            || self.modules.iter().find(|module| module.is_about(file)).is_some_and(|found| needed <= found.verbosity)
    }

    /// Returns the most detailed level at which a message passes. Callsites of more detailed levels cost nothing.
    pub fn most(&self) -> LevelFilter {
        let modules = self.modules.iter().map(|module| module.verbosity);
        let own = match modules.fold(self.verbosity, u32::max) {
            0..DEBUG => LevelFilter::INFO,
            DEBUG..TRACE => LevelFilter::DEBUG,
            TRACE.. => LevelFilter::TRACE,
        };
        own.max(of_libraries(self.verbosity))
    }
}

/// Returns klog's verbosity of a level. Errors and warnings always pass.
pub fn verbosity_of(level: Level) -> u32 {
    match level {
        Level::ERROR | Level::WARN | Level::INFO => 0,
        Level::DEBUG => DEBUG,
        Level::TRACE => TRACE,
    }
}

/// Returns true if the target belongs to this program and not to a library. `--vmodule` never enables the messages of
/// libraries, which may contain secrets.
pub fn is_ours(target: &str) -> bool {
    let krate = target.split("::").next().unwrap_or_default();
    matches!(krate, "ccm" | "vsphere_cloud_controller_manager")
}

/// Returns the level for libraries, which is less detailed than the level for this program.
fn of_libraries(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::WARN,
        4..=7 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    }
}

fn libraries(verbosity: u32) -> Targets {
    Targets::new()
        .with_default(of_libraries(verbosity))
        // At WARN, `kube_client::client` logs response bodies that it cannot decode, including those of Secrets.
        .with_target("kube_client::client", LevelFilter::ERROR)
        .with_target("h2", LevelFilter::WARN)
        .with_target("hyper", LevelFilter::WARN)
        .with_target("hyper_util", LevelFilter::WARN)
        .with_target("reqwest", LevelFilter::WARN)
        .with_target("rustls", LevelFilter::ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(verbosity: u32, modules: &[(&str, u32)]) -> Levels {
        let module = |(pattern, verbosity): &(&str, u32)| Module { pattern: (*pattern).into(), verbosity: *verbosity };
        Levels::new(verbosity, modules.iter().map(module).collect())
    }

    #[test]
    fn verbosity_opens_our_messages_and_never_response_bodies() {
        let cases = [
            (0, "ccm::app", Level::INFO, true),
            (2, "ccm::app", Level::DEBUG, false),
            (4, "ccm::app", Level::DEBUG, true),
            (4, "ccm::app", Level::TRACE, false),
            (6, "ccm::app", Level::TRACE, true),
            (2, "ccmx::app", Level::INFO, false),
            (2, "kube_runtime::watcher", Level::INFO, false),
            (10, "kube_client::client", Level::WARN, false),
            (10, "hyper::proto", Level::DEBUG, false),
        ];
        for (verbosity, target, level, passes) in cases {
            let case = format!("-v={verbosity} {target} {level}");
            assert_eq!(levels(verbosity, &[]).passes(target, level, "src/app.rs"), passes, "{case}");
        }
    }

    #[test]
    fn vmodule_opens_single_files_of_ours_and_silences_none() {
        const NODE: &str = "src/controllers/node.rs";
        const SYNC: &str = "src/controllers/node/sync.rs";
        type Modules = &'static [(&'static str, u32)];
        let cases: [(Modules, &str, &str, Level, bool); 12] = [
            (&[("node", 4)], "ccm::controllers", NODE, Level::DEBUG, true),
            (&[("node", 4)], "ccm::controllers", NODE, Level::TRACE, false),
            (&[("node", 6)], "ccm::controllers", NODE, Level::TRACE, true),
            (&[("node", 4)], "ccm::controllers", SYNC, Level::DEBUG, false),
            (&[("s*", 4)], "ccm::controllers", SYNC, Level::DEBUG, true),
            (&[("controllers/node/*", 4)], "ccm::controllers", SYNC, Level::DEBUG, true),
            (&[("controllers/node/*", 4)], "ccm::controllers", NODE, Level::DEBUG, false),
            (&[("node", 0)], "ccm::controllers", NODE, Level::INFO, true),
            // The first matching pattern decides.
            (&[("n*", 4), ("node", 6)], "ccm::controllers", NODE, Level::TRACE, false),
            (&[("x", 4), ("node", 6)], "ccm::controllers", NODE, Level::TRACE, true),
            // A file name never enables messages of libraries, which may contain bodies with Secrets.
            (&[("*", 9), ("mod", 9)], "kube_client::client", "/x/kube-client-5/src/client/mod.rs", Level::WARN, false),
            (&[("*", 9)], "hyper::proto", "/x/hyper/src/proto.rs", Level::TRACE, false),
        ];
        for (modules, target, file, level, passes) in cases {
            assert_eq!(levels(0, modules).passes(target, level, file), passes, "{modules:?} {file} {level}");
        }
    }

    #[test]
    fn another_verbosity_keeps_the_modules_and_what_is_off_costs_nothing() {
        let mut levels = levels(0, &[("node", 4)]);
        assert_eq!(levels.most(), LevelFilter::DEBUG);
        levels.set(6);
        assert_eq!(levels.most(), LevelFilter::TRACE);
        assert!(levels.passes("ccm::x", Level::TRACE, "src/x.rs"));
        levels.set(0);
        assert!(!levels.passes("ccm::x", Level::DEBUG, "src/x.rs"));
        assert!(levels.passes("ccm::x", Level::DEBUG, "src/node.rs"));
        assert_eq!(Levels::new(3, Vec::new()).most(), LevelFilter::INFO);
        assert_eq!(Levels::new(8, Vec::new()).most(), LevelFilter::TRACE);
    }
}
