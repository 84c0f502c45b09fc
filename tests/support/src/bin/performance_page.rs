//! Writes a benchmark run into the pages with numbers: `docs/contribute/measurements.md`, which has all of them,
//! `docs/performance.md` and `README.md`.
//!
//! Usage: `performance-page [REPORT]`, the `report.json` of a run (or: `make performance-page`). Without a report, the
//! pages and plots are made again from the runs in `docs/performance/report.json`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use support::report::Run;
use support::report::page::Record;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match write(&root, std::env::args_os().nth(1).map(PathBuf::from)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the pages with measured numbers are not written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(root: &Path, report: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    let folder = root.join("docs/performance");
    let kept = folder.join("report.json");
    let mut record = if kept.exists() { read(&kept)? } else { Record::default() };
    if let Some(report) = report {
        record.add(read::<Run>(&report)?);
    }
    let mut pages = Vec::new();
    let all = root.join("docs/contribute/measurements.md");
    pages.push((record.page(&text(&all)?)?, all));
    for name in ["docs/performance.md", "README.md"] {
        let page = root.join(name);
        pages.push((record.page_for_users(&text(&page)?).map_err(|error| format!("{name}: {error}"))?, page));
    }
    std::fs::create_dir_all(&folder)?;
    for file in std::fs::read_dir(&folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            std::fs::remove_file(path)?;
        }
    }
    for picture in record.pictures() {
        std::fs::write(folder.join(picture.file), picture.svg)?;
    }
    std::fs::write(kept, record.json()?)?;
    for (text, page) in pages {
        std::fs::write(page, text)?;
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Box<dyn std::error::Error>> {
    Ok(serde_json::from_str(&text(path)?).map_err(|error| format!("{}: {error}", path.display()))?)
}
