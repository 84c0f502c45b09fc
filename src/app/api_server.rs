//! Where the API server is: the addresses behind its URL, which may be virtual ones that a node must not take for its own.

use crate::base::error_chain::chain;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// How long a name may take to be resolved. The start waits for it.
const LIMIT: Duration = Duration::from_secs(5);

/// The addresses, asked for once: the host itself, or what its name stands for now. None, and a line in the log, when it
/// cannot be resolved.
pub async fn addresses(url: &http::Uri) -> Vec<IpAddr> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    let found = match tokio::time::timeout(LIMIT, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect::<BTreeSet<_>>(),
        Ok(Err(error)) => return unknown(host, &chain(&error)),
        Err(_) => return unknown(host, "no answer within 5 s"),
    };
    found.into_iter().collect()
}

fn unknown(host: &str, why: &str) -> Vec<IpAddr> {
    tracing::warn!(
        "{host}, the API server, cannot be resolved, so its addresses are not told from those of nodes: {why}"
    );
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_is_an_address_or_a_name_for_some() {
        for (url, expected) in [
            ("https://10.0.0.1:6443", vec!["10.0.0.1"]),
            ("http://192.0.2.7", vec!["192.0.2.7"]),
            ("https://[fd00::1]:6443/path", vec!["fd00::1"]),
            ("https://name.invalid:6443", vec![]),
        ] {
            let expected: Vec<IpAddr> = expected.into_iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(addresses(&url.parse().unwrap()).await, expected, "{url}");
        }
        let local = addresses(&"https://localhost:6443".parse().unwrap()).await;
        assert!(!local.is_empty() && local.iter().all(IpAddr::is_loopback), "{local:?}");
    }
}
