//! `docs/configuration.md`: its examples are read, and it names every key and every variable.

use super::super::environment::variables;
use super::super::fields::known_keys;
use super::*;

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_is_read_without_a_mistake_or_an_oddity() {
    let page = page();
    // The others are objects of Kubernetes.
    let is_object = |text: &String| text.starts_with("apiVersion: ");
    let (objects, yaml): (Vec<_>, Vec<_>) = blocks(&page, "yaml").into_iter().partition(is_object);
    let ini = blocks(&page, "ini");
    assert!(!objects.is_empty() && ini.len() >= 3 && yaml.len() >= 2, "{} and {}", ini.len(), yaml.len());
    for text in ini.iter().chain(&yaml) {
        match parse(text, "example") {
            Ok(parsed) => assert!(parsed.warnings.is_empty(), "{text}\n{:?}", parsed.warnings),
            Err(errors) => panic!("{text}\n{errors}"),
        }
    }
    let settings = |text: &str| format!("{:?}", config("first example", text));
    assert_eq!(settings(&ini[0]), settings(&yaml[0]), "the first example of either dialect says the same");
}

#[test]
fn the_page_names_every_key_and_every_variable() {
    let page = page();
    for key in known_keys() {
        let camel = dialects::camel_case(key);
        assert!(page.contains(&format!("`{key}`")) && page.contains(&format!("`{camel}`")), "{key} or {camel}");
    }
    for variable in variables() {
        assert!(page.contains(&format!("`{variable}`")), "{variable}");
    }
}
