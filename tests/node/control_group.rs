//! The memory of a container in the kernel's accounting, with control groups of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

/// The control group that limits the memory of a process.
pub struct MemoryGroup {
    folder: PathBuf,
    is_unified: bool,
}

impl MemoryGroup {
    /// Finds the group of the process with this id.
    pub fn of(process: u32) -> Self {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
        let (path, is_unified) = find(&groups).unwrap_or_else(|| panic!("no memory group: {groups}"));
        let hierarchy = if is_unified { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" };
        Self { folder: Path::new(hierarchy).join(path.trim_start_matches('/')), is_unified }
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.number("memory.limit_in_bytes", "memory.max")
    }

    /// Returns the maximum use in bytes, including the page cache of files that its processes read first.
    pub fn peak(&self) -> u64 {
        self.number("memory.max_usage_in_bytes", "memory.peak")
    }

    /// Returns the number of processes that the kernel has killed at the limit.
    pub fn kills(&self) -> u64 {
        let text = self.read("memory.oom_control", "memory.events");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.unwrap_or_else(|| panic!("no count of kills: {text}"))
    }

    fn number(&self, first: &str, second: &str) -> u64 {
        let text = self.read(first, second);
        text.trim().parse().unwrap_or_else(|error| panic!("{}: {text:?}: {error}", self.folder.display()))
    }

    /// Reads the file of version 1, or of version 2.
    fn read(&self, first: &str, second: &str) -> String {
        let file = self.folder.join(if self.is_unified { second } else { first });
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }
}

/// Returns the path of the group that limits memory, and whether the group is of version 2. `groups` is the text of
/// `/proc/<process>/cgroup`, with lines in the form `<hierarchy>:<controllers>:<path>`. If both versions exist, version
/// 1 has the controller.
fn find(groups: &str) -> Option<(&str, bool)> {
    let parts = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let first = parts().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let second = || parts().find(|(controllers, _)| controllers.is_empty());
    first.map(|(_, path)| (path, false)).or_else(|| second().map(|(_, path)| (path, true)))
}

#[test]
fn the_group_of_the_memory_is_found_in_both_versions() {
    let both = "9:cpuset:/x\n5:cpu,memory:/kubepods/a:b\n0::/\n";
    for (name, groups, wanted) in [
        ("version 1", both, Some(("/kubepods/a:b", false))),
        ("version 2", "0::/kubepods/a\n", Some(("/kubepods/a", true))),
        ("neither", "9:cpuset:/x\n", None),
    ] {
        assert_eq!(find(groups), wanted, "{name}");
    }
}
