//! Pure: reads the last stage of a Dockerfile.

use std::collections::BTreeMap;

/// The last stage of a Dockerfile.
#[derive(Debug, Default, PartialEq)]
pub struct Stage {
    /// Name of the base image.
    pub base: String,
    /// Copied files: the path in the stage `build`, and the path in the image.
    pub copies: Vec<(String, String)>,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// User and group.
    pub user: String,
    /// The entry point: command and arguments.
    pub entrypoint: Vec<String>,
}

impl Stage {
    /// Reads the last stage, with these values for the build arguments that it declares.
    ///
    /// # Errors
    ///
    /// A sentence about the first instruction that is not supported. Only the instructions of this project's Dockerfile
    /// are, in the form that it uses.
    pub fn parse(dockerfile: &str, build_arguments: &[(&str, &str)]) -> Result<Self, String> {
        let text = dockerfile.replace("\\\n", " ");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let begin = lines.iter().rposition(|line| line.starts_with("FROM ")).ok_or("it has no FROM")?;
        let mut stage = Self::default();
        let mut variables = BTreeMap::new();
        for line in lines.into_iter().skip(begin).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            stage
                .add(line, &mut variables, build_arguments)
                .map_err(|reason| format!("{reason}, in its last stage: {line}"))?;
        }
        Ok(stage)
    }

    fn add(
        &mut self,
        line: &str,
        variables: &mut BTreeMap<String, String>,
        build_arguments: &[(&str, &str)],
    ) -> Result<(), String> {
        let (instruction, rest) = line.split_once(' ').unwrap_or((line, ""));
        // The only instruction with JSON quotes and without variables.
        if instruction == "ENTRYPOINT" {
            self.entrypoint =
                serde_json::from_str(rest).map_err(|_| "expected an ENTRYPOINT of the form [\"/path\"]")?;
            return Ok(());
        }
        let words = words(rest, variables)?;
        match (instruction, words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()) {
            ("FROM", [base]) => (*base).clone_into(&mut self.base),
            ("ARG", [declaration]) => {
                let (name, default) = declaration.split_once('=').ok_or("expected a default value")?;
                let given = build_arguments.iter().find(|(given, _)| *given == name);
                variables.insert(name.to_owned(), given.map_or(default, |(_, value)| value).to_owned());
            }
            ("LABEL", labels) => {
                for label in labels {
                    let (name, value) = label.split_once('=').ok_or("expected labels of the form name=\"value\"")?;
                    self.labels.insert(name.to_owned(), value.to_owned());
                }
            }
            ("COPY", ["--from=build", from, to]) if to.starts_with('/') && !to.ends_with('/') => {
                self.copies.push(((*from).to_owned(), (*to).to_owned()));
            }
            ("USER", [user]) => (*user).clone_into(&mut self.user),
            _ => return Err("an instruction that is not supported".to_owned()),
        }
        Ok(())
    }
}

/// Splits an instruction into words: double quotes keep spaces, and `$NAME` is a build argument.
fn words(text: &str, variables: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '$' => {
                let mut name = String::new();
                while let Some(letter) = rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
                    name.push(letter);
                }
                let value = variables.get(&name).ok_or_else(|| format!("${name} is no build argument"))?;
                word.get_or_insert_default().push_str(value);
            }
            '\\' | '\'' => return Err(format!("{next} is not supported")),
            space if space.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    if is_quoted {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: &str = "ARG BASE=debian\nFROM $BASE AS build\nRUN make 'all'\n\nFROM scratch\nARG A=1\nARG B=two\n# LABEL c=d\n\
                         LABEL a=\"$A\" \\\n      b=\"x $B\" c=y\nCOPY --from=build /a /b/c\nUSER 1:2\nENTRYPOINT [\"/b/c\", \"$A\"]\n";

    #[test]
    fn the_last_stage_is_read() {
        let labels =
            |a: &str| [("a", a), ("b", "x two"), ("c", "y")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (arguments, a) in [([].as_slice(), "1"), (&[("A", "3"), ("C", "4")], "3")] {
            let expected = Stage {
                base: "scratch".to_owned(),
                copies: vec![("/a".to_owned(), "/b/c".to_owned())],
                labels: labels(a).into(),
                user: "1:2".to_owned(),
                entrypoint: vec!["/b/c".to_owned(), "$A".to_owned()],
            };
            assert_eq!(Stage::parse(STAGE, arguments), Ok(expected), "{arguments:?}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let table = [
            ("RUN true", "an instruction that is not supported, in its last stage: RUN true"),
            ("WORKDIR /", "an instruction that is not supported, in its last stage: WORKDIR /"),
            ("COPY a /b", "an instruction that is not supported, in its last stage: COPY a /b"),
            (
                "COPY --from=build --chown=1 /a /b",
                "an instruction that is not supported, in its last stage: COPY --from=build",
            ),
            ("COPY --from=build /a /b/", "an instruction that is not supported"),
            ("COPY --from=build /a b", "an instruction that is not supported"),
            ("ENTRYPOINT /a", "expected an ENTRYPOINT of the form [\"/path\"], in its last stage: ENTRYPOINT /a"),
            ("ENTRYPOINT", "expected an ENTRYPOINT"),
            ("ARG A", "expected a default value, in its last stage: ARG A"),
            ("LABEL a", "expected labels of the form name=\"value\", in its last stage: LABEL a"),
            ("LABEL a=\"$C\"", "$C is no build argument, in its last stage"),
            ("LABEL a=\"${A}\"", "$ is no build argument"),
            ("LABEL a=\"b", "a quote is not closed"),
            ("LABEL a='b'", "' is not supported"),
            ("LABEL a=b\\ c", "\\ is not supported"),
        ];
        for (line, expected) in table {
            let refused = Stage::parse(&format!("FROM scratch\nARG A=1\n{line}\n"), &[]).unwrap_err();
            assert!(refused.starts_with(expected), "{line}: {refused}");
        }
        assert_eq!(Stage::parse("# nothing\n", &[]), Err("it has no FROM".to_owned()));
    }
}
