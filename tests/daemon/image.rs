//! The contents of the image's archive, and the daemon's binary in a root directory with exactly these contents.
//!
//! The test needs no container engine. The binary runs in the directory as the image's user, who may write nowhere and
//! has no capability. A real container has more: also `/proc`, all of `/dev` and the host's name servers.

mod oci;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use image_archive::{AUTHORITIES, Archive, BINARY, Reference, Stage};
use serde_json::json;
use support::components::{Component, release_binary};
use support::{ApiServer, Daemon, Vcenter, eventually};

use crate::admin::Admin;
use crate::cluster::{ANSWERS, Cluster, LIMIT};
use crate::manifests::kustomize::parsed;
use oci::{Contents, Entry};

/// Path of the binary in the image.
const PROGRAM: &str = "/bin/vsphere-cloud-controller-manager";
const NAME: &str = "registry.example.com/vsphere-cloud-controller-manager:v0.1.0";

fn dockerfile() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap()
}

/// Returns an address of the project.
fn address(name: &str) -> String {
    let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/addresses.env")).unwrap();
    let prefix = format!("{name}=");
    file.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
}

/// The last stage of the `Dockerfile`.
fn stage() -> Stage {
    Stage::parse(&dockerfile(), &[]).unwrap()
}

/// Builds the archive with this binary and this CA bundle.
fn archive(stage: &Stage, binary: &[u8], authorities: &str, architecture: &str) -> Archive {
    let contents = |from: &str| match from {
        AUTHORITIES => authorities.as_bytes().to_vec(),
        BINARY => binary.to_vec(),
        other => panic!("this test does not know what {other} is"),
    };
    let files: BTreeMap<String, Vec<u8>> = stage.copies.iter().map(|(from, to)| (to.clone(), contents(from))).collect();
    Archive::new(stage, &files, architecture, &Reference::parse(NAME, "").unwrap()).unwrap()
}

/// The image, unpacked into a directory.
struct Image {
    user: String,
    entrypoint: Vec<String>,
}

