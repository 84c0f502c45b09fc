//! The workflows call the commands that people use: each step is a target of the Makefile, or installs a tool.

use super::{files_below, read, root};

/// Beginnings of other commands: CI itself, and the installation of a tool.
const OTHERS: [&str; 2] = [".ci/run", "cargo install "];

/// Returns the commands of a workflow's steps.
fn commands(workflow: &str) -> Vec<&str> {
    workflow.lines().filter_map(|line| line.trim_start().strip_prefix("- run: ")).collect()
}

/// Whether the command runs a target of this Makefile, or one of the other commands.
fn is_known(command: &str, makefile: &str) -> bool {
    let Some((_, rest)) =
        command.split_once("make ").filter(|(before, _)| before.is_empty() || before.starts_with("sudo"))
    else {
        return OTHERS.iter().any(|other| command.starts_with(other));
    };
    let target = rest.split(' ').next().unwrap_or_default();
    makefile.lines().any(|line| {
        let is_rule = !line.starts_with(['\t', '#', '.']) && !line.contains(":=");
        is_rule && line.split_once(':').is_some_and(|(targets, _)| targets.split(' ').any(|one| one == target))
    })
}

#[test]
fn each_step_of_a_workflow_is_a_target_of_the_makefile() {
    let makefile = read("Makefile");
    let workflows: Vec<String> = files_below(root(), ".github/workflows");
    assert!(workflows.len() > 2, "{workflows:?}");
    for path in workflows {
        let text = read(&path);
        let commands = commands(&text);
        assert!(!commands.is_empty(), "{path} runs nothing");
        for command in commands {
            assert!(is_known(command, &makefile), "{path}: {command}");
        }
    }
    for (command, is_one) in [
        ("make deny", true),
        ("sudo --preserve-env=PATH,HOME make node-test", true),
        ("make image IMAGE=a", true),
        ("make nothing", false),
        ("make TAG", false),
        ("curl example.com", false),
    ] {
        assert_eq!(is_known(command, &makefile), is_one, "{command}");
    }
}

/// A branch or a tag can contain characters of the shell, so it reaches a command as a variable of the environment.
#[test]
fn no_step_puts_the_name_of_a_branch_or_tag_into_a_command() {
    for path in files_below(root(), ".github/workflows") {
        let text = read(&path);
        let wrong: Vec<&str> = commands(&text).into_iter().filter(|command| command.contains("${{ github")).collect();
        assert!(wrong.is_empty(), "{path}: {wrong:?}");
    }
}

/// A tag of an action can be moved, and the steps of a release see credentials.
#[test]
fn the_release_uses_actions_of_fixed_commits() {
    let text = read(".github/workflows/release.yml");
    let actions: Vec<&str> = text.lines().filter_map(|line| line.trim_start().strip_prefix("- uses: ")).collect();
    assert!(actions.len() > 5, "{actions:?}");
    for action in actions {
        let commit = action.split_once('@').and_then(|(_, rest)| rest.split_once(" # v")).map(|(commit, _)| commit);
        let is_fixed = commit.is_some_and(|it| it.len() == 40 && it.chars().all(|char| char.is_ascii_hexdigit()));
        assert!(is_fixed, "{action}: expected a commit, and the version as a comment");
    }
}

#[test]
fn another_tag_ends_the_release_and_is_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for tag in [format!("v0\"; touch {0}; \"", file.display()), format!("v0`touch {0}`", file.display())] {
        let mut make = std::process::Command::new("make");
        let output = make.args(["release-ready"]).env("TAG", &tag).current_dir(root()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains("is not the version of Cargo.toml"), "{printed}");
        assert!(!file.exists(), "{tag}");
    }
}

#[test]
fn the_provenance_of_the_image_has_its_name_without_a_tag_and_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image-digest"), "sha256:abc").unwrap();
    let output = folder.path().join("output");
    let mut make = std::process::Command::new("make");
    make.args(["image-subject", "RELEASE_IMAGE=registry.test:5000/ccm:v1.2.3", "VERSION=1.2.3"]);
    make.arg(format!("TARGET={}", folder.path().display())).env("GITHUB_OUTPUT", &output).current_dir(root());
    assert!(make.status().unwrap().success());
    let written = std::fs::read_to_string(output).unwrap();
    assert_eq!(written, "name=registry.test:5000/ccm\ndigest=sha256:abc\n");
}
