//! Scripts that let a shell complete the flags: `completion bash`, `completion zsh`, `completion fish`.

use super::Outcome;
use crate::app::options::{PROGRAM, command};
use clap::Arg;
use std::ffi::OsString;

/// The word that asks for a script.
const WORD: &str = "completion";

/// The script for a shell, of the flags that `--help` shows.
pub(super) fn run(arguments: &[OsString]) -> Outcome {
    let command = command();
    let flags: Vec<_> = command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Flag::of).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    Outcome::success(match words.as_slice() {
        ["bash"] => bash(&flags),
        ["zsh"] => zsh(&flags),
        ["fish"] => fish(&flags),
        _ => {
            let expected = format!("expected {WORD} bash, {WORD} zsh or {WORD} fish");
            return Outcome::failure(&format!("{expected}\nfor all flags: {PROGRAM} --help"), 1);
        }
    })
}

/// What a shell has to know of a flag.
struct Flag {
    name: String,
    short: Option<char>,
    help: String,
    value: Value,
    is_repeated: bool,
}

/// What may follow a flag.
enum Value {
    None,
    /// Only behind `=`, and it may be left out.
    Boolean,
    Path,
    /// Anything else; the word for it in the help.
    Text(String),
}

impl Flag {
    fn of(flag: &Arg) -> Option<Self> {
        let word = flag.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
        let takes_value = flag.get_action().takes_values();
        Some(Self {
            name: flag.get_long()?.to_owned(),
            short: flag.get_short(),
            help: flag.get_help().map(ToString::to_string).unwrap_or_default(),
            is_repeated: matches!(flag.get_action(), clap::ArgAction::Append),
            value: match word.as_deref() {
                Some(_) | None if !takes_value => Value::None,
                _ if flag.is_require_equals_set() => Value::Boolean,
                Some("PATH") => Value::Path,
                word => Value::Text(word.unwrap_or("VALUE").to_owned()),
            },
        })
    }
}

/// Names of flags only; behind a flag, names of files.
fn bash(flags: &[Flag]) -> String {
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

fn zsh(flags: &[Flag]) -> String {
    // Inside of single quotes, and of brackets or between colons there.
    let quoted = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
        text.replace('\'', "'\\''")
    };
    let spec = |flag: &Flag| {
        let repeated = if flag.is_repeated { "*" } else { "" };
        let help = quoted(&flag.help);
        let spec = |name: &str, sign: &str| match &flag.value {
            Value::None => format!("'{repeated}{name}[{help}]'"),
            Value::Boolean => format!("'{repeated}{name}=-[{help}]::BOOL:(true false)'"),
            Value::Path => format!("'{repeated}{name}{sign}[{help}]:PATH:_files'"),
            Value::Text(word) => format!("'{repeated}{name}{sign}[{help}]:{word}: '"),
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

fn fish(flags: &[Flag]) -> String {
    let line = |flag: &Flag| {
        let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let value = match &flag.value {
            Value::None => "",
            Value::Boolean => " -f",
            Value::Path => " -r -F",
            Value::Text(_) => " -x",
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

    fn completion(words: &[&str]) -> Outcome {
        let all = [PROGRAM, WORD].iter().chain(words).map(OsString::from);
        subcommands::run(&all.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_shell_has_a_script_that_names_every_flag_of_the_help_once() {
        for (shell, before) in [("bash", "--"), ("zsh", "'--"), ("fish", "-l ")] {
            let Outcome { output: script, exit_code, .. } = completion(&[shell]);
            assert_eq!(exit_code, 0, "{shell}");
            assert_eq!(script.replace("\\'", "").replace("'\\''", "").matches('\'').count() % 2, 0, "{shell}: quotes");
            for flag in options::command().get_arguments().filter(|flag| !flag.is_hide_set()) {
                let name = format!("{before}{}", flag.get_long().unwrap());
                let is_end = |rest: &str| !rest.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '-');
                let times = script.replace("'*--", "'--").split(&name).skip(1).filter(|rest| is_end(rest)).count();
                // Help texts of zsh and fish name other flags, without what stands before a definition.
                assert_eq!(times, 1, "{shell}: {name}");
            }
            assert!(!script.contains("node-sync-period"), "{shell}");
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        for words in [&[][..], &["tcsh"], &["bash", "x"]] {
            let Outcome { output, messages, exit_code } = completion(words);
            let expected = "error: expected completion bash, completion zsh or completion fish\nfor all flags: ";
            assert!(messages.starts_with(expected), "{messages}");
            assert_eq!((output.as_str(), exit_code), ("", 1), "{words:?}");
        }
        let behind_a_flag = [PROGRAM, "--v=2", WORD, "bash"].map(OsString::from);
        assert_eq!(subcommands::run(&behind_a_flag), None);
    }
}
