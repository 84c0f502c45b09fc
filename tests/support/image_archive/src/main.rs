//! `make image-archive`: writes the container image as an OCI archive.
//!
//! Usage: `image-archive IMAGE TARGET REVISION BINARY`: the name of the image, the build target, the commit (it may be
//! empty), and the binary. The archive is written next to the binary. The working directory must contain the
//! `Dockerfile`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use image_archive::{AUTHORITIES, Archive, BINARY, Reference, Stage, architecture};

fn main() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("no image archive was written: {message}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, target, revision, binary] = arguments.as_slice() else {
        return Err("usage: image-archive IMAGE TARGET REVISION BINARY (or: make image-archive)".to_owned());
    };
    let dockerfile = String::from_utf8(read("Dockerfile")?).map_err(|_| "Dockerfile: it is no text".to_owned())?;
    let build_arguments = [("REVISION", revision.as_str())];
    let build_arguments = if revision.is_empty() { &[] } else { build_arguments.as_slice() };
    let stage = Stage::parse(&dockerfile, build_arguments).map_err(|reason| format!("Dockerfile: {reason}"))?;
    let version = stage.labels.get("org.opencontainers.image.version").ok_or("Dockerfile: no label has the version")?;
    let reference = Reference::parse(image, &format!("v{version}"))?;
    let architecture = architecture(target)?;

    let mut files = BTreeMap::new();
    for (from, to) in &stage.copies {
        let contents = match from.as_str() {
            BINARY => read(binary)?,
            AUTHORITIES => read(AUTHORITIES)?,
            other => return Err(format!("Dockerfile: only {BINARY} and {AUTHORITIES} can be copied, not {other}")),
        };
        files.insert(to.clone(), contents);
    }
    let archive = Archive::new(&stage, &files, architecture, &reference)?;
    let path = format!("{binary}.oci.tar");
    // A rename: readers of the old archive keep it, and an interrupted run leaves no partial archive.
    let partial = format!("{path}.partial");
    std::fs::write(&partial, &archive.bytes)
        .and_then(|()| std::fs::rename(&partial, Path::new(&path)))
        .map_err(|error| format!("{path}: {error}"))?;
    let size = archive.bytes.len();
    writeln!(
        std::io::stdout(),
        "{path}\nimage:  {reference} linux/{architecture}\ndigest: {}\nsize:   {size} bytes",
        archive.digest
    )
    .map_err(|error| error.to_string())
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{path}: {error}"))
}
