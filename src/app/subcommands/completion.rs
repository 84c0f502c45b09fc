//! `completion bash`, `completion zsh`, `completion fish`: prints a script with which the shell completes flags,
//! commands and their options.

use super::{CommandOutput, bundle, check, deletions, explain, is_help, plan, status};
use crate::app::options::commands::COMMANDS;
use crate::app::options::{FlagDefinition, Kind, PROGRAM, definitions};
use clap::Command;
use std::ffi::OsString;

const WORD: &str = "completion";

/// Value name of flags whose value is a file name.
const PATH: &str = "PATH";

const HELP: &str = "Prints a script with which the shell completes flags, commands and their options.\n\n\
                    Usage: vsphere-cloud-controller-manager completion bash|zsh|fish\n\n\
                    Examples:\n  source <(vsphere-cloud-controller-manager completion bash)\n";

/// Returns the script for a shell. The script omits deprecated flags, as `--help` does.
pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    if is_help(arguments) {
        return CommandOutput::success(HELP.to_owned());
    }
    let flags: Vec<_> = definitions().into_iter().filter(|flag| flag.deprecated.is_none()).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    CommandOutput::success(match words.as_slice() {
        ["bash"] => bash(&flags),
        ["zsh"] => zsh(&flags),
        ["fish"] => fish(&flags),
        _ => {
            let expected = format!("expected {WORD} bash, {WORD} zsh or {WORD} fish");
            return CommandOutput::failure(&format!("{expected}\nfor all flags: {PROGRAM} --help"), 1);
        }
    })
}

/// The commands with options of their own.
fn with_options() -> [Command; 6] {
    [status::command(), explain::command(), plan::command(), check::command(), deletions::command(), bundle::command()]
}

/// Returns the long names of a command's options, each with its help text.
fn options_of(command: &Command) -> Vec<(String, String)> {
    let options = command.get_arguments().filter_map(|option| {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        Some((option.get_long()?.to_owned(), help))
    });
    options.chain([("help".to_owned(), "Print the help of the command".to_owned())]).collect()
}

fn command_names() -> String {
    COMMANDS.map(|(name, _)| name).join(" ")
}

fn bash(flags: &[FlagDefinition]) -> String {
    let function = PROGRAM.replace('-', "_");
    let names: Vec<_> = flags.iter().map(|flag| format!("--{}", flag.name)).collect();
    let of_command = |command: &Command| {
        let options: Vec<_> = options_of(command).into_iter().map(|(name, _)| format!("--{name}")).collect();
        let name = command.get_name();
        format!("\x20       {name}) COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return ;;\n", options.join(" "))
    };
    let commands: String = with_options().iter().map(of_command).collect();
    format!(
        "# bash completion for {PROGRAM}\n\
         _{function}() {{\n\
         \x20   local current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n\
         \x20   COMPREPLY=()\n\
         \x20   [ \"$COMP_CWORD\" -gt 1 ] && case \"${{COMP_WORDS[1]}}\" in\n\
         {commands}\
         \x20   esac\n\
         \x20   case \"$current\" in\n\
         \x20       -*) COMPREPLY=($(compgen -W \"{names}\" -- \"$current\")) ;;\n\
         \x20       *)\n\
         \x20           if [ \"$COMP_CWORD\" -eq 1 ]; then\n\
         \x20               COMPREPLY=($(compgen -W \"{words}\" -- \"$current\"))\n\
         \x20           elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"${{COMP_WORDS[1]}}\" = {WORD} ]; then\n\
         \x20               COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$current\"))\n\
         \x20           fi\n\
         \x20           ;;\n\
         \x20   esac\n\
         }}\n\
         complete -o default -F _{function} {PROGRAM}\n",
        names = names.join(" "),
        words = command_names(),
    )
}

