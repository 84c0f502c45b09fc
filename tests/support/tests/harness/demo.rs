//! Tests of `make demo` on a machine without any build.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const FIRST_LINE: &str =
    "the components and programs of the demo are built once; on two cores that takes about eleven minutes\n";

/// Returns the output of `make demo` with this build folder. Go and cargo build nothing.
fn printed(target: &Path) -> String {
    let tools = tempfile::tempdir().unwrap();
    for tool in ["go", "cargo"] {
        let path = tools.path().join(tool);
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let mut make = Command::new("make");
    make.arg("demo").current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).env("PATH", path);
    make.env("CARGO", tools.path().join("cargo"))
        .env("CARGO_TARGET_DIR", target)
        .env_remove("KUBEBUILDER_ASSETS")
        .env_remove("MAKEFLAGS")
        // Otherwise a nested make prints the folders that it enters.
        .env_remove("MAKELEVEL");
    String::from_utf8(make.output().unwrap().stdout).unwrap()
}

#[test]
fn a_demo_that_builds_says_so_first() {
    let target = tempfile::tempdir().unwrap();
    assert!(printed(target.path()).starts_with(FIRST_LINE));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testenv/build.sh");
    let output = Command::new(script).arg("--where").env("CARGO_TARGET_DIR", target.path()).output().unwrap();
    let places = String::from_utf8(output.stdout).unwrap();
    let folder = |name: &str| {
        let line = places.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    let programs = [
        format!("{}/kube-apiserver", folder("kubernetes ")),
        format!("{}/supervise", folder("tools ")),
        format!("{}/quick/demo", target.path().display()),
    ];
    for program in &programs {
        assert!(printed(target.path()).starts_with(FIRST_LINE), "{program} is missing");
        fs::create_dir_all(Path::new(program).parent().unwrap()).unwrap();
        fs::write(program, "").unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let all = printed(target.path());
    assert!(!all.contains("built once"), "{all}");
}
