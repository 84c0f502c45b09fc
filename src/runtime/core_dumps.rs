//! Disables core dumps: they would contain passwords and tokens.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Disables core dumps of this process, also where the system pipes them to a program. A debugger can then attach only
/// with the capability `CAP_SYS_PTRACE`.
///
/// # Errors
/// The operating system's error.
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
