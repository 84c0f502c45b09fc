//! `completion bash`, `completion zsh`, `completion fish`: prints a script with which the shell completes flags.

use super::CommandOutput;
use crate::app::options::{FlagDefinition, Kind, PROGRAM, definitions};
use std::ffi::OsString;

const WORD: &str = "completion";

/// Value name of flags whose value is a file name.
const PATH: &str = "PATH";

/// Returns the script for a shell. The script omits deprecated flags, as `--help` does.
pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
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

fn bash(flags: &[FlagDefinition]) -> String {
    let function = PROGRAM.replace('-', "_");
    let names: Vec<_> = flags.iter().map(|flag| format!("--{}", flag.name)).collect();
    format!(
        "# bash completion for {PROGRAM}\n\
         _{function}() {{\n\
         \x20   local current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n\
         \x20   COMPREPLY=()\n\
         \x20   case \"$current\" in\n\
         \x20       -*) COMPREPLY=($(compgen -W \"{names}\" -- \"$current\")) ;;\n\
         \x20       *)\n\
         \x20           if [ \"$COMP_CWORD\" -eq 1 ]; then\n\
         \x20               COMPREPLY=($(compgen -W \"{WORD}\" -- \"$current\"))\n\
         \x20           elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"${{COMP_WORDS[1]}}\" = {WORD} ]; then\n\
         \x20               COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$current\"))\n\
         \x20           fi\n\
         \x20           ;;\n\
         \x20   esac\n\
         }}\n\
         complete -o default -F _{function} {PROGRAM}\n",
        names = names.join(" "),
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
    format!(
        "#compdef {PROGRAM}\n\n_arguments -S \\\n{}    '1:command:({WORD})' \\\n    '2:shell:(bash zsh fish)'\n",
        specs.concat()
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
    let words = format!(
        "complete -c {PROGRAM} -n __fish_use_subcommand -f -a {WORD} -d 'Print a script for a shell'\n\
         complete -c {PROGRAM} -n '__fish_seen_subcommand_from {WORD}' -f -a 'bash zsh fish'\n"
    );
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
