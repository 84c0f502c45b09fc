//! Blocks of commands on a page, and the shell that runs them.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::command::output;
use crate::components::Component;
use crate::file::copy_folder;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The text of a page.
///
/// # Panics
///
/// When there is no such page.
#[must_use]
pub fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

/// The headings of the second and third level that have blocks of commands, with those blocks.
#[must_use]
pub fn sections(page: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut heading = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            name.clone_into(&mut heading);
        } else if line.trim_start() == "```sh" {
            let indent = line.len() - line.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let block: String = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
            match found.last_mut().filter(|(last, _)| *last == heading) {
                Some((_, blocks)) => blocks.push(block),
                None => found.push((heading.clone(), vec![block])),
            }
        }
    }
    found
}

/// A folder with a copy of the manifests, and a shell in it with the tools of the test environment.
pub struct Shell {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
    blocks: Vec<(String, Vec<String>)>,
    /// What is replaced in the commands.
    names: Vec<(&'static str, String)>,
    /// The blocks that were run, by heading and number.
    pub ran: Vec<(&'static str, usize)>,
}

impl Shell {
    /// For the blocks of this page, with these names in place of those of the page.
    ///
    /// # Panics
    ///
    /// When the page or a tool is missing.
    #[must_use]
    pub fn new(kubeconfig: &Path, name: &str, names: Vec<(&'static str, String)>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("bin");
        std::fs::create_dir(&tools).unwrap();
        for (tool, component) in [("kubectl", Component::Kubectl), ("helm", Component::Helm), ("govc", Component::Govc)]
        {
            symlink(component.path(), tools.join(tool)).unwrap();
        }
        let blocks = sections(&page(name));
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&Path::new(ROOT).join("manifests"), &folder.path().join("manifests"));
        let kubeconfig = kubeconfig.to_owned();
        Self { folder, home, kubeconfig, blocks, names, ran: Vec::new() }
    }

    /// What `$EDITOR` does: replaces each expression of sed.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn set_editor(&self, edits: &[(String, String)]) {
        let path = self.home.path().join("bin/editor");
        let edits = edits.iter().map(|(from, to)| format!(" -e 's|{from}|{to}|'"));
        std::fs::write(&path, format!("#!/bin/sh\nexec sed -i{} \"$1\"\n", edits.collect::<String>())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A file in the folder where commands run.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs the block of this number below this heading; what it printed. The first command that fails ends it.
    ///
    /// # Panics
    ///
    /// When there is no such block, or a command fails: with the block, what it printed and its complaints.
    pub async fn run(&mut self, heading: &'static str, number: usize, input: &str) -> String {
        self.ran.push((heading, number));
        let text = self.text(heading, number, &[]);
        let (printed, errors) = self.bash(&["-euo", "pipefail", "-c", &text], input).await;
        printed.unwrap_or_else(|printed| panic!("{heading} {number}:\n{text}\n{printed}\n{errors}"))
    }

    /// Runs it as a reader's shell does, which goes on after a command that fails, with other names first; the complaint
    /// of the last command, which has to fail.
    ///
    /// # Panics
    ///
    /// When it succeeds.
    pub async fn fails(&self, heading: &str, number: usize, names: &[(&str, &str)]) -> String {
        let text = self.text(heading, number, names);
        let (printed, errors) = self.bash(&["-c", &text], "").await;
        assert!(printed.is_err(), "{text}\n{printed:?}\n{errors}");
        errors
    }

    fn text(&self, heading: &str, number: usize, names: &[(&str, &str)]) -> String {
        let (_, blocks) = self.blocks.iter().find(|(found, _)| found == heading).unwrap();
        let text = names.iter().fold(blocks[number].clone(), |text, (from, to)| text.replace(from, to));
        self.names.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }

    /// What it printed, as an error if it failed, and its complaints.
    async fn bash(&self, arguments: &[&str], input: &str) -> (Result<String, String>, String) {
        let home = self.home.path();
        let mut command = Command::new("bash");
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display()));
        command.env("HOME", home).env("KUBECONFIG", &self.kubeconfig).env("EDITOR", home.join("bin/editor"));
        let output = output(command, input).await;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (printed, errors) = (text(output.stdout), text(output.stderr));
        (if output.status.success() { Ok(printed) } else { Err(printed) }, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_below_their_headings_and_lose_their_indent() {
        let page = "# P\n```sh\nfirst\n```\n## A\ntext\n```yaml\nno: command\n```\n1. item\n\n   ```sh\n   one\n     two\n   ```\n\
                    ### B\n```sh\nthree\n```\n```sh\nfour\n```\n";
        let expected = [("", vec!["first\n"]), ("A", vec!["one\n  two\n"]), ("B", vec!["three\n", "four\n"])];
        let found = sections(page);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((heading, blocks), (name, texts)) in found.iter().zip(expected) {
            assert_eq!((heading.as_str(), blocks.iter().map(String::as_str).collect::<Vec<_>>()), (name, texts));
        }
    }
}
