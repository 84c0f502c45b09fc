//! The in-cluster configuration: the server from the environment, and the files of the pod's service account.
//!
//! Mirrors `InClusterConfig` of client-go (`rest/config.go`). The token must be readable. If the authorities cannot be
//! read, an error is logged, and the system's authorities apply until the file can be read. The file `namespace` is not
//! read.

use std::io;
use std::path::{Path, PathBuf};

use kube::Config;

use super::files::read_file;
use super::{identity, verifier};

/// Folder in which the kubelet mounts the files of the service account.
pub(super) const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// The error for a missing or invalid in-cluster configuration.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A variable of the API server is missing or empty, so this process does not run in a pod.
    #[error("the variables {HOST} and {PORT} are not set")]
    NoServer,
    /// The variables do not form a valid URL.
    #[error("the variables {HOST} and {PORT} are not a host and a port")]
    Server(#[source] http::uri::InvalidUri),
    /// The variable `KUBERNETES_SERVICE_PORT` is invalid.
    #[error("the variable {PORT} is not a port from 1 to 65535")]
    Port,
    /// The token cannot be read from this path.
    #[error("cannot read the token {}", .0.display())]
    Token(PathBuf, #[source] io::Error),
}

/// Builds the in-cluster configuration from environment variables and the service account's files in `folder`.
pub(super) fn config(variable: impl Fn(&str) -> Option<String>, folder: &Path) -> Result<Config, PodError> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).ok_or(PodError::NoServer);
    let (host, port) = (variable(HOST)?, variable(PORT)?);
    // Checked here, because a URL accepts any number as port, and the client would then use another port.
    let port: std::num::NonZeroU16 = port.parse().map_err(|_| PodError::Port)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let mut config = Config::new(format!("https://{host}:{port}").parse().map_err(PodError::Server)?);
    let token = folder.join("token");
    read_file(&token).map_err(|error| PodError::Token(token.clone(), error))?;
    config.auth_info.token_file = Some(token.display().to_string());
    let authorities = folder.join("ca.crt");
    match read_file(&authorities).map(|text| verifier::read_bundle(&text)) {
        Ok(listed) if !listed.is_empty() => config.root_cert = Some(listed),
        unusable => {
            let reason =
                unusable.err().map_or("there is no certificate in PEM form".to_owned(), |e| identity::unreadable(&e));
            tracing::error!(
                "the certificate of the API server is checked with the system's trusted certificates until {} can be \
                 used: {reason}",
                authorities.display()
            );
        }
    }
    config.root_cert_file = Some(authorities);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use support::Log;

    use super::*;
    use crate::base::error_chain::chain;

    const CA: &str = include_str!("../../../tests/golden/credentials/ca.crt");

    fn variable(name: &str) -> Option<String> {
        Some(if name == HOST { "10.96.0.1" } else { "443" }.to_owned())
    }

    #[test]
    fn authorities_that_cannot_be_read_are_logged_and_do_not_end_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        std::fs::write(folder.path().join("token"), "t").unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        let no_certificate = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for (form, content, listed, reason) in [
            ("one", Some(CA.to_owned()), Some(1), ""),
            ("a broken block beside it", Some(format!("{broken}{CA}")), Some(1), ""),
            ("a block that is no certificate beside it", Some(format!("{no_certificate}{CA}")), Some(1), ""),
            ("a broken block alone", Some(broken.to_owned()), None, "there is no certificate in PEM form"),
            ("nothing in it", Some(String::new()), None, "there is no certificate in PEM form"),
            ("no file", None, None, "the file cannot be read: No such file or directory (os error 2)"),
        ] {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let log = Log::keep();
            let config = config(variable, folder.path()).unwrap();
            assert_eq!(config.root_cert.map(|listed| listed.len()), listed, "{form}");
            assert_eq!(config.root_cert_file.as_ref(), Some(&path), "{form}: read again later");
            let reported = log.lines("ERROR");
            let named = format!("{} can be used: {reason}", path.display());
            assert_eq!(reported.iter().any(|line| line.ends_with(&named)), listed.is_none(), "{form}: {reported:?}");
        }
    }

    #[test]
    fn the_server_is_that_of_the_environment_and_without_a_token_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |host: &str, port: &str| {
            let (host, port) = (host.to_owned(), port.to_owned());
            let variable = move |name: &str| Some(if name == HOST { host.clone() } else { port.clone() });
            match config(variable, folder.path()) {
                Ok(config) => config.cluster_url.to_string(),
                Err(error) => chain(&error).replace(&folder.path().display().to_string(), "/x"),
            }
        };
        let unset = "the variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set";
        assert_eq!(of("", "443"), unset);
        assert_eq!(of("10.96.0.1", ""), unset);
        assert_eq!(of("a", "443"), "cannot read the token /x/token: No such file or directory (os error 2)");
        std::fs::write(folder.path().join("token"), "t").unwrap();
        assert_eq!(of("10.96.0.1", "443"), "https://10.96.0.1:443/");
        assert_eq!(of("fd00::1", "6443"), "https://[fd00::1]:6443/");
        assert!(of("a b", "443").starts_with("the variables KUBERNETES_SERVICE_HOST and"), "{}", of("a b", "443"));
    }

    #[test]
    fn what_is_no_port_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        for port in ["0", "70000", "443abc"] {
            let of = |name: &str| Some(if name == PORT { port } else { "10.96.0.1" }.to_owned());
            let error = config(of, folder.path()).unwrap_err().to_string();
            assert_eq!(error, "the variable KUBERNETES_SERVICE_PORT is not a port from 1 to 65535", "{port}");
        }
    }
}
