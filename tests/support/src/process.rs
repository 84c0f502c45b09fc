//! Resource usage of a process, from Linux.

use std::time::Duration;

/// Ticks per second of CPU times in `/proc`, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory and CPU time of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Resident memory in kB: `VmRSS`.
    pub resident: u64,
    /// The anonymous part of it in kB: heap and stacks (`RssAnon`).
    pub anonymous: u64,
    /// Highest resident memory in kB: `VmHWM`.
    pub peak: u64,
    /// CPU time of all its threads, in user and kernel mode.
    pub cpu: Duration,
}

impl Usage {
    /// Returns the current usage of the process with this id. Returns `None` if there is no `/proc`, or no such
    /// process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        Self::parse(&read("status")?, &read("stat")?)
    }

    /// Returns the current usage of this process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Self::of(std::process::id())
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let kilobytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        // The name in parentheses can contain any character. After it, utime and stime are the 12th and the 13th field.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Self {
            resident: kilobytes("VmRSS")?,
            anonymous: kilobytes("RssAnon")?,
            peak: kilobytes("VmHWM")?,
            cpu: Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_process_are_read() {
        let status = "Name:\ta\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\nRssAnon:\t    4096 kB\nThreads:\t4\n";
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 100 1 1";
        let wanted = Usage { resident: 10_240, anonymous: 4_096, peak: 20_480, cpu: Duration::from_secs(2) };
        assert_eq!(Usage::parse(status, stat), Some(wanted));
    }

    #[test]
    fn this_process_has_memory() {
        let usage = Usage::of_this_process().unwrap();
        assert!(usage.resident > 0 && usage.peak >= usage.resident, "{usage:?}");
    }
}
