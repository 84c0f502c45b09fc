//! `completion bash`, `completion zsh`, `completion fish`: prints a script with which the shell completes flags,
//! commands and their options.

use super::{CommandOutput, USAGE_ERROR, bundle, check, config_lint, deletions, explain, is_help, plan, status};
use crate::app::options::commands::COMMANDS;
use crate::app::options::{FlagDefinition, Kind, PROGRAM, definitions};
use clap::{Arg, Command};
use std::ffi::OsString;

const WORD: &str = "completion";

/// Value name of flags whose value is a file name.
const PATH: &str = "PATH";

/// As [`PATH`], of options of commands.
const FILE: &str = "FILE";

const HELP: &str = "Prints a script with which the shell completes flags, commands and their options.\n\n\
                    Usage: vsphere-cloud-controller-manager completion bash|zsh|fish\n\n\
                    Examples:\n  source <(vsphere-cloud-controller-manager completion bash)\n  \
                    vsphere-cloud-controller-manager completion zsh > ~/.zfunc/_vsphere-cloud-controller-manager\n  \
                    vsphere-cloud-controller-manager completion fish | source\n";

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
            return CommandOutput::failure(&expected, USAGE_ERROR);
        }
    })
}

/// The commands with options of their own.
fn with_options() -> [Command; 7] {
    [
        status::command(),
        explain::command(),
        plan::command(),
        check::command(),
        deletions::command(),
        bundle::command(),
        config_lint::command(),
    ]
}

/// An option of a command.
struct CommandOption {
    long: String,
    short: Option<char>,
    help: String,
    /// Name of the value; `None` for an option without a value.
    value_name: Option<String>,
    /// The possible values; empty if any value is allowed.
    values: Vec<String>,
}

/// Returns the options of a command that its help shows, and `--help`.
fn options_of(command: &Command) -> Vec<CommandOption> {
    let shown = command.get_arguments().filter(|option| !option.is_hide_set());
    let options = shown.filter_map(|option| {
        let names = option.get_value_names().unwrap_or_default();
        let value_name = names.first().filter(|_| option.get_action().takes_values());
        Some(CommandOption {
            long: option.get_long()?.to_owned(),
            short: option.get_short(),
            help: option.get_help().map(ToString::to_string).unwrap_or_default(),
            value_name: value_name.map(ToString::to_string),
            values: values_of(option),
        })
    });
    let help = CommandOption {
        long: "help".to_owned(),
        short: Some('h'),
        help: "Print the help of the command".to_owned(),
        value_name: None,
        values: Vec::new(),
    };
    options.chain([help]).collect()
}

