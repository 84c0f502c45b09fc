//! Tests of `docs/configuration.md` and `docs/reference/environment.md`: the examples of the first are valid, and it lists
//! all keys; the second lists all variables.

use super::super::environment::variables;
use super::super::fields::known_keys;
use super::*;

/// Reads this page of `docs`.
fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Returns the code blocks in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_is_read_without_a_mistake_or_an_oddity() {
    let page = page("configuration.md");
    // The other YAML blocks are Kubernetes objects.
    let is_object = |text: &String| text.starts_with("apiVersion: ");
    let (objects, yaml): (Vec<_>, Vec<_>) = blocks(&page, "yaml").into_iter().partition(is_object);
    let ini = blocks(&page, "ini");
    // Both examples of load balancers need the connection of the example of NSX.
    let is_of_balancers = |text: &String| text.to_lowercase().trim_start_matches('[').starts_with("loadbalancer");
    let (ini_balancers, ini): (Vec<_>, Vec<_>) = ini.into_iter().partition(is_of_balancers);
    let (yaml_balancers, yaml): (Vec<_>, Vec<_>) = yaml.into_iter().partition(is_of_balancers);
    assert!(!objects.is_empty() && ini.len() >= 3 && yaml.len() >= 2, "{} and {}", ini.len(), yaml.len());
    for text in ini.iter().chain(&yaml) {
        match parse(text, "example") {
            Ok(parsed) => assert!(parsed.warnings.is_empty(), "{text}\n{:?}", parsed.warnings),
            Err(errors) => panic!("{text}\n{errors}"),
        }
    }
    let settings = |text: &str| format!("{:?}", config("first example", text));
    assert_eq!(settings(&ini[0]), settings(&yaml[0]), "the first example of either dialect says the same");
    let of_nsx = |blocks: &[String], section: &str| blocks.iter().find(|text| text.contains(section)).unwrap().clone();
    let (ini_nsx, yaml_nsx) = (of_nsx(&ini, "[NSXT]"), of_nsx(&yaml, "nsxt:"));
    assert_eq!(settings(&ini_nsx), settings(&yaml_nsx), "the example of NSX says the same in either dialect");
    let of_balancers = [&ini_balancers, &yaml_balancers].map(|blocks| {
        assert_eq!(blocks.len(), 1, "{blocks:?}");
        blocks[0].as_str()
    });
    let texts = [format!("{ini_nsx}\n{}", of_balancers[0]), format!("{yaml_nsx}{}", of_balancers[1])];
    for text in &texts {
        let parsed = parse(text, "example").unwrap();
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
        assert!(parsed.config.load_balancers.used().is_some(), "{text}");
    }
    assert_eq!(settings(&texts[0]), settings(&texts[1]), "the load balancers of either dialect are the same");
}

#[test]
fn the_pages_name_every_key_and_every_variable() {
    let page_of_keys = page("configuration.md");
    for key in known_keys() {
        let camel = dialects::camel_case(key);
        let named = [key, camel.as_str()].iter().all(|name| page_of_keys.contains(&format!("`{name}`")));
        assert!(named, "{key} or {camel}");
    }
    let page_of_variables = page("reference/environment.md");
    for variable in variables() {
        assert!(page_of_variables.contains(&format!("`{variable}`")), "{variable}");
    }
}
