//! Pure: what a proxy says of who asks, as `request/headerrequest` of `kubernetes/apiserver` reads it.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use crate::runtime::admin::access::User;

/// Which headers say who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHeaders {
    /// The user's name: the first of them that is there.
    pub username: Vec<String>,
    /// The user's UID, likewise.
    pub uid: Vec<String>,
    /// Its groups: all of them.
    pub group: Vec<String>,
    /// Beginnings of headers with further facts.
    pub extra_prefixes: Vec<String>,
}

impl RequestHeaders {
    /// The user; nobody without a name.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.username)?;
        let groups = self.group.iter().flat_map(|name| values(headers, name)).filter(|group| !group.is_empty());
        let groups = groups.collect();
        Some(User { name, uid: first(headers, &self.uid).unwrap_or_default(), groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(&prefix) {
                    extra.entry(unescaped(key)).or_default().push(text(value));
                }
            }
        }
        extra
    }
}

/// The first value of the first of these headers that has one.
fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().filter_map(|name| values(headers, name).next()).find(|value| !value.is_empty())
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + use<'a> {
    headers.get_all(name.to_ascii_lowercase()).into_iter().map(text)
}

/// What is no UTF-8 cannot be told to the API server.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Without percent encoding; as it is where that is broken.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else { return key.to_owned() };
        bytes.push(high * 16 + low);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn usual() -> RequestHeaders {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        RequestHeaders {
            username: words(&["X-Remote-User", "x-user"]),
            uid: words(&["X-Remote-Uid"]),
            group: words(&["X-Remote-Group", "x-team"]),
            extra_prefixes: words(&["X-Remote-Extra-", "x-more-"]),
        }
    }

    #[test]
    fn headers_name_the_user_its_uid_groups_and_further_facts() {
        let headers = map(&[
            ("x-remote-user", "jane"),
            ("x-user", "john"),
            ("x-team", "c"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "b"),
            ("x-remote-uid", "7"),
            ("x-more-Scopes", "z"),
            ("X-Remote-Extra-Scopes", "x"),
            ("X-Remote-Extra-Scopes", "y"),
            ("x-remote-extra-example.com%2fkey%20a", "1"),
            ("x-remote-extra-broken%2", "2"),
            ("x-remote-extra-broken%zz", "3"),
            ("x-remote-extra-", "4"),
            ("accept", "*/*"),
        ]);
        let jane = usual().user(&headers).unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "7"));
        assert_eq!(jane.groups, ["a", "b", "c"]);
        let extra: Vec<_> = jane.extra.iter().map(|(key, values)| (key.as_str(), values.join(","))).collect();
        let expected =
            [("", "4"), ("broken%2", "2"), ("broken%zz", "3"), ("example.com/key a", "1"), ("scopes", "x,y,z")];
        assert_eq!(extra, expected.map(|(key, values)| (key, values.to_owned())));
    }

    #[test]
    fn nobody_is_named_without_a_name() {
        for headers in [map(&[]), map(&[("x-remote-user", "")]), map(&[("x-remote-group", "system:masters")])] {
            assert_eq!(usual().user(&headers), None, "{headers:?}");
        }
        let second = usual().user(&map(&[("x-remote-user", ""), ("x-user", "john")])).unwrap();
        assert_eq!((second.name.as_str(), second.groups.len()), ("john", 0));
        assert_eq!(RequestHeaders::default().user(&map(&[("x-remote-user", "jane")])), None);
    }
}
