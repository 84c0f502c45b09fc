//! The flags about who asks at the secure port and what they may.

use super::Check;
use crate::base::error_chain::chain;
use crate::kubernetes::access::{Authentication, Authorization, OpenPaths, check_bundle};
use std::path::PathBuf;

impl Check<'_> {
    pub(super) fn authentication(&mut self) -> Option<Authentication> {
        let kubeconfig = self.readable("authentication-kubeconfig");
        let skips_lookup = self.boolean("authentication-skip-lookup");
        let tolerates_lookup_failure = self.boolean("authentication-tolerate-lookup-failure");
        let cache = self.duration("authentication-token-webhook-cache-ttl");
        let client_ca = self.ca("client-ca-file");
        Some(Authentication {
            kubeconfig: kubeconfig?,
            skips_lookup: skips_lookup?,
            tolerates_lookup_failure: tolerates_lookup_failure?,
            cache: cache?,
            client_ca: client_ca?,
        })
    }

    pub(super) fn authorization(&mut self) -> Option<Authorization> {
        let kubeconfig = self.readable("authorization-kubeconfig");
        let flag = "authorization-always-allow-paths";
        let always_allow = match OpenPaths::parse(self.options.list(flag)) {
            Ok(open) => Some(open),
            Err(error) => self.wrong(flag, &error.0, error.to_string()),
        };
        let allowed_cache = self.duration("authorization-webhook-cache-authorized-ttl");
        let refused_cache = self.duration("authorization-webhook-cache-unauthorized-ttl");
        Some(Authorization {
            kubeconfig: kubeconfig?,
            always_allow: always_allow?,
            allowed_cache: allowed_cache?,
            refused_cache: refused_cache?,
        })
    }

    /// The path of a file with certificates; `Some(None)` is no file.
    fn ca(&mut self, flag: &str) -> Option<Option<PathBuf>> {
        let Some(path) = self.optional(flag) else { return Some(None) };
        let file = PathBuf::from(path);
        let why = match self.files.read(&file) {
            Ok(pem) => match check_bundle(&pem) {
                Ok(()) => return Some(Some(file)),
                Err(error) => chain(&error),
            },
            Err(error) => format!("cannot be read: {error}"),
        };
        self.wrong(flag, path, why)
    }
}

#[cfg(test)]
mod tests;
