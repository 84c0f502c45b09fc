//! A clock of one process that a test can set while the process runs: its wall clock alone, or all of its clocks.
//!
//! A small C library (`tests/testenv/clock/clock.c`) is preloaded into the process and replaces functions of the C
//! library. So the program must be linked dynamically, and run on Linux. Debug builds are linked dynamically, the
//! shipped binary is not. The library is compiled at its first use.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::components::Component;

const SOURCE: &str = include_str!("../../testenv/clock/clock.c");
const FLAGS: [&str; 6] = ["-x", "c", "-std=gnu11", "-O2", "-shared", "-fPIC"];
const NANOSECONDS: i64 = 1_000_000_000;

/// The clock of each process that is started with its [`Clock::environment`].
pub struct Clock {
    file: File,
    library: String,
    path: String,
}

impl Clock {
    /// Makes a correct clock. Its file is in this folder, which must outlive the process.
    ///
    /// # Panics
    ///
    /// If there is no C compiler, or the system is not Linux.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let path = folder.join(crate::unique("clock"));
        let file = File::create_new(&path).unwrap();
        let clock = Self { file, library: library().display().to_string(), path: path.display().to_string() };
        clock.set_ahead(0);
        clock.pass(0);
        clock
    }

    /// Returns the environment variables for the process, in the form of [`crate::Daemon::start_with`].
    #[must_use]
    pub fn environment(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_AHEAD_FILE", &self.path)]
    }

    /// Sets the wall clock ahead of the machine's by this many seconds, or behind it if negative. The monotonic clock
    /// is unchanged. The process sees the change when it next reads the clock.
    ///
    /// # Panics
    ///
    /// If that is more than 292 years.
    pub fn set_ahead(&self, seconds: i64) {
        let nanoseconds = seconds.checked_mul(NANOSECONDS).unwrap();
        // Eight bytes in one write at the start of a page, so that a reader never sees half of them.
        self.file.write_all_at(&nanoseconds.to_ne_bytes(), 0).unwrap();
    }

    /// Moves all clocks of the process forward. `seconds` is the total since the process began. A waiting program
    /// notices at its next event, because this does not affect a system timer that is already set.
    ///
    /// # Panics
    ///
    /// If that is more than 292 years.
    pub fn pass(&self, seconds: u32) {
        let nanoseconds = i64::from(seconds).checked_mul(NANOSECONDS).unwrap();
        self.file.write_all_at(&nanoseconds.to_ne_bytes(), 8).unwrap();
    }
}

/// Returns the path of the compiled library. Its folder is next to the other components, and its name is a hash of its
/// inputs.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if cfg!(not(target_os = "linux")) {
            panic!("the wall clock of one process can be set on Linux only");
        }
        let made_of = format!("{SOURCE}{FLAGS:?}{}", std::env::consts::ARCH);
        let key = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, made_of.as_bytes()).simple().to_string();
        // Path: target/testenv/tools-…/supervise
        let supervise = Component::Supervise.path();
        let folder = supervise.ancestors().nth(2).unwrap().join(format!("clock-{}", &key[..12]));
        let path = folder.join("libclock.so");
        if !path.is_file() {
            std::fs::create_dir_all(&folder).unwrap();
            // The library is compiled under a unique name first, because another process may compile it at the same
            // time.
            let made = folder.join(crate::unique("libclock"));
            compile(&made);
            std::fs::rename(made, &path).unwrap();
        }
        path
    })
}

fn compile(to: &Path) {
    let mut compiler = Command::new("cc");
    compiler.args(FLAGS).arg("-o").arg(to).args(["-", "-ldl"]);
    compiler.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = compiler
        .spawn()
        .unwrap_or_else(|error| panic!("a C compiler is needed for a clock that is wrong (cc: {error})"));
    running.stdin.take().unwrap().write_all(SOURCE.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "cc failed on clock.c: {}", String::from_utf8_lossy(&output.stderr));
}
