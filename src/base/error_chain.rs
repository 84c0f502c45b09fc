//! Pure: an error and its sources, as an iterator or as one line of text.

/// Returns the sources of an error, outermost first.
pub fn sources(error: &dyn std::error::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |source| source.source())
}

/// Joins the error and its sources, outermost first. Skips a source if the joined text already ends with the text of
/// that source.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for source in sources(error) {
        let source = source.to_string();
        if !text.ends_with(&source) {
            text.push_str(": ");
            text.push_str(&source);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, rest) = texts.split_first().unwrap();
        Layer { text, source: (!rest.is_empty()).then(|| Box::new(layers(rest))) }
    }

    #[test]
    fn a_chain_is_one_line_without_repetition() {
        let cases: [(&str, &[&str], &str); 3] = [
            ("alone", &["a"], "a"),
            ("each once", &["reading x", "no such file"], "reading x: no such file"),
            ("repeated by the outer one", &["open: denied", "denied", "code 13"], "open: denied: code 13"),
        ];
        for (case, texts, expected) in cases {
            assert_eq!(chain(&layers(texts)), expected, "{case}");
        }
    }
}
