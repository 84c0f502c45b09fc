//! A sandbox: Linux namespaces in which a test is the first process.
//!
//! [`run`] starts the test program again, with this one test, in new namespaces for the network, mounts, processes, the
//! host name and IPC. There the test may start a kubelet and a container runtime at their usual paths and ports, in
//! parallel with other such tests. When the first process of a process namespace ends, the kernel ends all others and
//! their mounts. The remaining files are below one folder, and the control groups have the folder's name. A program
//! outside waits and removes both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use uuid::Uuid;

use crate::api_server::{NODE_ADDRESS, SERVICE_ADDRESS};
use crate::components::Component;
use crate::supervisor::{Supervised, TemporaryFolder};

/// Environment variable of the program inside, with the path of the folder.
const INSIDE: &str = "CCM_TEST_SANDBOX";

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The id of the machine, which is 32 hexadecimal digits.
pub(crate) const MACHINE_ID: &str = "/etc/machine-id";

/// Folders of this machine that the sandbox replaces. The first one starts as a copy.
const FOLDERS: [&str; 4] = ["/etc", "/run", "/var/lib", "/var/log"];

/// The snapshotter of containerd that works on every file system. `ctr` reads it from an environment variable.
pub(crate) const SNAPSHOTTER: &str = "native";
pub(crate) const SNAPSHOTTER_VARIABLE: &str = "CONTAINERD_SNAPSHOTTER";

/// Kernel settings that a kubelet sets. Files of the sandbox already have these values, so that the kubelet changes
/// nothing.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Script that creates control groups with the folder's name and starts a program in namespaces whose root they are, so
/// that the program's own groups are below them. Its arguments are the folder, and the program with its arguments.
///
/// In version 2 a group with processes cannot enable controllers for its child groups, so all processes move one group
/// down. The shell does this between two `unshare` calls: the first call makes the root, and no `unshare` process stays
/// there.
const START: &str = r#"
name=$(basename "$0")
groups=/sys/fs/cgroup
if [ -f $groups/cgroup.controllers ]; then
    mkdir -p "$groups/$name/test"
    echo $$ >"$groups/$name/cgroup.procs"
    inner=$groups/$name/test/cgroup.procs
