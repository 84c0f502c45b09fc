//! The list of all names that operators use. A change of the list affects dashboards, alerts, scripts and manifests.
//!
//! Each part is derived: flags and their variables from the definitions of the command line, and reasons from their
//! declarations. Series and labels come from the page that `tests/daemon/metrics.rs` compares with the running program.
//! All other names are texts of the product code with the form of such a name.

use crate::source::Source;
use std::collections::BTreeSet;

/// A form of names, the folders in which that form has another meaning (words of vCenter's protocols), and its check.
type Form = (&'static str, &'static [&'static str], fn(&str) -> bool);

const FORMS: [Form; 5] = [
    ("environment variables and cipher suites, and what they are made of", &[], is_variable),
    ("annotations, labels, taints and API groups", &[], is_key),
    ("words: Events, conditions, kinds, values of labels", &["src/clients/", "src/providers/"], is_camel),
    ("names: Leases, components, controllers, tasks, keys of files", &["src/clients/"], is_kebab),
    ("names in metrics, and values of labels", &["src/clients/", "src/providers/"], is_snake),
];

/// Whether the text has the form of `VSPHERE_USER` or `VCENTER_`.
fn is_variable(text: &str) -> bool {
    text.contains('_')
        && text.contains(char::is_alphabetic)
        && text.chars().all(|char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_')
}

/// Whether the text has the form of `node.kubernetes.io/out-of-service`.
fn is_key(text: &str) -> bool {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-._/".contains(char);
    text.chars().all(is_name)
        && text.split_once('/').is_some_and(|(domain, _)| domain.split('.').filter(|part| !part.is_empty()).count() > 1)
}

/// Whether the text has the form of `DeletingNode`.
fn is_camel(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_uppercase())
        && text.chars().all(|char| char.is_ascii_alphabetic())
        && text.contains(|char: char| char.is_ascii_lowercase())
}

/// Whether the text has the form of `cloud-node-controller` or `vsphere-ccm-logins-`.
fn is_kebab(text: &str) -> bool {
    text.contains('-')
        && text.starts_with(|char: char| char.is_ascii_lowercase())
        && text.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
}

/// Whether the text has the form of `accepted_soap`.
fn is_snake(text: &str) -> bool {
    text.contains('_')
        && text.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
        && text.contains(char::is_alphabetic)
}

fn of_form(sources: &[Source], (_, elsewhere, has_form): Form) -> BTreeSet<String> {
    let searched = sources.iter().filter(|source| !elsewhere.iter().any(|folder| source.path.starts_with(folder)));
    let literals = searched.flat_map(Source::literals);
    literals.filter(|literal| !literal.is_test && has_form(&literal.text)).map(|literal| literal.text).collect()
}

/// Returns lines `--name, -n VARIABLE = default`, including flags that the help omits.
fn flags() -> BTreeSet<String> {
    let command = ccm::app::options::command();
    let line = |flag: &clap::Arg| {
        let short = flag.get_short().map(|short| format!(", -{short}")).unwrap_or_default();
        let variable = flag.get_env().map(|name| format!(" {}", name.to_string_lossy())).unwrap_or_default();
        let default: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        format!("--{}{short}{variable} = {}", flag.get_long().unwrap_or_default(), default.join(","))
    };
    command.get_arguments().map(line).map(|line| line.trim_end().to_owned()).collect()
}

/// Returns lines `name{labels} type`, from the rows of the page with these three cells.
fn series(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
        let [name, kind @ ("counter" | "gauge" | "histogram"), labels, _] = cells[..] else { return None };
        Some(format!("{}{{{}}} {kind}", name.trim_matches('`'), labels.replace([' ', '`'], "")))
    });
    rows.collect()
}

fn list(sources: &[Source], metrics: &str) -> String {
    let reasons = crate::reasons::words(sources).into_iter().collect();
    let flags = flags();
    let is_flag = |name: &String| flags.iter().any(|flag| flag.starts_with(&format!("--{name} ")));
    let forms = FORMS.map(|form| (form.0, of_form(sources, form).into_iter().filter(|name| !is_flag(name)).collect()));
    let parts = [("flags and their variables", flags.clone()), ("series", series(metrics)), ("reasons", reasons)];
    let part = |(title, names): (&str, BTreeSet<String>)| {
        assert!(!names.is_empty(), "nothing was found: {title}");
        format!("# {title}\n{}\n", names.iter().map(|name| format!("{name}\n")).collect::<String>())
    };
    parts.into_iter().chain(forms).map(part).collect()
}

#[test]
fn the_names_that_operators_see_are_those_of_the_list() {
    super::assert_golden("tests/golden/public-names.txt", &list(&super::product(), &super::read("docs/metrics.md")));
}

#[test]
fn a_name_of_each_form_is_found() {
    let names = r#""CCM_X" "a.dev/b" "a.dev/" "DeletingNode" "logins-" "lease-a" "by_soap""#;
    let found = |path: &str, text: &str| {
        let source = [Source::new(path, text)];
        FORMS.map(|form| of_form(&source, form).into_iter().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(
        found("src/app/a.rs", &format!("const A: X = [{names}];")),
        ["CCM_X", "a.dev/ a.dev/b", "DeletingNode", "lease-a logins-", "by_soap"]
    );
    assert_eq!(found("src/clients/a.rs", names), ["CCM_X", "a.dev/ a.dev/b", "", "", ""]);
    assert_eq!(found("src/app/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{names}\n}}")), [""; 5]);
    assert_eq!(found("src/app/a.rs", r#""a b" "TRUE" "1-2" "/a" "http://a.b/c" "a/b""#), [""; 5]);
    let page = "| `a_total` | counter | `b`, `c` | Says. |\n| `d` | gauge |  | Says. |\n| `--flag` | x | y | z |\n";
    assert_eq!(series(page).into_iter().collect::<Vec<_>>(), ["a_total{b,c} counter", "d{} gauge"]);
}
