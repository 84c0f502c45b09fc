//! The binary as it is shipped, in a root directory with exactly what its image holds.
//!
//! There need be no container engine for this: what the last stage of the `Dockerfile` copies is copied here, and the
//! binary runs in that directory as the image's user, who may write nowhere and has no capability. That is less than a
//! container has, which also gets `/proc`, all of `/dev` and the host's name servers.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use image_archive::Stage;
use support::components::Component;
use support::{ApiServer, Daemon, Vcenter, eventually};

use crate::admin::Admin;
use crate::cluster::{ANSWERS, Cluster, LIMIT};

/// Where public authorities are, on this machine and in the image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

fn dockerfile() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap()
}

/// The last stage of the `Dockerfile`.
fn stage() -> Stage {
    Stage::parse(&dockerfile(), &[]).unwrap()
}

/// A directory with what the image holds.
struct Image(Stage);

impl Image {
    /// The directory, with these files of the pod beside what the image holds. What the image has from its build is
    /// taken from here: the binary of `make release`, and this bundle of authorities.
    fn unpack(&self, root: &Path, authorities: &str, mounts: &[(&str, String)]) {
        for (from, to) in &self.0.copies {
            let place = inside(root, to);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            match from.as_str() {
                AUTHORITIES => fs::write(&place, authorities).unwrap(),
                "/vsphere-cloud-controller-manager" => drop(fs::copy(release_binary(), &place).unwrap()),
                other => panic!("this test does not know what {other} is"),
            }
        }
        for (path, text) in mounts {
            let place = inside(root, path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(&place, text).unwrap();
        }
        // Each container has these devices. Files stand for them, since only root may make devices: no test reads so far.
        fs::create_dir_all(inside(root, "/dev")).unwrap();
        let mut random = vec![0; 1 << 20];
        fs::File::open("/dev/urandom").and_then(|mut device| device.read_exact(&mut random)).unwrap();
        for device in ["/dev/random", "/dev/urandom"] {
            fs::write(inside(root, device), &random).unwrap();
        }
        lock(root);
    }

    /// The command that runs the image's entry point in this directory.
    fn command(&self, root: &Path) -> (PathBuf, Vec<String>) {
        let root = root.display().to_string();
        let (user, group) = self.0.user.split_once(':').unwrap();
        let as_root = ["/usr/sbin/chroot", "/usr/bin/chroot"]
            .map(|chroot| (chroot, vec![format!("--userspec={}", self.0.user), "--groups=".to_owned(), root.clone()]));
        // Whoever is not root maps itself to the image's user, in a name space of its own.
        let as_anybody = ["/usr/bin/unshare", "/bin/unshare"].map(|unshare| {
            let flags =
                ["--user", &format!("--map-user={user}"), &format!("--map-group={group}"), &format!("--root={root}")];
            (unshare, flags.map(str::to_owned).to_vec())
        });
        for (program, mut arguments) in as_root.into_iter().chain(as_anybody) {
            arguments.extend(self.0.entrypoint.clone());
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

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.strip_prefix('/').unwrap())
}

/// Nobody may write in it, and everybody may read.
fn lock(place: &Path) {
    if place.is_dir() {
        fs::read_dir(place).unwrap().for_each(|entry| lock(&entry.unwrap().path()));
    }
    let is_program = place.is_dir() || place.parent().is_some_and(|folder| folder.ends_with("bin"));
    fs::set_permissions(place, fs::Permissions::from_mode(if is_program { 0o555 } else { 0o444 })).unwrap();
}

/// All paths below, so that what was written shows.
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

/// What `make release` builds.
fn release_binary() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager")).ancestors().nth(2).unwrap();
    let binary = folder
        .join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .join("release/vsphere-cloud-controller-manager");
    assert!(binary.is_file(), "the static binary is missing ({}): build it with `make release`", binary.display());
    binary
}

#[test]
fn the_image_is_empty_but_for_the_binary_and_authorities() {
    let binary = "/bin/vsphere-cloud-controller-manager";
    let labels = [
        ("description", "The process that connects a Kubernetes cluster to vSphere"),
        ("licenses", "Apache-2.0"),
        ("revision", "unknown"),
        ("title", "vsphere-cloud-controller-manager"),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    let expected = Stage {
        base: "scratch".to_owned(),
        copies: vec![
            (AUTHORITIES.to_owned(), AUTHORITIES.to_owned()),
            ("/vsphere-cloud-controller-manager".to_owned(), binary.to_owned()),
        ],
        labels: labels.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned())).into(),
        user: "1001:1001".to_owned(),
        entrypoint: vec![binary.to_owned()],
    };
    assert_eq!(stage(), expected);
}

/// What the commands of the Makefile's target would be.
fn commands(target: &str, commit: Option<&str>) -> String {
    let mut make = Command::new("make");
    make.args(["--dry-run", target]).current_dir(env!("CARGO_MANIFEST_DIR"));
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

    // The authority of this vCenter is known from the image's bundle alone, beside the public ones.
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
    let image = Image(stage());
    let folder = tempfile::tempdir().unwrap();
    // The image's user must be able to come as far as this.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = folder.path().join("root");
    image.unpack(&root, &authorities, &mounts);
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
    cluster.wait_until_initialised(0..1, &daemon).await;
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

/// So that the folder can be removed by whoever made it.
fn unlock(place: &Path) {
    if place.is_dir() {
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        fs::read_dir(place).unwrap().for_each(|entry| unlock(&entry.unwrap().path()));
    }
}
