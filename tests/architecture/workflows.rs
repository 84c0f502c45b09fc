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
        ("make release-ready TAG=v1", true),
        ("make nothing", false),
        ("make TAG", false),
        ("curl example.com", false),
    ] {
        assert_eq!(is_known(command, &makefile), is_one, "{command}");
    }
}
