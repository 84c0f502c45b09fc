//! The memory of a container as the kernel counts and limits it, with control groups of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

/// The control group of a process that limits its memory.
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

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.number("memory.limit_in_bytes", "memory.max")
    }

    /// The most bytes that it ever had, with the pages of files that its processes were the first to read.
    pub fn peak(&self) -> u64 {
        self.number("memory.max_usage_in_bytes", "memory.peak")
    }

    /// How many of its processes the kernel has killed at the limit.
    pub fn kills(&self) -> u64 {
        let text = self.read("memory.oom_control", "memory.events");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.unwrap_or_else(|| panic!("no count of kills: {text}"))
    }

    fn number(&self, first: &str, second: &str) -> u64 {
        let text = self.read(first, second);
        text.trim().parse().unwrap_or_else(|error| panic!("{}: {text:?}: {error}", self.folder.display()))
    }

    /// The file of version 1, or of version 2.
    fn read(&self, first: &str, second: &str) -> String {
        let file = self.folder.join(if self.is_unified { second } else { first });
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }
}

/// The path of the group that limits memory, and whether that is one of version 2; from `/proc/<process>/cgroup`, whose
/// lines are `<hierarchy>:<controllers>:<path>`. With both versions version 1 has the controller.
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
