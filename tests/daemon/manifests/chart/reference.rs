//! The reference of the values: `README.md` of the chart and the descriptions in its schema are generated from the
//! comments in `values.yaml`.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};
use support::pages::page;

use super::super::kustomize::objects;
use super::{ALL, CONFIG, GO_VALUES, config, leaves, monitoring, settings, workload};

const VALUES: &str = "manifests/helm/vsphere-cpi/values.yaml";
const SCHEMA: &str = "manifests/helm/vsphere-cpi/values.schema.json";
const README: &str = "manifests/helm/vsphere-cpi/README.md";

/// Values of upstream's chart that are not in its `values.yaml`, or that its templates only read.
const ALSO_UPSTREAMS: [&str; 5] =
    ["daemonset.image", "daemonset.tag", "daemonset.nodeSelector", "daemonset.extraVolumeMounts", "nameOverride"];

/// Values that have a schema but no default. They have no effect, or Helm and parent charts set them.
const WITHOUT_DEFAULT: [&str; 5] = ["enabled", "fullnameOverride", "daemonset.fullnameOverride", "service", "ingress"];

/// The page without the tables.
const HEAD: &str = "# vsphere-cpi

The Helm chart of vsphere-cloud-controller-manager, which connects a Kubernetes cluster to vSphere. This page is for \
administrators who install or upgrade the program with Helm. The tables below have all values.

To install it with a Secret that you created, `vsphere-cloud-secret` in `kube-system`:

```sh
helm install vsphere-cpi manifests/helm/vsphere-cpi --namespace kube-system \\
  --set image.repository=registry.example.com/vsphere-cloud-controller-manager \\
  --set config.enabled=true --set config.vcenter=vcenter.example.com \\
  --set config.existingSecret=vsphere-cloud-secret \\
  --set config.thumbprint=\"${THUMBPRINT:?}\"
```

For the steps before and after this command, see [Helm](../../../docs/install/helm.md). For old values, required values \
and upgrades, see [Chart values](../../../docs/reference/chart.md).

The schema refuses values that do not exist or have the wrong type. \"New\" marks values that upstream's chart does \
not have.

<!-- The tables are generated from the comments in values.yaml: UPDATE_GOLDEN=1 cargo test --test daemon reference -->
";

/// A documented value.
struct Row {
    section: String,
    /// Path with dots.
    path: String,
    description: String,
}

/// Returns the rows of `values.yaml`. A comment belongs to the key below it, and to its keys if they have none.
fn rows(values: &str) -> Vec<Row> {
    let (mut rows, mut section, mut comment) = (Vec::<Row>::new(), String::new(), Vec::new());
    let mut path: Vec<(usize, &str)> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut section);
        } else if let Some(words) = text.strip_prefix("# ") {
            comment.push(words);
        } else if text.is_empty() {
            comment.clear();
        } else if let Some((key, rest)) = text.split_once(':').filter(|_| !text.starts_with("- ")) {
            let depth = line.len() - text.len();
            path.retain(|(other, _)| *other < depth);
            path.push((depth, key));
            let name = path.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
            let description = std::mem::take(&mut comment).join(" ");
            let is_covered = rows.iter().any(|row| name.starts_with(&format!("{}.", row.path)));
            if !description.is_empty() {
                rows.push(Row { section: section.clone(), path: name, description });
            } else if !is_covered && !rest.is_empty() {
                // Keys of a list item are deeper than the key of the list.
                panic!("{name} has no comment");
            }
        }
    }
    rows
}

fn at<'a>(values: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(values, |value, key| &value[key])
}

fn table(rows: &[Row], values: &Value) -> String {
    let mut text = HEAD.to_owned();
    let mut section = "";
    for row in rows {
        if row.section != section {
            section = &row.section;
            write!(text, "\n## {section}\n\n| value | default | description |\n|---|---|---|\n").unwrap();
        }
        let default = at(values, &row.path).to_string();
        let default = if default.len() > 60 { "see `values.yaml`".to_owned() } else { format!("`{default}`") };
        let description = row.description.replace('|', "\\|");
        writeln!(text, "| `{}` | {default} | {description} |", row.path).unwrap();
    }
    text
}

