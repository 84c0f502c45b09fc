//! Tests of the rules for `NO_PROXY` and the proxy variables, one case for each rule.

use proptest::prelude::*;

use super::super::Endpoint;
use super::{Bypass, ProxySettings};

type Variables = &'static [(&'static str, &'static str)];

fn settings(variables: &[(&str, &str)]) -> Result<ProxySettings, String> {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    ProxySettings::from_environment(lookup)
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn proxy_of(variables: &[(&str, &str)], url: &str) -> Option<String> {
    let endpoint = Endpoint::of_url(url).unwrap();
    settings(variables).unwrap().server_for(&endpoint).map(ToString::to_string)
}

#[test]
fn no_proxy_is_read_as_go_reads_it() {
    let cases = [
        ("nothing", "", "https://vc.example.com", false),
        ("a star is everything", "*", "https://vc.example.com", true),
        ("a star among others", "a.test, *", "https://vc.example.com", true),
        ("a star is no pattern", "vc*", "https://vc.example.com", false),
        ("the host itself", "vc.example.com", "https://vc.example.com", true),
        ("another host", "vc2.example.com", "https://vc.example.com", false),
        ("a domain covers its subdomains", "example.com", "https://vc.example.com", true),
        ("a domain covers itself", "example.com", "https://example.com", true),
        ("a domain ends at a dot", "ample.com", "https://vc.example.com", false),
        (".domain covers its subdomains", ".example.com", "https://vc.example.com", true),
        (".domain does not cover itself", ".example.com", "https://example.com", false),
        ("*.domain is .domain", "*.example.com", "https://vc.example.com", true),
        ("*.domain does not cover itself", "*.example.com", "https://example.com", false),
        ("any case", "VC.Example.COM", "https://vc.example.com", true),
        ("blanks around items", "a.test , vc.example.com ,", "https://vc.example.com", true),
        ("the port of the endpoint", "vc.example.com:443", "https://vc.example.com", true),
        ("another port", "vc.example.com:8443", "https://vc.example.com", false),
        ("domain with port", ".example.com:8443", "https://vc.example.com:8443", true),
        ("an empty port is any", "vc.example.com:", "https://vc.example.com", true),
        ("a port without host", ":443", "https://vc.example.com", false),
        ("names in other scripts", "bücher.example", "https://vc.xn--bcher-kva.example", true),
        ("IPv4", "192.0.2.10", "https://192.0.2.10", true),
        ("another IPv4", "192.0.2.1", "https://192.0.2.10", false),
        ("IPv4 with port", "192.0.2.10:443", "https://192.0.2.10", true),
        ("IPv4 with another port", "192.0.2.10:80", "https://192.0.2.10", false),
        ("IPv4 is no suffix", "2.10", "https://192.0.2.10", false),
        ("IPv6", "2001:db8::10", "https://[2001:db8:0::10]", true),
        ("IPv6 with port", "[2001:db8::10]:443", "https://[2001:db8::10]", true),
        ("IPv6 with another port", "[2001:db8::10]:80", "https://[2001:db8::10]", false),
        ("IPv6 in brackets without port", "[2001:db8::10]", "https://[2001:db8::10]", true),
        ("IPv4 inside IPv6", "::ffff:192.0.2.10", "https://192.0.2.10", true),
        ("IPv4 network", "192.0.2.0/24", "https://192.0.2.10", true),
        ("a network with host bits", "192.0.2.77/24", "https://192.0.2.10", true),
        ("another network", "192.0.3.0/24", "https://192.0.2.10", false),
        ("IPv6 network", "2001:db8::/32", "https://[2001:db8::10]", true),
        ("a network says nothing of names", "0.0.0.0/0", "https://vc.example.com", false),
        ("no network", "192.0.2.0/33", "https://192.0.2.10", false),
        ("localhost, never through a proxy", "", "https://localhost", true),
        ("loopback, never through a proxy", "", "https://127.8.9.1:8443", true),
        ("IPv6 loopback, never through a proxy", "", "https://[::1]", true),
    ];
    for (name, list, url, is_direct) in cases {
        let proxy = proxy_of(&[("HTTPS_PROXY", "proxy.test:3128"), ("NO_PROXY", list)], url);
        assert_eq!(proxy.is_none(), is_direct, "{name}: {proxy:?}");
    }
}

#[test]
fn an_address_with_a_zone_is_no_domain() {
    let endpoint = Endpoint::https("fe80::1%.example.com", 443);
    assert!(!Bypass::parse("example.com").covers(&endpoint));
    assert!(Bypass::parse("fe80::/10").covers(&endpoint));
}

#[test]
fn the_proxy_is_that_of_the_scheme_with_the_upper_case_name_first() {
    let https = "https://vc.example.com";
    let cases: [(&str, Variables, &str, Option<&str>); 13] = [
        ("none", &[], https, None),
        ("upper case", &[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:2")], https, Some("http://a:1")),
        ("lower case", &[("https_proxy", "http://b:2")], https, Some("http://b:2")),
        ("an empty one is not set", &[("HTTPS_PROXY", ""), ("https_proxy", "http://b:2")], https, Some("http://b:2")),
        ("that of HTTP is for HTTP", &[("HTTP_PROXY", "http://a:1")], https, None),
        ("HTTP", &[("http_proxy", "http://a:1")], "http://manager", Some("http://a:1")),
        ("ALL_PROXY is not known to Go", &[("ALL_PROXY", "http://a:1")], https, None),
        ("no scheme is http", &[("HTTPS_PROXY", "proxy.test:3128")], https, Some("http://proxy.test:3128")),
        ("no port", &[("HTTPS_PROXY", "http://proxy.test")], https, Some("http://proxy.test:80")),
        ("over TLS", &[("HTTPS_PROXY", "https://proxy.test")], https, Some("https://proxy.test:443")),
        ("SOCKS", &[("HTTPS_PROXY", "socks5://proxy.test")], https, Some("socks5://proxy.test:1080")),
        ("an IPv6 address", &[("HTTPS_PROXY", "http://[2001:db8::1]:8/")], https, Some("http://[2001:db8::1]:8")),
        ("lower-case NO_PROXY", &[("HTTPS_PROXY", "a:1"), ("no_proxy", "vc.example.com")], https, None),
    ];
    for (name, variables, url, expected) in cases {
        assert_eq!(proxy_of(variables, url).as_deref(), expected, "{name}");
    }
}

#[test]
fn user_and_password_are_kept_and_never_shown() {
    for value in
        ["http://ccm:hunter2@proxy.test:3128", "ccm:hunter2@proxy.test:3128", "socks5://ccm:hunter2@proxy.test"]
    {
        let settings = settings(&[("HTTPS_PROXY", value)]).unwrap();
        let server = settings.server_for(&Endpoint::https("vc", 443)).unwrap();
        let url = secrecy::ExposeSecret::expose_secret(&server.url);
        assert!(url.contains("ccm:hunter2@proxy.test"), "{url}");
        for shown in [format!("{settings:?}"), format!("{server:?}"), server.to_string()] {
            assert!(shown.contains("proxy.test") && !shown.contains("hunter2") && !shown.contains("ccm"), "{shown}");
        }
    }
}

#[test]
fn a_url_among_the_exceptions_excepts_nothing_and_is_not_shown() {
    for value in ["http://ccm:hunter2@proxy.test", "ccm:hunter2@proxy.test:1", "hunter2/x", "://u:hunter2@"] {
        let settings = settings(&[("HTTPS_PROXY", "proxy.test"), ("NO_PROXY", value)]).unwrap();
        assert!(settings.server_for(&Endpoint::https("proxy.test", 443)).is_some(), "{value}");
        assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
    }
}

#[test]
fn every_value_that_is_no_proxy_is_told_without_it() {
    let bad =
        ["ftp://ccm:hunter2@proxy.test", "http://ccm:hunter2@", "http://ccm:hunt#er2@proxy:x", "://hunter2", "a b"];
    for value in bad {
        let reported = settings(&[("https_proxy", value), ("HTTP_PROXY", value)]).unwrap_err();
        assert_eq!(reported.lines().count(), 2, "{value}: {reported}");
        assert!(reported.starts_with("environment variable https_proxy: "), "{value}: {reported}");
        assert!(reported.contains("expected a proxy such as http://proxy.example.com:3128"), "{reported}");
        assert!(!reported.contains("hunter2") && !reported.contains("ccm"), "{reported}");
    }
}

proptest! {
    #[test]
    fn any_text_in_the_variables_is_read_without_panic(list in ".*", proxy in ".*", host in "[a-z0-9.:%]{1,20}") {
        let endpoint = Endpoint::https(&host, 443);
        let bypass = Bypass::parse(&list);
        prop_assert_eq!(bypass.covers(&endpoint), bypass.covers(&endpoint));
        if let Ok(settings) = settings(&[("HTTPS_PROXY", &proxy), ("NO_PROXY", &list)]) {
            let _ = settings.server_for(&endpoint);
        }
    }

    #[test]
    fn whatever_else_is_listed_a_listed_host_is_direct(list in "[ -~]{0,40}", name in "[a-z]{1,8}\\.[a-z]{2,8}") {
        let endpoint = Endpoint::https(&name, 443);
        let all = format!("{},{name}", list);
        prop_assert!(Bypass::parse(&all).covers(&endpoint), "{}", all);
    }
}
