//! No core dumps: they would have the passwords and tokens of the process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Turns them off for this process, also where the system pipes them to a program. A debugger cannot attach to it then, unless it
/// has the capability `CAP_SYS_PTRACE`.
///
/// # Errors
/// What the operating system said.
pub fn turn_off() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::{DumpableBehavior, dumpable_behavior};

    #[test]
    fn the_process_leaves_no_dump() {
        super::turn_off().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
