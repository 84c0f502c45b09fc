//! The permissions with which the secure port asks who its clients are and what they may. Each question may go to an API
//! server of its own, with a kubeconfig of its own.

use super::{NeededPermission, PermissionList, ReviewClients};
use crate::app::access::client_of;
use crate::app::settings::Settings;
use crate::base::error_chain::chain;
use std::path::PathBuf;

const AUTHENTICATION: &str = "--authentication-kubeconfig";
const AUTHORIZATION: &str = "--authorization-kubeconfig";

/// The ConfigMap with the CAs of client certificates.
const CLIENT_CAS: &str = "extension-apiserver-authentication";

/// The settings of the secure port from which permissions follow.
pub(super) struct SecurePortPermissions {
    authentication: Option<PathBuf>,
    authorization: Option<PathBuf>,
    /// Whether the CAs of client certificates are those that the API server publishes.
    reads_client_cas: bool,
    /// `--authentication-tolerate-lookup-failure`.
    tolerates_lookup_failure: bool,
}

impl SecurePortPermissions {
    /// Extracts the settings; `None` without the port.
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        settings.serving.as_ref()?;
        let authentication = &settings.authentication;
        Some(Self {
            authentication: authentication.kubeconfig.clone(),
            authorization: settings.authorization.kubeconfig.clone(),
            reads_client_cas: authentication.client_ca.is_none() && !authentication.skips_lookup,
            tolerates_lookup_failure: authentication.tolerates_lookup_failure,
        })
    }

    /// Returns the clients of the kubeconfigs that are given. `default` is the client of this process.
    ///
    /// # Errors
    /// A kubeconfig cannot be used, for this reason.
    pub(super) async fn clients(&self, default: &kube::Client) -> Result<ReviewClients, String> {
        let mut clients = ReviewClients::new();
        for (flag, path) in [(AUTHENTICATION, &self.authentication), (AUTHORIZATION, &self.authorization)] {
            if path.is_some() {
                let client = client_of(path.as_deref(), default).await;
                clients.insert(Some(flag), client.map_err(|error| format!("{flag}: {}", chain(&error)))?);
            }
        }
        Ok(clients)
    }

    /// Returns the permissions.
    pub(super) fn needed(&self) -> Vec<NeededPermission> {
        let mut authentication = PermissionList::default();
        let consequence = "tokens are not accepted at the secure port, so that /metrics answers 401";
        authentication.want(&["create"], "tokenreviews", None, None, consequence);
        if self.reads_client_cas {
            let (namespace, name) = (Some("kube-system"), Some(CLIENT_CAS));
            match self.tolerates_lookup_failure {
                true => {
                    let consequence = "client certificates are not accepted at the secure port";
                    authentication.want(&["get"], "configmaps", namespace, name, consequence);
                }
                // The process does not start without.
                false => authentication.require(&["get"], "configmaps", namespace, name),
            }
        }
        let mut authorization = PermissionList::default();
        let consequence = "clients cannot read /metrics at the secure port";
        authorization.want(&["create"], "subjectaccessreviews", None, None, consequence);
        let flagged = |list: PermissionList, flag: Option<&'static str>| {
            list.0.into_iter().map(move |needed| NeededPermission { kubeconfig_flag: flag, ..needed })
        };
        let authentication_flag = self.authentication.as_ref().map(|_| AUTHENTICATION);
        let authorization_flag = self.authorization.as_ref().map(|_| AUTHORIZATION);
        flagged(authentication, authentication_flag).chain(flagged(authorization, authorization_flag)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the flag, whether the process does not work without it, and the text of each permission.
    fn permissions(port: &SecurePortPermissions) -> Vec<(Option<&'static str>, bool, String)> {
        let row = |needed: NeededPermission| {
            (needed.kubeconfig_flag, needed.consequence.is_none(), needed.permission.to_string())
        };
        port.needed().into_iter().map(row).collect()
    }

    #[test]
    fn each_question_is_asked_with_its_own_kubeconfig() {
        let mut port = SecurePortPermissions {
            authentication: None,
            authorization: Some("/etc/authorization.conf".into()),
            reads_client_cas: true,
            tolerates_lookup_failure: false,
        };
        let tokens = || "create tokenreviews".to_owned();
        let access = || "create subjectaccessreviews".to_owned();
        let cas = || "get configmaps kube-system/extension-apiserver-authentication".to_owned();
        let expected = [(None, false, tokens()), (None, true, cas()), (Some(AUTHORIZATION), false, access())];
        assert_eq!(permissions(&port), expected);
        port.tolerates_lookup_failure = true;
        assert_eq!(permissions(&port)[1], (None, false, cas()));
        port.reads_client_cas = false;
        port.authentication = Some("/etc/authentication.conf".into());
        assert_eq!(
            permissions(&port),
            [(Some(AUTHENTICATION), false, tokens()), (Some(AUTHORIZATION), false, access())]
        );
    }
}
