//! The pages with measured numbers and the plots must match the stored runs exactly.
#![allow(clippy::unwrap_used, reason = "a file that is not there is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;

use support::report::page::Record;

#[test]
fn the_pages_are_made_of_the_runs_that_are_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let folder = root.join("docs/performance");
    let kept = read(&folder.join("report.json"));
    let record: Record = serde_json::from_str(&kept).unwrap();
    let hint = "`make performance-page` writes the pages; they are not edited between their marks";
    assert_eq!(record.json().unwrap(), kept, "{hint}");
    let page = read(&root.join("docs/contribute/measurements.md"));
    assert_eq!(record.page(&page).unwrap(), page, "{hint}");
    for name in ["docs/performance.md", "README.md"] {
        let page = read(&root.join(name));
        assert_eq!(record.page_for_users(&page).unwrap(), page, "{name}: {hint}");
    }

    let expected: BTreeMap<String, String> =
        record.pictures().into_iter().map(|picture| (picture.file, picture.svg)).collect();
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let svg = files.filter(|path| path.extension().is_some_and(|extension| extension == "svg"));
    let found: BTreeMap<String, String> =
        svg.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), read(&path))).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{hint}");
    assert!(found == expected, "{hint}");
    assert!(!expected.is_empty() && record.runs.iter().all(|run| !run.facts.date.is_empty()), "a run is kept");
}
