//! Tests of `image-archive` as `make image-archive` runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use image_archive::AUTHORITIES;

/// Runs the program in a folder with this Dockerfile and a file `binary`.
fn run(folder: &Path, dockerfile: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("Dockerfile"), dockerfile).unwrap();
    fs::write(folder.join("binary"), "binary").unwrap();
    Command::new(env!("CARGO_BIN_EXE_image-archive")).args(arguments).current_dir(folder).output().unwrap()
}

fn dockerfile() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../Dockerfile")).unwrap()
}

#[test]
fn two_runs_write_the_same_archive_and_print_its_digest() {
    assert!(Path::new(AUTHORITIES).is_file(), "this machine has no {AUTHORITIES} (package ca-certificates)");
    let archive = |revision: &str| {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &dockerfile(), &["ccm", "aarch64-unknown-linux-gnu", revision, "binary"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["Dockerfile", "binary", "binary.oci.tar"]);
        (fs::read(folder.path().join("binary.oci.tar")).unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (bytes, printed) = archive("0123abc");
    assert_eq!(archive("0123abc"), (bytes.clone(), printed.clone()));
    assert_ne!(archive("").1, printed, "the commit is a label");
    let lines: Vec<&str> = printed.lines().collect();
    let [path, image, digest, size] = lines.as_slice() else { panic!("{printed}") };
    assert_eq!((*path, *image), ("binary.oci.tar", "image:  docker.io/library/ccm:v0.1.0 linux/arm64"));
    let hash = digest.strip_prefix("digest: sha256:").unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(hash.len() == 64 && text.contains(&format!("blobs/sha256/{hash}")), "{digest}");
    assert_eq!(*size, format!("size:   {} bytes", bytes.len()));
}

#[test]
fn what_cannot_be_written_is_one_error_and_no_file() {
    let target = "x86_64-unknown-linux-gnu";
    let good = dockerfile();
    let table: [(&str, &[&str], &str); 9] = [
        (&good, &["ccm", target, ""], "usage: image-archive IMAGE TARGET REVISION BINARY"),
        (&good, &["Ccm", target, "", "binary"], "\"Ccm\" is no name of an image: expected NAME:TAG"),
        (&good, &["ccm:v1@sha256:0", target, "", "binary"], "\"ccm:v1@sha256:0\" has a digest"),
        (&good, &["ccm", "x86_64-pc-windows-msvc", "", "binary"], "there is no image for x86_64-pc-windows-msvc"),
        (&good, &["ccm", target, "", "missing"], "missing: No such file or directory"),
        (
            &format!("{good}EXPOSE 10258\n"),
            &["ccm", target, "", "binary"],
            "Dockerfile: an instruction that is not supported, in its last stage: EXPOSE 10258",
        ),
        (
            &good.replace(AUTHORITIES, "/etc/shadow"),
            &["ccm", target, "", "binary"],
            "Dockerfile: only /vsphere-cloud-controller-manager and /etc/ssl/certs/ca-certificates.crt can be copied, not /etc/shadow",
        ),
        (&good.replace("FROM scratch", "FROM debian"), &["ccm", target, "", "binary"], "the image is based on debian"),
        (
            &good.replace("image.version", "image.number"),
            &["ccm", target, "", "binary"],
            "Dockerfile: no label has the version",
        ),
    ];
    for (dockerfile, arguments, expected) in table {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), dockerfile, arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        let message = errors.strip_prefix("no image archive was written: ").unwrap_or_else(|| panic!("{errors}"));
        assert!(message.starts_with(expected) && message.lines().count() == 1, "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "{arguments:?}");
    }
}