/// Returns the schema of this value, if it has one.
fn entry<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    if first == "config" {
        return entry_of(&mut schema["definitions"]["config"], rest?);
    }
    entry_of(schema, path)
}

fn entry_of<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let found = path.split('.').try_fold(schema, |schema, key| schema.get_mut("properties")?.get_mut(key))?;
    found.as_object_mut()
}

/// Compares a generated text with the file, or writes the file.
fn assert_golden(path: &str, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), text).unwrap();
    }
    assert!(page(path) == text, "if this is meant, UPDATE_GOLDEN=1 cargo test --test daemon reference writes {path}");
}

#[tokio::test]
async fn the_readme_and_the_schema_have_the_comments_of_the_values() {
    let text = page(VALUES);
    let (rows, values) = (rows(&text), objects(&text).await.remove(0));
    assert_golden(README, &table(&rows, &values));
    let mut schema: Value = serde_json::from_str(&page(SCHEMA)).unwrap();
    for row in &rows {
        let entry = entry(&mut schema, &row.path).unwrap_or_else(|| panic!("{} has no schema", row.path));
        entry.insert("description".to_owned(), row.description.clone().into());
    }
    assert_golden(SCHEMA, &(serde_json::to_string_pretty(&schema).unwrap() + "\n"));
}

#[tokio::test]
async fn each_value_has_a_schema_and_each_schema_a_value() {
    let values = leaves(&page(VALUES)).await;
    let mut schema: Value = serde_json::from_str(&page(SCHEMA)).unwrap();
    for path in values.keys().filter(|path| !path.starts_with(".daemonset.resources.") && !path.contains("Affinity")) {
        assert!(entry(&mut schema, path.trim_start_matches('.')).is_some(), "{path} has no schema");
    }
    let config = schema["definitions"]["config"].clone();
    schema["properties"]["config"] = config;
    let mut known = Vec::new();
    names("", &schema, &mut known);
    for path in known.iter().filter(|path| !WITHOUT_DEFAULT.contains(&path.as_str())) {
        let dotted = format!(".{path}");
        let is_value = values.keys().any(|value| *value == dotted || value.starts_with(&format!("{dotted}.")));
        // The keys of an empty map have no default.
        let is_inside =
            values.iter().any(|(value, empty)| empty.is_object() && dotted.starts_with(&format!("{value}.")));
        assert!(is_value || is_inside, "{path} has a schema and is not in values.yaml");
    }
}

/// Adds the paths of all properties.
fn names(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        names(&path, inner, found);
        found.push(path);
    }
}

#[tokio::test]
async fn new_values_are_marked_and_each_is_rendered_by_a_test() {
    let upstreams = leaves(GO_VALUES).await;
    let mut rendered = Vec::new();
    for values in [
        ALL,
        CONFIG,
        settings::ALL,
        config::ALL,
        workload::ALL,
        workload::DEPLOYMENT,
        monitoring::ALL,
        monitoring::POD_MONITOR,
    ] {
        rendered.extend(leaves(values).await.into_keys());
    }
    // Without config.enabled.
    rendered.push(".config.existingConfigMap".to_owned());
    for row in rows(&page(VALUES)) {
        let dotted = format!(".{}", row.path);
        let is = |path: &String| *path == dotted || path.starts_with(&format!("{dotted}."));
        let is_upstreams =
            upstreams.keys().any(is) || ALSO_UPSTREAMS.contains(&row.path.as_str()) || row.path == "global";
        assert_eq!(row.description.starts_with("New"), !is_upstreams, "{}", row.path);
        assert!(is_upstreams || rendered.iter().any(is), "{} is in no test", row.path);
    }
}

#[test]
#[should_panic(expected = "b.c has no comment")]
fn a_value_without_a_comment_is_noticed() {
    rows("# First.\na: 1\nb:\n  c: 2\n");
}
