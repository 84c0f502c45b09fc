//! The flags about who asks at the secure port and what they may.

use super::Check;
use crate::app::files::Files;
use crate::base::error_chain::chain;
use crate::kubernetes::access::{
    Authentication, Authorization, OpenPaths, ProxySettings, RequestHeaderFiles, RequestHeaders, check_bundle,
};
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
        let request_header = self.request_header();
        Some(Authentication {
            kubeconfig: kubeconfig?,
            skips_lookup: skips_lookup?,
            tolerates_lookup_failure: tolerates_lookup_failure?,
            cache: cache?,
            client_ca: client_ca?,
            request_header: request_header?,
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

    /// `Some(None)` is without proxies. Their flags count only with their CAs, as in the Go program, but are checked
    /// always.
    fn request_header(&mut self) -> Option<Option<RequestHeaderFiles>> {
        let options = &self.options.authentication;
        let username_headers = self.words("--requestheader-username-headers", &options.requestheader_username_headers);
        let uid_headers = self.words("--requestheader-uid-headers", &options.requestheader_uid_headers);
        let group_headers = self.words("--requestheader-group-headers", &options.requestheader_group_headers);
        let flag = "--requestheader-extra-headers-prefix";
        let extra_prefixes = self.words(flag, &options.requestheader_extra_headers_prefix);
        let allowed_names = self.words("--requestheader-allowed-names", &options.requestheader_allowed_names);
        let ca = self.ca("--requestheader-client-ca-file", &options.requestheader_client_ca_file);
        let (Some(username_headers), Some(uid_headers), Some(group_headers)) =
            (username_headers, uid_headers, group_headers)
        else {
            return None;
        };
        let (extra_prefixes, allowed_names) = (extra_prefixes?, allowed_names?);
        let headers =
            RequestHeaders { username: username_headers, uid: uid_headers, group: group_headers, extra_prefixes };
        Some(ca?.map(|ca| RequestHeaderFiles { ca, proxies: ProxySettings { allowed_names, headers } }))
    }

    /// The items of a list, of which none may be blank.
    fn words(&mut self, flag: &str, typed: &[String]) -> Option<Vec<String>> {
        let words = list(typed);
        if words.iter().any(|word| word.trim().is_empty()) {
            return self.wrong(flag, &typed.join(","), "expected names with commas in between, none of them empty");
        }
        Some(words.to_vec())
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
