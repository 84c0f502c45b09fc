//! The flags of authentication and authorization at the secure port.

use super::{Flag, SettingsCheck, flags};
use crate::base::error_chain::chain;
use crate::kubernetes::access::{Authentication, Authorization, OpenPaths, check_bundle};
use std::path::PathBuf;

impl SettingsCheck<'_> {
    pub(super) fn authentication(&mut self) -> Authentication {
        Authentication {
            kubeconfig: self.kubeconfig(flags::AUTHENTICATION_KUBECONFIG),
            skips_lookup: self.boolean(flags::AUTHENTICATION_SKIP_LOOKUP),
            tolerates_lookup_failure: self.boolean(flags::AUTHENTICATION_TOLERATE_LOOKUP_FAILURE),
            cache: self.duration(flags::AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL).unwrap_or_default(),
            client_ca: self.ca(flags::CLIENT_CA_FILE),
        }
    }

    pub(super) fn authorization(&mut self) -> Authorization {
        let flag = flags::AUTHORIZATION_ALWAYS_ALLOW_PATHS;
        let always_allow = OpenPaths::parse(self.options.list(flag));
        Authorization {
            kubeconfig: self.kubeconfig(flags::AUTHORIZATION_KUBECONFIG),
            always_allow: always_allow
                .map_err(|error| self.invalid(flag, &error.0, error.to_string()))
                .unwrap_or_default(),
            allowed_cache: self.duration(flags::AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL).unwrap_or_default(),
            refused_cache: self.duration(flags::AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL).unwrap_or_default(),
        }
    }

    /// Returns the path of a CA file. Reports a file that cannot be read or is no valid bundle of CAs.
    fn ca(&mut self, flag: Flag<&str>) -> Option<PathBuf> {
        let path = self.optional(flag)?;
        let file = PathBuf::from(path);
        match self.files.read(&file).map(|pem| check_bundle(&pem)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.invalid(flag, path, chain(&error)),
            Err(error) => self.invalid(flag, path, format!("cannot be read: {error}")),
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests;
