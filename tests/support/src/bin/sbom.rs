//! `make sbom`: writes the components of the binary.
//!
//! Usage: `sbom TARGET LIBC`, the build target and the C library with its version, such as `glibc 2.36`.

use std::io::Write;
use std::process::{Command, ExitCode};

use support::sbom;

fn main() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("no list of what the binary is made of: {message}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, libc] = arguments.as_slice() else { return Err("usage: sbom TARGET LIBC (or: make sbom)".to_owned()) };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version=1", "--locked", "--filter-platform", target]);
    let output = metadata.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let lock = std::fs::read_to_string("Cargo.lock").map_err(|error| format!("Cargo.lock: {error}"))?;
    let document = sbom::document(&metadata, &lock, libc)?;
    let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| error.to_string())
}
