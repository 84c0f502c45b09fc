//! Plans as text: the requests that syncs make in each situation, in `tests/golden/plans`.
//!
//! The text shows requests and fields of NSX objects, and no types of the planner. A change of the planner shows as a
//! difference of the text. `UPDATE_GOLDEN=1 cargo test --lib golden` writes the files again.

mod nsx;
mod situations;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use nsx::Nsx;

/// A situation: the file of its plans, its title, and the events from which its plans follow.
type Situation = (&'static str, &'static str, fn(&mut Nsx));

#[test]
fn plans_are_those_of_the_golden_files() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plans"));
    let is_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (file, title, events) in situations::all() {
        let mut nsx = Nsx::default();
        events(&mut nsx);
        let text = files.entry(format!("{file}.txt")).or_default();
        writeln!(text, "# {title}\n{}", nsx.text()).unwrap();
    }
    if is_update {
        std::fs::create_dir_all(folder).unwrap();
        for (file, text) in &files {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }
    let mut wrong = Vec::new();
    for (file, text) in &files {
        let expected = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let first = text.lines().zip(expected.lines()).position(|(line, expected)| line != expected);
        if *text != expected {
            wrong.push(format!("{file} from line {}", first.unwrap_or_else(|| expected.lines().count()) + 1));
        }
    }
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        if !files.contains_key(&file) {
            wrong.push(format!("{file} has no situation"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\nif this is meant, UPDATE_GOLDEN=1 writes the files in {}", folder.display());
}
