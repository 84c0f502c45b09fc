//! The environment variables that go with `vsphere.conf`, handed in by `app`: nothing here asks the process for them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use zeroize::Zeroizing;

/// Beginnings of the names that are kept; a service account token or another program's password never gets here.
const PREFIXES: [&str; 2] = ["VSPHERE_", "VCENTER_"];

/// Names beside those, of switches that count when they are there, whatever their value.
const SWITCHES: [&str; 2] = ["ENABLE_ALPHA_DUAL_STACK", SKIP_NODE_DELETION];

const SKIP_NODE_DELETION: &str = "SKIP_NODE_DELETION";

/// The variables of the Go program, by name. Values are wiped from memory when this is dropped; the process's own
/// environment, which they were copied from, is not.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, Option<Zeroizing<String>>>);

/// Only the names: values may be passwords.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Keeps what is known by name, of all the variables of a process. What stands behind the first `=` of a variable is
    /// its value, further ones included.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let known = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || SWITCHES.contains(&name);
        let named = variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let kept = named.filter(|(name, _)| known(name)).map(|(name, value)| {
            let text = value.into_string().ok().map(Zeroizing::new);
            (name, text)
        });
        Self(kept.collect())
    }

    /// Whether `SKIP_NODE_DELETION` is there. As in the Go program its value does not matter, not even `false`.
    pub fn skips_node_deletion(&self) -> bool {
        self.0.contains_key(SKIP_NODE_DELETION)
    }
}
