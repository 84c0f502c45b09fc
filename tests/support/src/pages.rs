//! Command blocks of a documentation page, and the shell that runs them.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::command::output;
use crate::components::Component;
use crate::file::copy_folder;
use crate::sandbox::SNAPSHOTTER_VARIABLE;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the text of a page.
///
/// # Panics
///
/// If there is no such page.
#[must_use]
pub fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

/// The pages outside of `docs`.
const OTHERS: [&str; 5] =
    ["CONTRIBUTING.md", "README.md", "SECURITY.md", "manifests/README.md", "manifests/helm/vsphere-cpi/README.md"];

/// Returns the names of all pages, in order: those of the root and of `manifests`, and the files below `docs`.
///
/// # Panics
///
/// If a folder cannot be read.
#[must_use]
pub fn pages() -> Vec<String> {
    let mut found = OTHERS.map(str::to_owned).to_vec();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(Path::new(ROOT).join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Commands and their documented output.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// One or more shell lines.
    pub commands: String,
    /// The text block between these commands and the next ones.
    pub shown: Option<String>,
}

/// Returns the headings of the first three levels with their command blocks.
#[must_use]
pub fn sections(page: &str) -> Vec<(String, Vec<Block>)> {
    let mut found: Vec<(String, Vec<Block>)> = Vec::new();
    let mut heading = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = ["# ", "## ", "### "].iter().find_map(|mark| line.strip_prefix(mark)) {
            name.clone_into(&mut heading);
            continue;
        }
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let block: String = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        let blocks = found.last_mut().filter(|(last, _)| *last == heading).map(|(_, blocks)| blocks);
        match (language, blocks) {
            ("sh", Some(blocks)) => blocks.push(Block { commands: block, shown: None }),
            ("sh", None) => found.push((heading.clone(), vec![Block { commands: block, shown: None }])),
            ("text", Some(blocks)) => blocks.last_mut().unwrap().shown = Some(block),
            _ => {}
        }
    }
    found
}

