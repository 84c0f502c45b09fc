//! The flags about who asks at the secure port and what they may.

use super::Check;
use crate::base::error_chain::chain;
use crate::kubernetes::access::{Authentication, Authorization, OpenPaths, check_bundle};
use std::path::PathBuf;

impl Check<'_> {
    pub(super) fn authentication(&mut self) -> Option<Authentication> {
        let options = &self.options.authentication;
        let kubeconfig = self.kubeconfig_of("--authentication-kubeconfig", &options.authentication_kubeconfig);
        let skips_lookup = self.boolean("--authentication-skip-lookup", &options.authentication_skip_lookup);
        let flag = "--authentication-tolerate-lookup-failure";
        let tolerates_lookup_failure = self.boolean(flag, &options.authentication_tolerate_lookup_failure);
        let flag = "--authentication-token-webhook-cache-ttl";
        let cache = self.duration(flag, &options.authentication_token_webhook_cache_ttl);
        let client_ca = self.ca("--client-ca-file", &options.client_ca_file);
        Some(Authentication {
            kubeconfig: kubeconfig?,
            skips_lookup: skips_lookup?,
            tolerates_lookup_failure: tolerates_lookup_failure?,
            cache: cache?,
            client_ca: client_ca?,
        })
    }

    pub(super) fn authorization(&mut self) -> Option<Authorization> {
        let options = &self.options.authorization;
        let kubeconfig = self.kubeconfig_of("--authorization-kubeconfig", &options.authorization_kubeconfig);
        let always_allow = match OpenPaths::parse(list(&options.authorization_always_allow_paths)) {
            Ok(open) => Some(open),
            Err(error) => self.wrong("--authorization-always-allow-paths", &error.0, error.to_string()),
        };
        let flag = "--authorization-webhook-cache-authorized-ttl";
        let allowed_cache = self.duration(flag, &options.authorization_webhook_cache_authorized_ttl);
        let flag = "--authorization-webhook-cache-unauthorized-ttl";
        let refused_cache = self.duration(flag, &options.authorization_webhook_cache_unauthorized_ttl);
        Some(Authorization {
            kubeconfig: kubeconfig?,
            always_allow: always_allow?,
            allowed_cache: allowed_cache?,
            refused_cache: refused_cache?,
        })
    }

    /// `Some(None)` is no file.
    fn kubeconfig_of(&mut self, flag: &str, path: &str) -> Option<Option<PathBuf>> {
        if path.is_empty() {
            return Some(None);
        }
        match self.files.read(&PathBuf::from(path)) {
            Ok(_) => Some(Some(PathBuf::from(path))),
            Err(error) => self.wrong(flag, path, format!("cannot be read: {error}")),
        }
    }

    /// The path of a file with certificates; `Some(None)` is no file.
    fn ca(&mut self, flag: &str, path: &str) -> Option<Option<PathBuf>> {
        if path.is_empty() {
            return Some(None);
        }
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

/// The items of a list. A flag with nothing after the `=` is one without items, as in Go's flag package.
fn list(typed: &[String]) -> &[String] {
    match typed {
        [only] if only.is_empty() => &[],
        items => items,
    }
}

#[cfg(test)]
mod tests;
