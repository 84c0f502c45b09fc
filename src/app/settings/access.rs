//! The flags about who asks at the secure port and what they may.

use super::Check;
use crate::kubernetes::access::{Authentication, Authorization};

impl Check<'_> {
    pub(super) fn authentication(&mut self) -> Option<Authentication> {
        let options = &self.options.authentication;
        let flag = "--authentication-token-webhook-cache-ttl";
        let cache = self.duration(flag, &options.authentication_token_webhook_cache_ttl);
        Some(Authentication {
            kubeconfig: None,
            skips_lookup: false,
            tolerates_lookup_failure: false,
            cache: cache?,
            client_ca: None,
            request_header: None,
        })
    }

    pub(super) fn authorization(&mut self) -> Option<Authorization> {
        let options = &self.options.authorization;
        let flag = "--authorization-webhook-cache-authorized-ttl";
        let allowed = self.duration(flag, &options.authorization_webhook_cache_authorized_ttl);
        let flag = "--authorization-webhook-cache-unauthorized-ttl";
        let refused = self.duration(flag, &options.authorization_webhook_cache_unauthorized_ttl);
        Some(Authorization {
            kubeconfig: None,
            always_allow: options.authorization_always_allow_paths.clone(),
            allowed_cache: allowed?,
            refused_cache: refused?,
        })
    }
}
