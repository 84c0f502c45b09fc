//! The copy of the repository whose code is broken.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of the tests of a mutant. A mutant that makes them hang counts as caught.
const LIMIT: Duration = Duration::from_secs(900);
/// Pause between two checks whether the tests have ended.
const LOOK: Duration = Duration::from_millis(200);

/// The result of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A test failed, or did not end.
    Caught,
    /// All tests passed.
    Missed,
    /// The mutant did not compile, so nothing was tested.
    DoesNotBuild,
}

impl Outcome {
    /// Parses the output of `{:?}`.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Caught, Self::Missed].into_iter().find(|outcome| format!("{outcome:?}") == word)
    }
}

/// The copy and its parent folder.
pub struct Tree {
    folder: PathBuf,
    copy: PathBuf,
}

impl Tree {
    /// Copies the repository's tracked files, without its build folder. Files that are equal are not touched, so that
    /// they are not built again.
    pub fn prepare() -> Result<Self, String> {
        let root = root();
        let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), PathBuf::from);
        let folder = target.join("mutants");
        let tree = Self { copy: folder.join("copy"), folder };
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output().map_err(text)?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        let files: HashSet<_> = listed.split('\0').map(|file| tree.copy.join(file)).collect();
        remove_others(&tree.copy, &files).map_err(text)?;
        for file in listed.split('\0').filter(|file| !file.is_empty()) {
            let Ok(content) = fs::read(root.join(file)) else { continue };
            let path = tree.copy.join(file);
            if fs::read(&path).is_ok_and(|known| known == content) {
                continue;
            }
            fs::create_dir_all(path.parent().ok_or("a file without a folder")?).map_err(text)?;
            fs::copy(root.join(file), &path).map_err(text)?;
        }
        let components = tree.copy.join("target/testenv");
        if !components.exists() {
            fs::create_dir_all(tree.copy.join("target")).map_err(text)?;
            std::os::unix::fs::symlink(target.join("testenv"), components).map_err(text)?;
        }
        Ok(tree)
    }

    /// Returns the folder of the results.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads a file of the copy.
    pub fn read(&self, file: &str) -> Result<String, String> {
        fs::read_to_string(self.copy.join(file)).map_err(|error| format!("{file}: {error}"))
    }

    /// Writes a file of the copy.
    pub fn write(&self, file: &str, content: &str) -> Result<(), String> {
        fs::write(self.copy.join(file), content).map_err(|error| format!("{file}: {error}"))
    }

    /// Builds and runs these tests, until one fails.
    pub fn test(&self, runs: &[&[&str]]) -> Result<Outcome, String> {
        for run in runs {
            let names = run.iter().position(|argument| *argument == "--").unwrap_or(run.len());
            let (build, _) = run.split_at(names);
            if !self.cargo(&[&["test", "--locked", "--quiet", "--no-run"], build].concat(), None)? {
                return Ok(Outcome::DoesNotBuild);
            }
            if !self.cargo(&[&["test", "--locked", "--quiet"], *run].concat(), Some(LIMIT))? {
                return Ok(Outcome::Caught);
            }
        }
        Ok(Outcome::Missed)
    }

    fn cargo(&self, arguments: &[&str], limit: Option<Duration>) -> Result<bool, String> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.copy).env_remove("CARGO_TARGET_DIR");
        // Backtraces are not read, and linking is faster without debug information.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().map_err(text)?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(text)? {
                return Ok(status.success());
            }
            if limit.is_some_and(|limit| began.elapsed() > limit) {
                // Kills the process group, because killing cargo alone leaves its tests running.
                let group = format!("-{}", child.id());
                Command::new("kill").args(["-KILL", "--", &group]).status().map_err(text)?;
                child.wait().map_err(text)?;
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn remove_others(folder: &Path, files: &HashSet<PathBuf>) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if !entry.file_type()?.is_dir() {
            if !files.contains(&path) {
                fs::remove_file(path)?;
            }
        } else if entry.file_name() != "target" {
            remove_others(&path, files)?;
        }
    }
    Ok(())
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds a line to a file.
pub fn append(file: &Path, line: &str) -> Result<(), String> {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file).map_err(text)?;
    writeln!(file, "{line}").map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_longer_tracked_vanish_and_what_was_built_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["src/kept.rs", "src/left.rs", "target/built"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        remove_others(folder.path(), &HashSet::from([at("src/kept.rs")])).unwrap();
        assert!(at("src/kept.rs").exists() && at("target/built").exists() && !at("src/left.rs").exists());
        remove_others(&at("missing"), &HashSet::new()).unwrap();
    }
}
