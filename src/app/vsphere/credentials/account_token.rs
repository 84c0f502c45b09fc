//! The token of this process's service account, for session managers that are given no other.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use secrecy::zeroize::Zeroize;

use crate::providers::vsphere::credentials::ReadToken;

/// Where the kubelet puts it.
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How long reading it may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Reads the file at each use, since the kubelet renews it.
pub struct AccountToken {
    path: PathBuf,
}

impl Default for AccountToken {
    fn default() -> Self {
        Self { path: PathBuf::from(PATH) }
    }
}

#[async_trait]
impl ReadToken for AccountToken {
    async fn read(&self) -> Result<SecretString, String> {
        let failed = |why: String| format!("the service account's token {} cannot be read: {why}", self.path.display());
        let mut bytes = match tokio::time::timeout(LIMIT, tokio::fs::read(&self.path)).await {
            Ok(read) => read.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no answer within {} s", LIMIT.as_secs()))),
        };
        let token = match std::str::from_utf8(&bytes).map(str::trim) {
            Ok("") => Err(failed("it is empty".to_owned())),
            Ok(text) => Ok(SecretString::from(text)),
            Err(_) => Err(failed("it is not text".to_owned())),
        };
        bytes.zeroize();
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[tokio::test]
    async fn the_token_is_read_anew_at_each_use_and_a_failure_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = AccountToken { path: path.clone() };
        let failed = |why: &str| format!("the service account's token {} cannot be read: {why}", path.display());
        assert!(token.read().await.unwrap_err().starts_with(&failed("No such file")));
        for (content, expected) in [("one\n", "one"), ("another", "another")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(token.read().await.unwrap().expose_secret(), expected);
        }
        for (content, why) in [(&b"\n"[..], "it is empty"), (b"\xff", "it is not text")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(token.read().await.unwrap_err(), failed(why));
        }
    }
}
