//! The wall clock that ends terms beside the monotonic one, which stands still while a machine is suspended.

use std::time::SystemTime;

/// The machine's wall clock. In tests it can jump; all clones jump together.
#[derive(Debug, Clone, Default)]
pub(in crate::kubernetes) struct WallClock {
    #[cfg(test)]
    ahead: std::sync::Arc<std::sync::Mutex<std::time::Duration>>,
}

impl WallClock {
    #[cfg(not(test))]
    pub(in crate::kubernetes) fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    #[cfg(test)]
    pub(in crate::kubernetes) fn now(&self) -> SystemTime {
        SystemTime::now() + *self.ahead.lock().unwrap()
    }

    /// What a process sees whose machine was suspended for so long.
    #[cfg(test)]
    pub(in crate::kubernetes) fn jump(&self, ahead: std::time::Duration) {
        *self.ahead.lock().unwrap() += ahead;
    }
}