else
    for hierarchy in $groups/*; do
        [ -f "$hierarchy/cgroup.procs" ] || continue
        mkdir -p "$hierarchy/$name"
        # Without these, a cpuset of version 1 takes no process.
        for file in cpuset.cpus cpuset.mems; do
            [ ! -f "$hierarchy/$file" ] || cat "$hierarchy/$file" >"$hierarchy/$name/$file"
        done
        echo $$ >"$hierarchy/$name/cgroup.procs"
    done
    inner=/dev/null
fi
export CCM_TEST_SANDBOX_PROCESS=$$
exec unshare --cgroup -- /bin/sh -euc 'echo $$ >"$0"
exec unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc -- "$@"' "$inner" "$@"
"#;

/// The sandbox of a test.
pub struct Sandbox {
    folder: PathBuf,
}

impl Sandbox {
    /// Returns a folder for files, which is removed at the end.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Runs the calling test in a sandbox. Fails if the test fails there, or takes longer than `limit`. Call it first, in a
/// test that is not an async function.
///
/// # Panics
///
/// If the test fails, or the machine lacks a requirement: Linux, root, and `unshare`, `mount` and `ip`.
pub fn run(limit: Duration, test: impl AsyncFnOnce(Sandbox)) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var_os(INSIDE) {
        Some(folder) => {
            let sandbox = Sandbox { folder: folder.into() };
            sandbox.set_up();
            runtime.block_on(test(sandbox));
        }
        None => runtime.block_on(reexecute_test(limit)),
    }
}

/// Runs this program again in a sandbox, with the same terminal and the given arguments. Inside, it returns the
/// sandbox.
///
/// # Errors
///
/// Outside: the exit code of the program inside, after its end.
///
/// # Panics
///
/// Like [`run`].
pub async fn reexecute(arguments: &[&str]) -> Result<Sandbox, ExitCode> {
    if let Some(folder) = std::env::var_os(INSIDE) {
        let sandbox = Sandbox { folder: folder.into() };
        sandbox.set_up();
        return Ok(sandbox);
    }
    let folder = TemporaryFolder::create();
    let (arguments, variables) = shell(folder.path(), arguments);
    // In the terminal's process group, so that Ctrl-C reaches the program inside. It is killed together with this
    // process.
    let mut command = tokio::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "/bin/sh"]).args(arguments).envs(variables);
    let mut inside = command.spawn().unwrap_or_else(|error| panic!("setpriv: {error}"));
    loop {
        tokio::select! {
            status = inside.wait() => {
                return Err(if status.unwrap().success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            // Only the program inside reacts to Ctrl-C.
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}

/// Returns the arguments and variables for a shell that starts this program in a sandbox.
fn shell(folder: &Path, arguments: &[&str]) -> (Vec<String>, [(String, String); 3]) {
    let program = std::env::current_exe().unwrap();
    let components = [Component::Kubelet, Component::KubeApiserver, Component::Supervise].map(Component::path);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in [folder, &program, source].into_iter().chain(components.iter().map(PathBuf::as_path)) {
        if let Some(hidden) = hidden_by(&path.canonicalize().unwrap()) {
            panic!(
                "a sandbox has its own {hidden} and does not see {}: put the repository, CARGO_TARGET_DIR and TMPDIR \
                 into other folders",
                path.display()
            );
        }
    }
    let files = folder.join("tmp");
    fs::create_dir(&files).unwrap();
    let start = ["-euc", START, folder.to_str().unwrap(), program.to_str().unwrap()];
    let arguments = start.into_iter().chain(arguments.iter().copied()).map(str::to_owned).collect();
    let variable = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
    let snapshotter = variable(SNAPSHOTTER_VARIABLE, Path::new(SNAPSHOTTER));
    (arguments, [variable(INSIDE, folder), variable("TMPDIR", &files), snapshotter])
}

/// Returns the folder of the sandbox that hides this path of the machine.
fn hidden_by(path: &Path) -> Option<&'static str> {
    FOLDERS.into_iter().find(|folder| path.starts_with(folder))
}

/// Returns the existing control groups of this name, one in each hierarchy.
#[must_use]
pub fn control_groups(name: &str) -> Vec<PathBuf> {
    let root = PathBuf::from(CONTROL_GROUPS);
    let hierarchies = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    hierarchies.chain([root]).map(|hierarchy| hierarchy.join(name)).filter(|group| group.is_dir()).collect()
}

/// Runs this test in a new program, as the first process of new namespaces.
async fn reexecute_test(limit: Duration) {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let name =
        name.unwrap_or_else(|| panic!("a test has its name as that of its thread: RUST_TEST_THREADS must be above 1"));
    let folder = TemporaryFolder::create();
    let (arguments, variables) = shell(folder.path(), &["--exact", name, "--nocapture", "--test-threads=2"]);
    let mut inside = Supervised::start_with("sandbox", Path::new("/bin/sh"), &arguments, folder.path(), &variables);
    let status = inside.wait(limit).await;
    println!("{}", inside.output.lines().join("\n"));
    assert!(status.success(), "the test failed in its sandbox: {status}");
    assert!(inside.output.find("test result: ok. 1 passed").is_some(), "no test of the name {name} ran in the sandbox");
    drop(inside);
    let path = folder.path().to_owned();
    drop(folder);
    assert!(!path.exists(), "{} is left", path.display());
    assert_eq!(
        control_groups(path.file_name().unwrap().to_str().unwrap()),
        [] as [PathBuf; 0],
        "these groups are left"
    );
}

impl Sandbox {
    /// Returns a command prefix that runs a command on the network of the sandbox.
    #[must_use]
    pub fn enter(&self) -> String {
        let process = std::env::var("CCM_TEST_SANDBOX_PROCESS").unwrap();
        format!("nsenter --net --target {process}")
    }

    /// Sets up the control groups, folders, files, kernel settings and addresses of a node in the new namespaces.
    fn set_up(&self) {
        self.mount_control_groups();
        for folder in FOLDERS {
            let own = self.folder.join(folder.trim_start_matches('/').replace('/', "-"));
            fs::create_dir(&own).unwrap();
            if folder == "/etc" {
                command("cp", &["--archive", "/etc/.", own.to_str().unwrap()]);
                // The machine may have a container network, but a new node has none.
                command("rm", &["--recursive", "--force", own.join("cni").to_str().unwrap()]);
            }
            command("mount", &["--bind", own.to_str().unwrap(), folder]);
        }
        // The link of systemd-resolved points into a folder that the sandbox hides. No pod starts without this file.
        write_new("/etc/resolv.conf", "nameserver 127.0.0.1\n");
        // A kubelet needs a UUID, but in container images the file is often empty.
        let machine_id = fs::read_to_string(MACHINE_ID).unwrap_or_default();
        let machine_id = Uuid::parse_str(machine_id.trim()).unwrap_or_else(|_| Uuid::new_v4());
        write_new(MACHINE_ID, &format!("{}\n", machine_id.simple()));
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

    /// Mounts the control groups of this namespace at the usual path.
    fn mount_control_groups(&self) {
        for group in control_groups(self.folder.file_name().unwrap().to_str().unwrap()) {
            // A hierarchy with two names already has the group at the second name.
            if group.is_dir() {
                command("mount", &["--bind", group.to_str().unwrap(), group.parent().unwrap().to_str().unwrap()]);
            }
        }
    }
}

/// Writes a new file in place of an old one, or of a link.
fn write_new(file: &str, text: &str) {
    drop(fs::remove_file(file));
    fs::write(file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// Runs a command until it exits.
///
/// # Panics
///
/// If it fails. The message has its output.
fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("failed to run {program}: {error}"));
    let (status, text) = (output.status, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(status.success(), "{program} {}: {status}: {text}", arguments.join(" "));
}

#[test]
fn what_a_sandbox_hides_is_known() {
    for (path, wanted) in [
        ("/var/lib/jenkins/workspace/ccm", Some("/var/lib")),
        ("/run/user/0/ccm-test-a", Some("/run")),
        ("/var/lib", Some("/var/lib")),
        ("/var/library/ccm", None),
        ("/home/me/run/ccm", None),
        ("/tmp/ccm-test-a", None),
    ] {
        assert_eq!(hidden_by(Path::new(path)), wanted, "{path}");
    }
}
