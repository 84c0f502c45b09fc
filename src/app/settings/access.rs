//! The flags of authentication and authorization at the secure port.

use super::SettingsCheck;
use crate::base::error_chain::chain;
use crate::kubernetes::access::{Authentication, Authorization, OpenPaths, check_bundle};
use std::path::PathBuf;

impl SettingsCheck<'_> {
    pub(super) fn authentication(&mut self) -> Authentication {
        Authentication {
            kubeconfig: self.kubeconfig("authentication-kubeconfig"),
            skips_lookup: self.boolean("authentication-skip-lookup"),
            tolerates_lookup_failure: self.boolean("authentication-tolerate-lookup-failure"),
            cache: self.duration("authentication-token-webhook-cache-ttl").unwrap_or_default(),
            client_ca: self.ca("client-ca-file"),
        }
    }

    pub(super) fn authorization(&mut self) -> Authorization {
        let flag = "authorization-always-allow-paths";
        let always_allow = OpenPaths::parse(self.options.list(flag));
        Authorization {
            kubeconfig: self.kubeconfig("authorization-kubeconfig"),
            always_allow: always_allow
                .map_err(|error| self.wrong(flag, &error.0, error.to_string()))
                .unwrap_or_default(),
            allowed_cache: self.duration("authorization-webhook-cache-authorized-ttl").unwrap_or_default(),
            refused_cache: self.duration("authorization-webhook-cache-unauthorized-ttl").unwrap_or_default(),
        }
    }

    /// Returns the path of a CA file. Reports a file that cannot be read or is no valid bundle of CAs.
    fn ca(&mut self, flag: &str) -> Option<PathBuf> {
        let path = self.optional(flag)?;
        let file = PathBuf::from(path);
        match self.files.read(&file).map(|pem| check_bundle(&pem)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.wrong(flag, path, chain(&error)),
            Err(error) => self.wrong(flag, path, format!("cannot be read: {error}")),
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests;