/// Returns the possible values of an option or of a positional argument.
fn values_of(argument: &Arg) -> Vec<String> {
    argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

/// Returns the words of the first positional argument, such as the subjects of `explain`; empty without any.
fn choices_of(command: &Command) -> Vec<String> {
    command.get_positionals().next().map(values_of).unwrap_or_default()
}

fn command_names() -> String {
    COMMANDS.map(|(name, _)| name).join(" ")
}

fn bash(flags: &[FlagDefinition]) -> String {
    let function = PROGRAM.replace('-', "_");
    let names: Vec<_> = flags.iter().map(|flag| format!("--{}", flag.name)).collect();
    let commands: String = with_options().iter().map(bash_case).collect();
    format!(
        "# bash completion for {PROGRAM}\n\
         _{function}() {{\n\
         \x20   local current=\"${{COMP_WORDS[COMP_CWORD]}}\" option=\"\" command=\"\" word\n\
         \x20   local options=\"\" choices=\"\" values=\"\"\n\
         \x20   COMPREPLY=()\n\
         \x20   if [ \"$COMP_CWORD\" -gt 1 ]; then\n\
         \x20       option=\"${{COMP_WORDS[COMP_CWORD - 1]}}\" command=\"${{COMP_WORDS[1]}}\"\n\
         \x20       # Bash makes three words of --output=json.\n\
         \x20       if [ \"$current\" = = ]; then\n\
         \x20           current=\"\"\n\
         \x20       elif [ \"$option\" = = ]; then\n\
         \x20           option=\"${{COMP_WORDS[COMP_CWORD - 2]}}\"\n\
         \x20       fi\n\
         \x20   fi\n\
         \x20   if [ \"$COMP_CWORD\" -gt 2 ]; then\n\
         \x20       # The flags of the daemon follow after --.\n\
         \x20       for word in \"${{COMP_WORDS[@]:2:COMP_CWORD-2}}\"; do [ \"$word\" = -- ] && command=\"\"; done\n\
         \x20   fi\n\
         \x20   case \"$command\" in\n\
         {commands}\
         \x20   esac\n\
         \x20   if [ -n \"$values\" ]; then\n\
         \x20       COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n\
         \x20       return\n\
         \x20   fi\n\
         \x20   if [ -n \"$options\" ]; then\n\
         \x20       if [ \"$COMP_CWORD\" -gt 2 ]; then\n\
         \x20           for word in \"${{COMP_WORDS[@]:2:COMP_CWORD-2}}\"; do\n\
         \x20               case \" $choices \" in *\" $word \"*) choices=\"\" ;; esac\n\
         \x20           done\n\
         \x20       fi\n\
         \x20       case \"$current\" in -*) choices=\"\" ;; esac\n\
         \x20       COMPREPLY=($(compgen -W \"${{choices:-$options}}\" -- \"$current\"))\n\
         \x20       return\n\
         \x20   fi\n\
         \x20   case \"$current\" in\n\
         \x20       -*) COMPREPLY=($(compgen -W \"{names}\" -- \"$current\")) ;;\n\
         \x20       *)\n\
         \x20           if [ \"$COMP_CWORD\" -eq 1 ]; then\n\
         \x20               COMPREPLY=($(compgen -W \"{words}\" -- \"$current\"))\n\
         \x20           elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"$command\" = {WORD} ]; then\n\
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

/// Returns the line about a command: its options, the words of its first argument, and the values of the option before
/// the cursor. After an option with any value, the shell completes file names.
fn bash_case(command: &Command) -> String {
    let options = options_of(command);
    let names: Vec<_> = options.iter().map(|option| format!("--{}", option.long)).collect();
    let mut values = String::new();
    let mut with_any_value = Vec::new();
    for option in options.iter().filter(|option| option.value_name.is_some()) {
        let short = option.short.map(|short| format!("-{short}|")).unwrap_or_default();
        let pattern = format!("{short}--{}", option.long);
        if option.values.is_empty() {
            with_any_value.push(pattern);
        } else {
            values += &format!("{pattern}) values=\"{}\" ;; ", option.values.join(" "));
        }
    }
    let name = command.get_name();
    let choices = choices_of(command).join(" ");
    if !with_any_value.is_empty() {
        values += &format!("{}) return ;; ", with_any_value.join("|"));
    }
    let values = if values.is_empty() { values } else { format!(" case \"$option\" in {values}esac") };
    format!("\x20       {name}) options=\"{}\"; choices=\"{choices}\";{values} ;;\n", names.join(" "))
}

fn zsh(flags: &[FlagDefinition]) -> String {
    let spec = |flag: &FlagDefinition| {
        let repeated = if flag.kind.is_list() { "*" } else { "" };
        let help = zsh_quoted(flag.help);
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
    let commands: String = with_options().iter().map(zsh_case).collect();
    format!(
        "#compdef {PROGRAM}\n\n{}_arguments -S \\\n{}    '1:command:({})' \\\n    '2:shell:(bash zsh fish)'\n",
        commands,
        specs.concat(),
        command_names()
    )
}

/// Escapes the characters that delimit a text in the script: brackets, colons and single quotes.
fn zsh_quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    text.replace('\'', "'\\''")
}

/// Returns the line about a command. The first argument of `_arguments` is the command itself.
fn zsh_case(command: &Command) -> String {
    let mut specs = Vec::new();
    for CommandOption { long, short, help, value_name, values } in options_of(command) {
        let help = zsh_quoted(&help);
        let message = match value_name.as_deref() {
            None => String::new(),
            Some(FILE) => format!(":{FILE}:_files"),
            Some(name) if values.is_empty() => format!(":{name}: "),
            Some(name) => format!(":{name}:({})", values.join(" ")),
        };
        let [long_sign, short_sign] = if value_name.is_some() { ["=", "+"] } else { ["", ""] };
        specs.push(format!("'--{long}{long_sign}[{help}]{message}'"));
        specs.extend(short.map(|short| format!("'-{short}{short_sign}[{help}]{message}'")));
    }
    specs.push("'1:command: '".to_owned());
    for (number, argument) in (2..).zip(command.get_positionals().filter(|argument| !argument.is_last_set())) {
        let names = argument.get_value_names().unwrap_or_default();
        let name = names.first().map(ToString::to_string).unwrap_or_default();
        let values = values_of(argument);
        let action = match values.is_empty() {
            true if name == FILE => "_files".to_owned(),
            true => " ".to_owned(),
            false => format!("({})", values.join(" ")),
        };
        specs.push(format!("'{number}:{name}:{action}'"));
    }
    let name = command.get_name();
    format!("if [[ $words[2] == {name} ]]; then _arguments -S {}; return; fi\n", specs.join(" "))
}

fn fish(flags: &[FlagDefinition]) -> String {
    let no_command = format!("not __fish_seen_subcommand_from {}", command_names());
    let line = |flag: &FlagDefinition| {
        let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let value = match (flag.kind, flag.value_name) {
            (Kind::Help, _) => "",
            (Kind::Boolean, _) => " -f",
            (_, PATH) => " -r -F",
            _ => " -x",
        };
        let help = fish_quoted(flag.help);
        format!("complete -c {PROGRAM} -n '{no_command}'{short} -l {}{value} -d '{help}'\n", flag.name)
    };
    let mut words = format!("complete -c {PROGRAM} -n '__fish_seen_subcommand_from {WORD}' -f -a 'bash zsh fish'\n");
    for (name, summary) in COMMANDS {
        words += &format!("complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name} -d '{summary}'\n");
    }
    words += &with_options().iter().map(fish_lines).collect::<String>();
    words + &flags.iter().map(line).collect::<String>()
}

fn fish_quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

/// Returns the lines about a command: one for each option, and one for the words of its first argument.
fn fish_lines(command: &Command) -> String {
    let condition = format!("__fish_seen_subcommand_from {}", command.get_name());
    let mut lines = String::new();
    for CommandOption { long, short, help, value_name, values } in options_of(command) {
        let short = short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let value = match value_name.as_deref() {
            None => " -f".to_owned(),
            Some(FILE) => " -r -F".to_owned(),
            Some(_) if values.is_empty() => " -x".to_owned(),
            Some(_) => format!(" -x -a '{}'", values.join(" ")),
        };
        let help = fish_quoted(&help);
        lines += &format!("complete -c {PROGRAM} -n '{condition}'{short} -l {long}{value} -d '{help}'\n");
    }
    let choices = choices_of(command).join(" ");
    if !choices.is_empty() {
        let condition = format!("{condition}; and not __fish_seen_subcommand_from {choices}");
        lines += &format!("complete -c {PROGRAM} -n '{condition}' -f -a '{choices}'\n");
    }
    lines
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
                !["status)", "explain)", "plan)", "check)", "deletions)", "bundle)", "config-lint)", "if [["]
                    .iter()
                    .any(|start| line.trim_start().starts_with(start))
                    && ![
                        "from status'",
                        "from explain'",
                        "from plan'",
                        "from check'",
                        "from deletions'",
                        "from bundle'",
                        "from config-lint'",
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
    fn each_shell_completes_the_values_of_options_and_the_words_of_commands() {
        let subjects = "vcenter deletion node vm ip route service";
        let cases: [(&str, [String; 4]); 3] = [
            (
                "bash",
                [
                    "-o|--output) values=\"text json yaml\" ;;".to_owned(),
                    format!("choices=\"{subjects}\""),
                    "choices=\"list pause resume allow\"".to_owned(),
                    "|--kubeconfig|--cloud-config) return ;;".to_owned(),
                ],
            ),
            (
                "zsh",
                [
                    "'-o+[Form of the report]:FORM:(text json yaml)'".to_owned(),
                    format!("'2:SUBJECT:({subjects})' '3:NAME: '"),
                    "'2:ACTION:(list pause resume allow)' '3:NODE: '".to_owned(),
                    "selects --detached]:FILE:_files'".to_owned(),
                ],
            ),
            (
                "fish",
                [
                    "-s o -l output -x -a 'text json yaml'".to_owned(),
                    format!("-f -a '{subjects}'"),
                    "-f -a 'list pause resume allow'".to_owned(),
                    "-l cloud-config -r -F".to_owned(),
                ],
            ),
        ];
        for (shell, parts) in cases {
            let script = completion(&[shell]).output;
            for part in parts {
                assert!(script.contains(&part), "{shell}: {part} in {script}");
            }
        }
    }

    #[test]
    fn no_shell_completes_a_hidden_option() {
        let options = options_of(&bundle::command());
        assert!(options.iter().all(|option| option.long != "wait"));
        assert!(options.iter().any(|option| option.long == "timeout"));
    }

    #[test]
    fn other_arguments_are_refused() {
        for words in [&[][..], &["tcsh"], &["bash", "x"]] {
            let CommandOutput { output, messages, exit_code } = completion(words);
            let expected = "error: expected completion bash, completion zsh or completion fish\n";
            assert_eq!((output.as_str(), messages.as_str(), exit_code), ("", expected, 2), "{words:?}");
        }
        let behind_a_flag = [PROGRAM, "--v=2", WORD, "bash"].map(OsString::from);
        assert_eq!(subcommands::run(&behind_a_flag), None);
    }
}
