//! What ConfigMap `kube-system/extension-apiserver-authentication` says: the CAs of clients and of proxies.

use std::collections::BTreeMap;

use super::request_headers::RequestHeaders;
use super::trust::ProxySettings;

/// What the API server publishes about whom it believes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Published {
    /// CAs of client certificates, PEM.
    pub(super) client_ca: Option<String>,
    /// CAs of proxies, PEM, and how those say who asks.
    pub(super) proxies: Option<(String, ProxySettings)>,
}

/// A key whose value is no list.
#[derive(Debug, thiserror::Error)]
#[error("{key} is not a list of texts in JSON")]
pub(super) struct BadList {
    key: &'static str,
    source: serde_json::Error,
}

/// Reads the data of the ConfigMap. A key that is missing or empty says nothing. A list that is none says nothing of
/// proxies either, and is told beside the rest: the CAs of clients must be exchanged all the same.
pub(super) fn read(data: &BTreeMap<String, String>) -> (Published, Option<BadList>) {
    let client_ca = text(data, "client-ca-file").cloned();
    match proxies(data) {
        Ok(proxies) => (Published { client_ca, proxies }, None),
        Err(error) => (Published { client_ca, proxies: None }, Some(error)),
    }
}

fn text<'a>(data: &'a BTreeMap<String, String>, key: &str) -> Option<&'a String> {
    data.get(key).filter(|value| !value.trim().is_empty())
}

fn proxies(data: &BTreeMap<String, String>) -> Result<Option<(String, ProxySettings)>, BadList> {
    let list = |key: &'static str| match text(data, key) {
        None => Ok(Vec::new()),
        Some(value) => serde_json::from_str::<Vec<String>>(value).map_err(|source| BadList { key, source }),
    };
    let Some(ca) = text(data, "requestheader-client-ca-file").cloned() else { return Ok(None) };
    let headers = RequestHeaders {
        username: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefixes: list("requestheader-extra-headers-prefix")?,
    };
    let allowed_names = list("requestheader-allowed-names")?;
    Ok(Some((ca, ProxySettings { allowed_names, headers })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_keys_of_the_config_map_are_read() {
        let all = data(&[
            ("client-ca-file", "one"),
            ("requestheader-client-ca-file", "two"),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group", "x-team"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("else", "{"),
        ]);
        let headers = RequestHeaders {
            username: vec!["X-Remote-User".to_owned()],
            uid: vec!["X-Remote-Uid".to_owned()],
            group: vec!["X-Remote-Group".to_owned(), "x-team".to_owned()],
            extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
        };
        let settings = ProxySettings { allowed_names: vec!["front-proxy-client".to_owned()], headers };
        let expected = Published { client_ca: Some("one".to_owned()), proxies: Some(("two".to_owned(), settings)) };
        let (published, wrong) = read(&all);
        assert_eq!(published, expected);
        assert!(wrong.is_none());
    }

    #[test]
    fn keys_that_are_missing_or_empty_say_nothing() {
        assert_eq!(read(&data(&[])).0, Published::default());
        let empty = data(&[("client-ca-file", ""), ("requestheader-client-ca-file", "\n")]);
        assert_eq!(read(&empty).0, Published::default());
        let bare = read(&data(&[("requestheader-client-ca-file", "two")])).0;
        assert_eq!(bare.proxies, Some(("two".to_owned(), ProxySettings::default())));
    }

    #[test]
    fn a_list_that_is_none_is_told_by_its_key_and_leaves_the_cas_of_clients() {
        for value in ["X-Remote-User", "{}", "[1]", "null"] {
            let entries = [
                ("client-ca-file", "one"),
                ("requestheader-client-ca-file", "two"),
                ("requestheader-username-headers", value),
            ];
            let (published, wrong) = read(&data(&entries));
            let error = wrong.unwrap().to_string();
            assert_eq!(error, "requestheader-username-headers is not a list of texts in JSON", "{value}");
            assert_eq!(published, Published { client_ca: Some("one".to_owned()), proxies: None });
        }
    }
}
