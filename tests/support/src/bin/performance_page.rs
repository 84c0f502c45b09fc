//! Writes a benchmark run into `docs/performance.md`.
//!
//! Usage: `performance-page [REPORT]`, the `report.json` of a run (or: `make performance-page`). Without a report, the
//! page and plots are made again from the runs in `docs/performance/report.json`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use support::report::Run;
use support::report::page::Record;

fn main() -> ExitCode {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    match write(&docs, std::env::args_os().nth(1).map(PathBuf::from)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("docs/performance.md is not written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(docs: &Path, report: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    let (page, folder) = (docs.join("performance.md"), docs.join("performance"));
    let kept = folder.join("report.json");
    let mut record = if kept.exists() { read(&kept)? } else { Record::default() };
    if let Some(report) = report {
        record.add(read::<Run>(&report)?);
    }
    let text = record.page(&std::fs::read_to_string(&page)?)?;
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
    std::fs::write(page, text)?;
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}
