//! Files that change while somebody reads them.

use std::path::Path;

/// As `kubectl edit` and the kubelet do: the new file takes the old one's place in one step.
///
/// # Panics
///
/// When it cannot be written.
pub fn replace_file(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}