fn zsh(flags: &[FlagDefinition]) -> String {
    // Escapes the characters that delimit a text in the script: brackets, colons and single quotes.
    let quoted = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
        text.replace('\'', "'\\''")
    };
    let spec = |flag: &FlagDefinition| {
        let repeated = if flag.kind.is_list() { "*" } else { "" };
        let help = quoted(flag.help);
        let spec = |name: &str, sign: &str| match (flag.kind, flag.value_name) {
            (Kind::Help, _) => format!("'{repeated}{name}[{help}]'"),
            (Kind::Boolean, _) => format!("'{repeated}{name}=-[{help}]::BOOL:(true false)'"),
            (_, PATH) => format!("'{repeated}{name}{sign}[{help}]:PATH:_files'"),
            (_, word) => format!("'{repeated}{name}{sign}[{help}]:{word}: '"),
        };
        let mut specs = vec![spec(&format!("--{}", flag.name), "=")];
        specs.extend(flag.short.map(|short| spec(&format!("-{short}"), "+")));
        specs
    };
    let specs: Vec<_> = flags.iter().flat_map(spec).map(|spec| format!("    {spec} \\\n")).collect();
    let of_command = |command: &Command| {
        let option = |(name, help): (String, String)| format!("'--{name}[{}]'", quoted(&help));
        let options: Vec<_> = options_of(command).into_iter().map(option).collect();
        let name = command.get_name();
        format!("if [[ $words[2] == {name} ]]; then _arguments {}; return; fi\n", options.join(" "))
    };
    let commands: String = with_options().iter().map(of_command).collect();
    format!(
        "#compdef {PROGRAM}\n\n{}_arguments -S \\\n{}    '1:command:({})' \\\n    '2:shell:(bash zsh fish)'\n",
        commands,
        specs.concat(),
        command_names()
    )
}

fn fish(flags: &[FlagDefinition]) -> String {
    let line = |flag: &FlagDefinition| {
        let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let value = match (flag.kind, flag.value_name) {
            (Kind::Help, _) => "",
            (Kind::Boolean, _) => " -f",
            (_, PATH) => " -r -F",
            _ => " -x",
        };
        let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
        format!("complete -c {PROGRAM}{short} -l {}{value} -d '{help}'\n", flag.name)
    };
    let mut words = format!("complete -c {PROGRAM} -n '__fish_seen_subcommand_from {WORD}' -f -a 'bash zsh fish'\n");
    for (name, summary) in COMMANDS {
        words += &format!("complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name} -d '{summary}'\n");
    }
    for command in with_options() {
        let condition = format!("__fish_seen_subcommand_from {}", command.get_name());
        for (name, help) in options_of(&command) {
            let help = help.replace('\'', "\\'");
            words += &format!("complete -c {PROGRAM} -n '{condition}' -f -a --{name} -d '{help}'\n");
        }
    }
    words + &flags.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::options;
    use crate::app::subcommands;

    fn completion(words: &[&str]) -> CommandOutput {
        let all = [PROGRAM, WORD].iter().chain(words).map(OsString::from);
        subcommands::run(&all.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_shell_has_a_script_that_names_every_flag_of_the_help_once() {
        for (shell, before) in [("bash", "--"), ("zsh", "'--"), ("fish", "-l ")] {
            let CommandOutput { output: script, exit_code, .. } = completion(&[shell]);
            assert_eq!(exit_code, 0, "{shell}");
            assert_eq!(script.replace("\\'", "").replace("'\\''", "").matches('\'').count() % 2, 0, "{shell}: quotes");
            // Options of commands may have the name of a flag.
            let is_of_flags = |line: &&str| {
                !["status)", "explain)", "plan)", "check)", "deletions)", "bundle)", "if [["]
                    .iter()
                    .any(|start| line.trim_start().starts_with(start))
                    && ![
                        "from status'",
                        "from explain'",
                        "from plan'",
                        "from check'",
                        "from deletions'",
                        "from bundle'",
                    ]
                    .iter()
                    .any(|part| line.contains(part))
            };
            let script: String = script.lines().filter(is_of_flags).collect();
            for flag in options::command().get_arguments().filter(|flag| !flag.is_hide_set()) {
                let name = format!("{before}{}", flag.get_long().unwrap());
                let is_end = |rest: &str| !rest.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '-');
                let times = script.replace("'*--", "'--").split(&name).skip(1).filter(|rest| is_end(rest)).count();
                // The help texts for zsh and fish also mention other flags, but without the prefix of a definition.
                assert_eq!(times, 1, "{shell}: {name}");
            }
            assert!(!script.contains("node-sync-period"), "{shell}");
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        for words in [&[][..], &["tcsh"], &["bash", "x"]] {
            let CommandOutput { output, messages, exit_code } = completion(words);
            let expected = "error: expected completion bash, completion zsh or completion fish\nfor all flags: ";
            assert!(messages.starts_with(expected), "{messages}");
            assert_eq!((output.as_str(), exit_code), ("", 1), "{words:?}");
        }
        let behind_a_flag = [PROGRAM, "--v=2", WORD, "bash"].map(OsString::from);
        assert_eq!(subcommands::run(&behind_a_flag), None);
    }
}
