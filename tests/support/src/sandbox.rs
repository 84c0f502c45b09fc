//! A machine of its own for a test: Linux namespaces in which the test is the first process.
//!
//! [`run`] starts the test program again, with this one test, in new namespaces for the network, mounts, processes, the
//! host name and IPC. There the test may start a kubelet and a container runtime at their usual paths and ports, beside
//! others that do the same. When the first process of a process namespace ends, in whatever way, the kernel ends all
//! others, and what they mounted is gone. What stays is below one folder and in control groups of the folder's name; both
//! are removed by a program that waits outside.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::api_server::{NODE_ADDRESS, SERVICE_ADDRESS};
use crate::supervisor::{Supervised, TemporaryFolder};

/// Is set for the program inside, and names the folder.
const INSIDE: &str = "CCM_TEST_SANDBOX";

/// Folders of this machine in whose place the sandbox has its own; the first one begins as a copy.
const FOLDERS: [&str; 4] = ["/etc", "/run", "/var/lib", "/var/log"];

/// Settings of the kernel that a kubelet sets. It finds these values in files of the sandbox, so that it changes nothing.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// What a test has inside.
pub struct Sandbox {
    folder: PathBuf,
}

impl Sandbox {
    /// A folder for files, which is removed at the end.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The control group below which all containers have to be, as a path below each hierarchy: it is removed at the end.
    #[must_use]
    pub fn control_group(&self) -> String {
        format!("/{}", self.folder.file_name().and_then(OsStr::to_str).unwrap())
    }
}

/// Runs the calling test in a sandbox, and fails as it does there, or when it takes longer than `limit`. Call it first,
/// in a test that is no async function.
///
/// # Panics
///
/// When the test fails, or the machine lacks what is needed: Linux, root, and `unshare`, `mount` and `ip`.
pub fn run(limit: Duration, test: impl AsyncFnOnce(Sandbox)) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var_os(INSIDE) {
        Some(folder) => {
            let sandbox = Sandbox { folder: folder.into() };
            sandbox.furnish();
            runtime.block_on(test(sandbox));
        }
        None => runtime.block_on(run_again(limit)),
    }
}

/// Runs this test in a new program, as the first process of new namespaces.
async fn run_again(limit: Duration) {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let name =
        name.unwrap_or_else(|| panic!("a test has its name as that of its thread: RUST_TEST_THREADS must be above 1"));
    let folder = TemporaryFolder::create();
    let files = folder.path().join("tmp");
    fs::create_dir(&files).unwrap();
    let program = std::env::current_exe().unwrap();
    let namespaces = ["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", "--"];
    let test = ["--exact", name, "--nocapture", "--test-threads=2", "--include-ignored"];
    let arguments: Vec<String> =
        namespaces.into_iter().chain([program.to_str().unwrap()]).chain(test).map(str::to_owned).collect();
    let variable = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
    let variables = [variable(INSIDE, folder.path()), variable("TMPDIR", &files)];
    let mut inside = Supervised::start_with("unshare", Path::new("unshare"), &arguments, folder.path(), &variables);
    let status = inside.wait(limit).await;
    println!("{}", inside.output.lines().join("\n"));
    assert!(status.success(), "the test failed in its sandbox: {status}");
    assert!(inside.output.find("test result: ok. 1 passed").is_some(), "no test of the name {name} ran in the sandbox");
}

impl Sandbox {
    /// Makes of the new namespaces what a node is to its programs.
    fn furnish(&self) {
        self.enter_control_group();
        for folder in FOLDERS {
            let own = self.folder.join(folder.trim_start_matches('/').replace('/', "-"));
            fs::create_dir(&own).unwrap();
            if folder == "/etc" {
                command("cp", &["--archive", "/etc/.", own.to_str().unwrap()]);
                // The machine may have a network for containers; a new node has none.
                command("rm", &["--recursive", "--force", own.join("cni").to_str().unwrap()]);
            }
            command("mount", &["--bind", own.to_str().unwrap(), folder]);
        }
        for (setting, value) in KERNEL_SETTINGS {
            let file = self.folder.join(setting.replace('/', "-"));
            fs::write(&file, format!("{value}\n")).unwrap();
            command("mount", &["--bind", file.to_str().unwrap(), &format!("/proc/sys/{setting}")]);
        }
        command("ip", &["link", "set", "lo", "up"]);
        for address in [NODE_ADDRESS, SERVICE_ADDRESS] {
            command("ip", &["address", "add", &format!("{address}/32"), "dev", "lo"]);
        }
    }

    /// Makes the control group, in each hierarchy of version 1 or in the one of version 2, and enters one of them: so the
    /// program outside knows that all processes have ended, since it cannot remove a group with processes.
    fn enter_control_group(&self) {
        let root = Path::new("/sys/fs/cgroup");
        let name = self.folder.file_name().unwrap();
        let inherited = |hierarchy: &Path, file: &str| {
            if let Ok(text) = fs::read(hierarchy.join(file)) {
                fs::write(hierarchy.join(name).join(file), text).unwrap();
            }
        };
        let hierarchy = if root.join("cgroup.controllers").is_file() {
            root.to_owned()
        } else {
            for hierarchy in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
            {
                make_folder(&hierarchy.join(name));
                inherited(&hierarchy, "cpuset.cpus");
                inherited(&hierarchy, "cpuset.mems");
            }
            root.join("pids")
        };
        // In version 2 a group with processes has no groups of containers below it.
        let group = hierarchy.join(name).join("test");
        make_folder(&group);
        fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

fn make_folder(path: &Path) {
    fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Runs a command to its end.
///
/// # Panics
///
/// When it fails, with what it wrote.
fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("failed to run {program}: {error}"));
    let (status, text) = (output.status, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(status.success(), "{program} {}: {status}: {text}", arguments.join(" "));
}