impl Image {
    /// Unpacks the archive, and adds these files of the pod.
    fn unpack(archive: &Archive, root: &Path, mounts: &[(&str, String)]) -> Self {
        let contents = Contents::read(&archive.bytes);
        fs::create_dir(root).unwrap();
        for entry in contents.layer {
            let place = root.join(&entry.path);
            match entry.contents {
                None => fs::create_dir(&place).unwrap(),
                Some(bytes) => fs::write(&place, bytes).unwrap(),
            }
            fs::set_permissions(&place, fs::Permissions::from_mode(entry.mode)).unwrap();
        }
        for (path, text) in mounts {
            place_file(root, path, text.as_bytes());
        }
        // Each container has these devices. Regular files replace them here, because only root may create devices. No
        // test has read that much so far.
        let mut random = vec![0; 1 << 20];
        fs::File::open("/dev/urandom").and_then(|mut device| device.read_exact(&mut random)).unwrap();
        for device in ["/dev/random", "/dev/urandom"] {
            place_file(root, device, &random);
        }
        lock(root);
        let config = &contents.config["config"];
        let entrypoint = config["Entrypoint"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
        Self { user: config["User"].as_str().unwrap().to_owned(), entrypoint: entrypoint.collect() }
    }

    /// Returns the command that runs the image's entry point in this directory.
    fn command(&self, root: &Path) -> (PathBuf, Vec<String>) {
        let root = root.display().to_string();
        let (user, group) = self.user.split_once(':').unwrap();
        let as_root = ["/usr/sbin/chroot", "/usr/bin/chroot"]
            .map(|chroot| (chroot, vec![format!("--userspec={}", self.user), "--groups=".to_owned(), root.clone()]));
        // A user other than root is mapped to the image's user in a new user namespace.
        let as_anybody = ["/usr/bin/unshare", "/bin/unshare"].map(|unshare| {
            let flags =
                ["--user", &format!("--map-user={user}"), &format!("--map-group={group}"), &format!("--root={root}")];
            (unshare, flags.map(str::to_owned).to_vec())
        });
        for (program, mut arguments) in as_root.into_iter().chain(as_anybody) {
            arguments.extend(self.entrypoint.clone());
            let works = Command::new(program).args(&arguments).arg("--version").output();
            if works.is_ok_and(|output| output.status.success()) {
                return (program.into(), arguments);
            }
        }
        panic!(
            "the image was not tried: this machine allows neither chroot nor user namespaces (chroot as root, or unshare --user)"
        );
    }
}

/// Writes a file that the kubelet or the runtime provides, and creates its folder. The image's user can read the file.
fn place_file(root: &Path, path: &str, contents: &[u8]) {
    let place = root.join(path.strip_prefix('/').unwrap());
    let folder = place.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(&place, contents).unwrap();
    for (place, mode) in [(folder, 0o755), (&place, 0o644)] {
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Removes the write permissions, as on a read-only root file system. The other permissions stay as in the image.
fn lock(place: &Path) {
    if place.is_dir() {
        fs::read_dir(place).unwrap().for_each(|entry| lock(&entry.unwrap().path()));
    }
    let mode = fs::metadata(place).unwrap().permissions().mode();
    fs::set_permissions(place, fs::Permissions::from_mode(mode & 0o555)).unwrap();
}

/// Returns all paths below `root`, so that the test detects new files.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(place) = open.pop() {
        if place.is_dir() {
            open.extend(fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push(place);
    }
    all.sort();
    all
}

#[test]
fn the_image_is_empty_but_for_the_binary_and_authorities() {
    let labels = [
        ("description", "The process that connects a Kubernetes cluster to vSphere"),
        ("documentation", &*address("DOCUMENTATION")),
        ("licenses", "Apache-2.0"),
        ("revision", "unknown"),
        ("source", &address("REPOSITORY")),
        ("title", "vsphere-cloud-controller-manager"),
        ("url", &address("REPOSITORY")),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    let expected = Stage {
        base: "scratch".to_owned(),
        copies: vec![
            (AUTHORITIES.to_owned(), AUTHORITIES.to_owned()),
            ("/vsphere-cloud-controller-manager".to_owned(), PROGRAM.to_owned()),
        ],
        labels: labels.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned())).into(),
        user: "1001:1001".to_owned(),
        entrypoint: vec![PROGRAM.to_owned()],
    };
    assert_eq!(stage(), expected);
}

#[test]
fn the_archive_is_the_image_of_the_dockerfile() {
    let stage = Stage::parse(&dockerfile(), &[("REVISION", "0123abc")]).unwrap();
    for architecture in ["amd64", "arm64"] {
        let archive = archive(&stage, b"binary", "authorities", architecture);
        assert_eq!(archive, self::archive(&stage, b"binary", "authorities", architecture), "the same bytes");
        let contents = Contents::read(&archive.bytes);
        let folder = |path: &str| Entry { path: path.to_owned(), mode: 0o755, contents: None };
        let file =
            |path: &str, mode: u32, text: &str| Entry { path: path.to_owned(), mode, contents: Some(text.into()) };
        let layer = [
            folder("bin/"),
            file("bin/vsphere-cloud-controller-manager", 0o755, "binary"),
            folder("etc/"),
            folder("etc/ssl/"),
            folder("etc/ssl/certs/"),
            file("etc/ssl/certs/ca-certificates.crt", 0o644, "authorities"),
        ];
        assert_eq!(contents.layer, layer);
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": "1001:1001",
                "Entrypoint": ["/bin/vsphere-cloud-controller-manager"],
                "Labels": {
                    "org.opencontainers.image.title": "vsphere-cloud-controller-manager",
                    "org.opencontainers.image.description": "The process that connects a Kubernetes cluster to vSphere",
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.url": address("REPOSITORY"),
                    "org.opencontainers.image.source": address("REPOSITORY"),
                    "org.opencontainers.image.documentation": address("DOCUMENTATION"),
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                    "org.opencontainers.image.revision": "0123abc",
                },
            },
            "rootfs": contents.config["rootfs"],
        });
        assert_eq!(contents.config, config);
        assert_eq!(contents.config["config"]["Labels"], json!(stage.labels));
        let descriptor = &contents.descriptor;
        assert_eq!(descriptor["digest"], archive.digest.as_str());
        assert_eq!(descriptor["platform"], json!({"architecture": architecture, "os": "linux"}));
        let names = json!({"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "v0.1.0"});
        assert_eq!(descriptor["annotations"], names);
    }
}

#[tokio::test]
async fn an_archive_has_the_name_by_which_the_kubelet_looks_for_it() {
    let long = format!("registry.example.com/{}:v1", "a".repeat(230));
    let table = [
        "ccm:v1",
        "team/ccm:v1",
        "docker.io/ccm:v1",
        "index.docker.io/ccm:v1",
        "registry.example.com/a/ccm:V_1.0-rc.1",
        "localhost/ccm:v1",
        "registry:5000/ccm:v1",
        "[2001:db8::1]:5000/ccm:v1",
        "Registry/ccm:v1",
        "a__b/c--d.e:v1",
        &long,
        "Ccm:v1",
        "a//b:v1",
        "ccm:v1:v2",
        "ccm:-v1",
        "registry:port/ccm:v1",
        "https://registry.example.com/ccm:v1",
        "a___b:v1",
        "ccm :v1",
        "",
    ];
    for name in table {
        let (ours, kubelet) = (Reference::parse(name, "v1"), parsed(name).await);
        assert_eq!(ours.map(|reference| reference.to_string()).ok(), kubelet.ok(), "{name}");
    }
}

/// Returns the commands that the Makefile's target would run.
fn commands(target: &str, commit: Option<&str>) -> String {
    let mut make = Command::new("make");
    // Below another make, `make` would also print its folder.
    make.args(["--dry-run", "--no-print-directory", target]).current_dir(env!("CARGO_MANIFEST_DIR"));
    match commit {
        Some(commit) => make.env("CCM_COMMIT", commit),
        None => make.env_remove("CCM_COMMIT"),
    };
    let output = make.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_shipped_knows_its_commit() {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let head = String::from_utf8(git.stdout).unwrap().trim().to_owned();
    for (given, expected) in [(None, head.as_str()), (Some("0123abc"), "0123abc")] {
        let release = commands("release", given);
        assert!(release.contains(&format!("CCM_COMMIT={expected} ")), "{given:?}: {release}");
    }
    let archive = commands("image-archive", Some("0123abc"));
    assert!(archive.contains("CCM_COMMIT=0123abc "), "it builds the binary: {archive}");
    let (_, arguments) = archive.trim_end().split_once(" --package ccm-image-archive -- ").unwrap();
    let arguments: Vec<&str> = arguments.split(' ').map(|argument| argument.trim_matches('\'')).collect();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let [name, for_target, "0123abc", binary] = arguments.as_slice() else { panic!("{archive}") };
    assert_eq!((*name, *for_target), ("vsphere-cloud-controller-manager", target.as_str()));
    assert!(binary.ends_with(&format!("{target}/release/vsphere-cloud-controller-manager")), "{binary}");
    assert!(!commands("micro", None).contains("CCM_COMMIT"), "what is not shipped is not built anew for each commit");
    let text = dockerfile();
    let (build, _) = text.split_once("\nFROM scratch").unwrap();
    assert!(build.contains("\nARG REVISION\n") && build.contains("make release CCM_COMMIT=\"$REVISION\""), "{build}");
}

#[tokio::test]
async fn the_shipped_binary_needs_nothing_but_what_its_image_holds() {
    let server = ApiServer::shared().await;
    let cluster = Cluster::on(server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    cluster.register(0..1).await;

    // Only the image's bundle has the authority of this vCenter, in addition to the public ones.
    let public = fs::read_to_string(AUTHORITIES)
        .unwrap_or_else(|error| panic!("this machine has no {AUTHORITIES} (package ca-certificates): {error}"));
    let authorities = format!("{public}\n{}", vcenter.ca_pem());
    let section: String = vcenter
        .ini_section("vc-1", "dc-1")
        .lines()
        .filter(|line| !line.starts_with("ca-file"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mounts = [
        ("/etc/cloud/vsphere.conf", Cluster::zoned(&[section])),
        ("/etc/kubernetes/kubeconfig", fs::read_to_string(server.kubeconfig()).unwrap()),
    ];
    let architecture = image_archive::architecture(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).unwrap();
    let archive = archive(
        &stage(),
        &fs::read(release_binary(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"))).unwrap(),
        &authorities,
        architecture,
    );
    let folder = tempfile::tempdir().unwrap();
    // The image's user must be able to enter this folder.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = folder.path().join("root");
    let image = Image::unpack(&archive, &root, &mounts);
    let before = paths(&root);

    let (program, arguments) = image.command(&root);
    let version = Command::new(&program).args(&arguments).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");

    let admin = Admin::new();
    let flags = [
        "--cloud-config=/etc/cloud/vsphere.conf".to_owned(),
        "--kubeconfig=/etc/kubernetes/kubeconfig".to_owned(),
        format!("--node-selector={}", cluster.labels()),
        format!("--leader-elect-resource-name={}", cluster.pool()),
        "--bind-address=127.0.0.1".to_owned(),
        admin.flag(),
        "-v=2".to_owned(),
    ];
    let mut daemon = Daemon::start(&program, arguments.iter().chain(&flags));
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    assert_eq!(admin.get("/healthz", None, &mut daemon).await, (200, "ok".to_owned()));
    let built: serde_json::Value = serde_json::from_str(&admin.get("/version", None, &mut daemon).await.1).unwrap();
    let commit = built["gitCommit"].as_str().unwrap();
    assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "no commit: {built}");
    let mut govc = tokio::process::Command::new(Component::Govc.path());
    let sessions = govc.args(["session.ls", "-json"]).env_clear().envs(vcenter.govc_environment()).output();
    let sessions = String::from_utf8(sessions.await.unwrap().stdout).unwrap();
    let agent = format!("{} {})", env!("CARGO_PKG_VERSION"), commit.split_at(7).0);
    assert!(sessions.contains(&agent), "{sessions}");

    let status = eventually("the daemon has a process id", LIMIT, async || {
        let id = daemon.pid().ok_or("none")?;
        fs::read_to_string(format!("/proc/{id}/status")).map_err(|_| "no such process")
    })
    .await;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    let of_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(value(capabilities), "0000000000000000", "{capabilities} {status}");
    }
    if of_root && program.ends_with("chroot") {
        assert_eq!(value("Uid:"), "1001\t1001\t1001\t1001", "{status}");
    }
    println!("{} with {} in use, at most {}", version.trim(), value("VmRSS:"), value("VmHWM:"));
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
    assert_eq!(paths(&root), before, "it wrote into its image");
    unlock(&root);
}

/// Restores the permissions, so that the owner can remove the folder.
fn unlock(place: &Path) {
    if place.is_dir() {
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        fs::read_dir(place).unwrap().for_each(|entry| unlock(&entry.unwrap().path()));
    }
}
