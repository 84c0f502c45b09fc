//! Tests that every field that may hold a password is wiped on drop, in all types of the parser.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::super::fields::{Dialect, RawValue, dialect_of};
use super::super::gcfg::{self, Item};
use super::super::{ini, yaml};
use super::*;
use crate::base::yaml::{Aliases, Value, parse_document};

/// Compiles only if the type wipes itself on drop.
fn is_wiped<T: ZeroizeOnDrop>(_: &T) {}

const INI: &str = "[Global]\nserver=s\nuser=u\npassword=\"hunter2\"\ndatacenters=d\n";
const YAML: &str = "global: {server: s, user: u, password: hunter2, datacenters: [d]}";

#[test]
fn scanned_values_are_wiped() {
    let (items, _) = gcfg::scan(INI);
    let values = items.iter().filter_map(|item| match item {
        Item::Variable { value, .. } => value.as_ref(),
        Item::Section { .. } => None,
    });
    assert_eq!(values.inspect(|value| is_wiped(*value)).count(), 4);

    let Ok(document) = parse_document(YAML, Aliases::Copied) else { panic!("YAML") };
    let Value::Map(top) = &document.value else { panic!("a mapping") };
    let Value::Map(fields) = &top[0].node.value else { panic!("a mapping") };
    let Value::Scalar { text, .. } = &fields[2].node.value else { panic!("a scalar") };
    is_wiped(text);
    assert_eq!(text.as_str(), "hunter2");
}

#[test]
fn raw_values_are_wiped_in_both_dialects() {
    let mut report = ProblemReport::new("f");
    for raw in [ini::read(INI, &mut report), yaml::read(YAML, &mut report)] {
        let mut texts = 0;
        for field in &raw.global.fields {
            match &field.value {
                RawValue::Text(text) => {
                    is_wiped(text);
                    texts += 1;
                }
                RawValue::List(items) => items.iter().for_each(is_wiped),
                RawValue::Map(entries) => entries.iter().for_each(|(_, text)| is_wiped(text)),
                RawValue::Unset | RawValue::Flag(_) | RawValue::Number(_) | RawValue::Mistake => {}
            }
        }
        assert!(texts >= 3, "server, user, password");
        assert_eq!(raw.global.text("password"), Some("hunter2"));
    }
    assert_eq!(report.count(), 0);
    assert_eq!(dialect_of(INI), Dialect::Ini);
}

#[test]
fn checked_passwords_are_wiped() {
    for text in [INI, YAML] {
        let config = config("wiped", text);
        let Credentials::Inline { password, .. } = &config.vcenters[0].credentials else { panic!("inline") };
        is_wiped(password);
        assert_eq!(password.expose_secret(), "hunter2");
    }
    for (login, given) in [
        ("user = u\npassword = hunter2", "Password"),
        ("secret-name = n\nsecret-namespace = ns\nuser = u\npassword = hunter2", "Secret"),
        ("vmc-access-token = hunter2\nvmc-auth-host = h", "VmcToken"),
    ] {
        let config = config(given, &format!("{INI}[NSXT]\nhost = h\n{login}\n"));
        let secret = match &config.nsx.used().unwrap().login {
            NsxLogin::VmcToken { token: secret, .. }
            | NsxLogin::Pair { credentials: Credentials::Inline { password: secret, .. }, .. }
            | NsxLogin::Pair { fallback: Some(Credentials::Inline { password: secret, .. }), .. } => secret,
            other => panic!("{other:?}"),
        };
        is_wiped(secret);
        assert_eq!(secret.expose_secret(), "hunter2");
        let shown = format!("{config:?}");
        assert!(shown.contains(given) && !shown.contains("hunter2"), "{shown}");
    }
}

/// A borrowed buffer. The test can read it after the drop, which is not possible with released memory.
struct Borrowed<'a>(&'a mut [u8]);

impl Zeroize for Borrowed<'_> {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

#[test]
fn wiped_means_overwritten_with_zeros() {
    let mut buffer = *b"hunter2";
    drop(Zeroizing::new(Borrowed(&mut buffer)));
    assert_eq!(buffer, [0; 7]);
}

/// The parser builds a value character by character. When a buffer is full, the value is copied and the old buffer is
/// wiped.
#[test]
fn a_value_that_grows_stays_whole() {
    let long = "p\u{e4}ss ".repeat(10_000);
    let (items, errors) = gcfg::scan(&format!("[s]\nk = \"{long}\"\n"));
    assert!(errors.is_empty());
    let Some(Item::Variable { value: Some(value), .. }) = items.last() else { panic!("a variable") };
    assert_eq!(value.as_str(), long);
}
