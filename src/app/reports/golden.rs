//! Golden files of reports: the documents of `-o json`, whose fields scripts read. `UPDATE_GOLDEN=1 cargo test --lib
//! golden` writes the files again.

use super::explain::ExplainReport;
use super::{Verdict, document};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The page with a table of fields for each kind.
const PAGE: &str = include_str!("../../../docs/cli.md");

/// The heading of the tables.
const HEADING: &str = "\n## Fields of JSON and YAML\n";

/// The table of the fields that several kinds have.
const COMMON: &str = "Several kinds";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reports")
}

/// Compares the document of a report with the golden file of this name.
pub fn assert_golden(name: &str, kind: &str, verdict: Verdict, report: &impl Serialize) {
    let document = document(kind, verdict, serde_json::to_value(report).unwrap());
    let text = format!("{document:#}\n");
    let path = folder().join(format!("{name}.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, golden, "if this is meant, UPDATE_GOLDEN=1 writes {}", path.display());
}

/// Returns all golden documents by the names of their files.
pub fn documents() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
    };
    files.map(read).collect()
}

/// The fields of one kind by path, such as `sections[].facts[].text`, with whether a document has a value there.
type Fields = BTreeMap<String, bool>;

/// Adds the fields of a value at this path.
fn add_fields(value: &Value, path: &str, fields: &mut Fields) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let is_empty = match member {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(members) => members.is_empty(),
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
                };
                *fields.entry(path.clone()).or_default() |= !is_empty;
                add_fields(member, &path, fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_fields(item, &format!("{path}[]"), fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the fields of each kind in all of its golden files.
fn fields_by_kind() -> BTreeMap<String, Fields> {
    let mut kinds: BTreeMap<String, Fields> = BTreeMap::new();
    for document in documents().values() {
        let kind = document["kind"].as_str().unwrap().to_owned();
        add_fields(document, "", kinds.entry(kind).or_default());
    }
    kinds
}

/// Returns the paths that this one with alternatives in braces means: `a.{b,c}` is `a.b` and `a.c`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (inside, after) = rest.split_once('}').unwrap_or_else(|| panic!("{path} has no closing brace"));
    inside.split(',').flat_map(|one| alternatives(&format!("{before}{one}{after}"))).collect()
}

/// Returns the paths in the first column of the table below this heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let (_, tables) = PAGE.split_once(HEADING).expect("the page has the tables");
    let tables = tables.split("\n## ").next().unwrap();
    let table = tables.split("\n### ").find(|table| table.starts_with(&format!("{heading}\n")));
    let rows = table.unwrap_or_else(|| panic!("docs/cli.md has no fields of {heading}")).lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| `")?.split(" |").next());
    let paths = cells.flat_map(|cell| cell.split('`').step_by(2));
    paths.flat_map(alternatives).collect()
}

#[test]
fn each_field_of_each_kind_has_a_value_in_a_golden_file() {
    let kinds = fields_by_kind();
    let expected = ["BundleManifest", "CheckReport", "Deletions", "Explanation", "Plan", "Status"];
    assert_eq!(kinds.keys().collect::<Vec<_>>(), expected);
    for (kind, fields) in kinds {
        let empty: Vec<_> = fields.iter().filter(|(_, is_filled)| !**is_filled).map(|(path, _)| path).collect();
        assert_eq!(empty, [""; 0], "{kind}: no golden file has a value of these fields");
    }
}

#[test]
fn each_subject_of_explain_has_a_golden_file() {
    let documents = documents();
    for subject in ["node", "deletion", "vm", "ip", "vcenter", "service", "route"] {
        let document = &documents[&format!("explain-{subject}")];
        assert_eq!(document["kind"], ExplainReport::KIND, "{subject}");
    }
}

#[test]
fn the_page_has_each_field_of_the_golden_files_and_no_other() {
    let common = documented(COMMON);
    let mut used = BTreeSet::new();
    for (kind, fields) in fields_by_kind() {
        let own = documented(&format!("`{kind}`"));
        // The row of a member explains the object or list that has it, too.
        let is_part =
            |path: &str| own.iter().any(|row| row.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '['])));
        let is_documented = |path: &&String| own.contains(*path) || common.contains(*path) || is_part(path);
        let missing: Vec<_> = fields.keys().filter(|path| !is_documented(path)).collect();
        assert_eq!(missing, [""; 0], "docs/cli.md lacks these fields of {kind}");
        let unknown: Vec<_> = own.iter().filter(|path| !fields.contains_key(*path)).collect();
        assert_eq!(unknown, [""; 0], "docs/cli.md has fields that {kind} does not have");
        used.extend(fields.into_keys());
    }
    assert!(common.is_subset(&used), "no kind has {:?}", common.difference(&used));
}

#[test]
fn the_fields_of_a_document_are_paths_and_a_field_without_a_value_is_noticed() {
    let document = serde_json::json!({"a": [{"b": null}, {"b": "x"}], "c": {"d": []}, "e": 0});
    let mut fields = Fields::new();
    add_fields(&document, "", &mut fields);
    let expected = [("a", true), ("a[].b", true), ("c", true), ("c.d", false), ("e", true)];
    assert_eq!(fields, expected.map(|(path, is_filled)| (path.to_owned(), is_filled)).into());
    assert_eq!(alternatives("{a,b}[].{c,d}"), ["a[].c", "a[].d", "b[].c", "b[].d"]);
}