/// Returns true if the output matches the page: the same words in the same lines. `…` alone on a line matches any
/// lines, elsewhere any text within its line.
#[must_use]
pub fn is_as_shown(shown: &str, printed: &str) -> bool {
    fn same(shown: &[&str], printed: &[&str]) -> bool {
        match (shown.split_first(), printed.split_first()) {
            (None, _) => printed.is_empty(),
            (Some((&"…", rest)), _) => (0..=printed.len()).any(|skipped| same(rest, &printed[skipped..])),
            (Some((line, rest)), Some((printed, more))) => is_line_as_shown(line, printed) && same(rest, more),
            (Some(_), None) => false,
        }
    }
    let lines = |text: &str| text.lines().map(words).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let (shown, printed) = (lines(shown), lines(printed));
    same(&shown.iter().map(String::as_str).collect::<Vec<_>>(), &printed.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the words of a line, separated by single spaces.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_line_as_shown(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once('…') else { return shown == printed };
    let (between, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    let Some(printed) = printed.strip_prefix(start).and_then(|printed| printed.strip_suffix(end)) else { return false };
    let mut left = printed;
    between.split('…').all(|part| match left.split_once(part) {
        Some((_, after)) => {
            left = after;
            true
        }
        None => false,
    })
}

/// A folder with a copy of the manifests, and a shell in it with the tools of the test environment.
pub struct Shell {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
    sections: Vec<(String, Vec<Block>)>,
    /// Names that are replaced in the commands.
    names: Vec<(&'static str, String)>,
    /// The blocks that were run, by heading and number.
    pub ran: Vec<(&'static str, usize)>,
}

impl Shell {
    /// Makes a shell for the blocks of these pages, with these names in place of those of the pages.
    ///
    /// # Panics
    ///
    /// If a page or a tool is missing, or two sections have the same heading.
    #[must_use]
    pub fn new(kubeconfig: &Path, pages: &[&str], names: Vec<(&'static str, String)>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("bin");
        std::fs::create_dir(&tools).unwrap();
        for (tool, component) in [("kubectl", Component::Kubectl), ("helm", Component::Helm), ("govc", Component::Govc)]
        {
            symlink(component.path(), tools.join(tool)).unwrap();
        }
        let sections: Vec<_> = pages.iter().flat_map(|name| sections(&page(name))).collect();
        let headings: BTreeSet<&str> = sections.iter().map(|(heading, _)| heading.as_str()).collect();
        assert_eq!(headings.len(), sections.len(), "headings of {pages:?}");
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&Path::new(ROOT).join("manifests"), &folder.path().join("manifests"));
        let kubeconfig = kubeconfig.to_owned();
        Self { folder, home, kubeconfig, sections, names, ran: Vec::new() }
    }

    /// Sets `$EDITOR` to a script that replaces each sed expression.
    ///
    /// # Panics
    ///
    /// If the script cannot be written.
    pub fn set_editor(&self, edits: &[(String, String)]) {
        let path = self.home.path().join("bin/editor");
        let edits = edits.iter().map(|(from, to)| format!(" -e 's|{from}|{to}|'"));
        std::fs::write(&path, format!("#!/bin/sh\nexec sed -i{} \"$1\"\n", edits.collect::<String>())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a file in the folder where commands run.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns the text of a file in the folder where commands run.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Runs the block with this number below this heading. Returns its output. The first command that fails ends it.
    ///
    /// # Panics
    ///
    /// If there is no such block, or a command fails. The message has the block, its output and its standard error.
    pub async fn run(&mut self, heading: &'static str, number: usize, input: &str) -> String {
        self.ran.push((heading, number));
        let text = self.text(heading, number, &[]);
        let (printed, errors) = self.bash(&["-euo", "pipefail", "-c", &text], input).await;
        printed.unwrap_or_else(|printed| panic!("{heading} {number}:\n{text}\n{printed}\n{errors}"))
    }

    /// Runs a block like an interactive shell, which continues after a failed command, with other names first. Returns
    /// the standard error of the last command, which must fail.
    ///
    /// # Panics
    ///
    /// If the last command succeeds.
    pub async fn fails(&self, heading: &str, number: usize, names: &[(&str, &str)]) -> String {
        let text = self.text(heading, number, names);
        let (printed, errors) = self.bash(&["-c", &text], "").await;
        assert!(printed.is_err(), "{text}\n{printed:?}\n{errors}");
        errors
    }

    /// Returns the number of the only block below this heading that contains this text.
    ///
    /// # Panics
    ///
    /// If there is none, or more than one.
    #[must_use]
    pub fn number_of(&self, heading: &str, text: &str) -> usize {
        let mut having = self.blocks(heading).iter().enumerate().filter(|(_, block)| block.commands.contains(text));
        match (having.next(), having.next()) {
            (Some((number, _)), None) => number,
            (first, _) => {
                panic!("{heading}: {} block has {text}", if first.is_some() { "more than one" } else { "no" })
            }
        }
    }

    /// Returns the documented output of a block, with the names of this shell.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    #[must_use]
    pub fn shown(&self, heading: &str, number: usize) -> Option<String> {
        self.blocks(heading)[number].shown.as_deref().map(|text| self.with_names(text))
    }

    /// Adds a program to the shell's path under this name.
    ///
    /// # Panics
    ///
    /// If the name exists already.
    pub fn link(&self, name: &str, program: &Path) {
        symlink(program, self.home.path().join("bin").join(name)).unwrap();
    }

    fn text(&self, heading: &str, number: usize, names: &[(&str, &str)]) -> String {
        let text = self.blocks(heading)[number].commands.clone();
        self.with_names(&names.iter().fold(text, |text, (from, to)| text.replace(from, to)))
    }

    fn blocks(&self, heading: &str) -> &[Block] {
        let section = self.sections.iter().find(|(found, _)| found == heading);
        &section.unwrap_or_else(|| panic!("no commands are below {heading}")).1
    }

    fn with_names(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Returns the output, as an error if the shell failed, and the standard error.
    async fn bash(&self, arguments: &[&str], input: &str) -> (Result<String, String>, String) {
        let home = self.home.path();
        let mut command = Command::new("bash");
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display()));
        command.env("HOME", home).env("KUBECONFIG", &self.kubeconfig).env("EDITOR", home.join("bin/editor"));
        if let Some(snapshotter) = std::env::var_os(SNAPSHOTTER_VARIABLE) {
            command.env(SNAPSHOTTER_VARIABLE, snapshotter);
        }
        let output = output(command, input).await;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (printed, errors) = (text(output.stdout), text(output.stderr));
        (if output.status.success() { Ok(printed) } else { Err(printed) }, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(commands: &str, shown: Option<&str>) -> Block {
        Block { commands: commands.to_owned(), shown: shown.map(str::to_owned) }
    }

    #[test]
    fn blocks_are_found_below_their_headings_and_lose_their_indent() {
        let page = "# P\n```text\nno output\n```\n```sh\nfirst\n```\n## A\ntext\n```text\nno output\n```\n```yaml\nno: command\n\
                    ```\n1. item\n\n   ```sh\n   one\n     two\n   ```\n\n   It prints:\n\n   ```text\n   1\n     2\n   ```\n\
                    ### B\n```sh\nthree\n```\n```sh\nfour\n```\n";
        let expected = [
            ("P", vec![block("first\n", None)]),
            ("A", vec![block("one\n  two\n", Some("1\n  2\n"))]),
            ("B", vec![block("three\n", None), block("four\n", None)]),
        ];
        assert_eq!(sections(page), expected.map(|(heading, blocks)| (heading.to_owned(), blocks)));
    }

    #[test]
    fn what_is_printed_is_as_shown_but_for_what_the_page_leaves_open() {
        let cases = [
            ("the same", "a b\nc\n", "a b\nc\n", true),
            ("other blanks", "a b\n  c\n", "a    b\n\nc\n", true),
            ("another word", "a b\n", "a c\n", false),
            ("a line more", "a\n", "a\nb\n", false),
            ("a line less", "a\nb\n", "a\n", false),
            ("any lines", "…\nb\n…\n", "a\nb\nc\nd\n", true),
            ("no lines", "…\nb\n…\n", "b\n", true),
            ("the line is not among them", "…\nb\n…\n", "a\nc\n", false),
            ("text open at the end", "id vsphere://4211-…\n", "id vsphere://4211-7e57\n", true),
            ("text open between", "a … b … c\n", "a 1 b 2 c\n", true),
            ("what is between differs", "a … b … c\n", "a 1 2 c\n", false),
            ("the end differs", "a … c\n", "a 1 d\n", false),
            ("start and end do not overlap", "ab…ba\n", "aba\n", false),
        ];
        for (name, shown, printed, expected) in cases {
            assert_eq!(is_as_shown(shown, printed), expected, "{name}");
        }
    }
}
