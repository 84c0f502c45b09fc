//! No kind of secret is left in a part of a bundle, in whatever form it is there.

use super::*;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const PASSWORD: &str = "Hors3<&>Battery/+%7";
const USER: &str = "ccm@vsphere.local";
const VMC_TOKEN: &str = "Zt0q-vmc.refresh~token_71";
const SHORT: &str = "s3cr!t";

fn masks() -> SecretMasks {
    SecretMasks::new([PASSWORD, VMC_TOKEN, SHORT, "ab", ""], BTreeSet::new())
}

/// Returns all parts of the secret with eight bytes.
fn parts(secret: &str) -> impl Iterator<Item = &str> {
    (0..secret.len()).filter_map(|start| secret.get(start..start + GRAM))
}

#[test]
fn a_known_secret_is_removed_in_every_encoding_and_in_parts() {
    let pair = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let in_file = STANDARD.encode(format!("[Global]\nuser = {USER}\npassword = {PASSWORD}\n"));
    let url_safe = URL_SAFE_NO_PAD.encode(PASSWORD);
    let xml = "Hors3&lt;&amp;&gt;Battery/+%7";
    for text in [
        PASSWORD.to_owned(),
        format!("{:?}", [PASSWORD]),
        json!({"a": PASSWORD}).to_string(),
        format!("<x>{xml}</x>"),
        "https://host/?x=Hors3%3C%26%3EBattery%2F%2B%257".to_owned(),
        pair,
        in_file,
        url_safe,
        format!("cut off: {}", PASSWORD.get(..12).unwrap()),
        format!("the rest: {}", PASSWORD.get(7..).unwrap()),
        format!("é{PASSWORD}é"),
        format!("{VMC_TOKEN}{PASSWORD}"),
    ] {
        let shown = masks().text(&text);
        assert!(shown.contains(MASK), "{text}: {shown}");
        for part in parts(PASSWORD).chain(parts(VMC_TOKEN)).chain(parts(xml)) {
            assert!(!shown.contains(part), "{part} of {text}: {shown}");
        }
        for offset in 0..3 {
            let bytes = [vec![b'x'; offset], PASSWORD.as_bytes().to_vec()].concat();
            let encoded = STANDARD_NO_PAD.encode(bytes);
            for part in parts(encoded.get(4..24).unwrap()) {
                assert!(!shown.contains(part), "{part} of {text}: {shown}");
            }
        }
    }
    assert_eq!(masks().text("é s3cr!t, ab"), "é ***, ab", "a text of two bytes is no secret");
    assert_eq!(masks().text(&format!("a {PASSWORD} b")), "a *** b");
}

#[test]
fn an_unknown_secret_is_removed_by_its_form() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----";
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjY20ifQ.c2lnbmF0dXJl";
    for (text, expected) in [
        (format!("a {key} b"), "a *** b".to_owned()),
        (format!("{key:?}"), "\"***\"".to_owned()),
        ("cut off: -----BEGIN PRIVATE KEY-----\nMII".to_owned(), "cut off: ***".to_owned()),
        (format!("key {}", STANDARD.encode(key)), "key ***".to_owned()),
        (format!("x={token}, y"), "x=***, y".to_owned()),
        (format!("Authorization: Bearer {token}"), "Authorization: ***".to_owned()),
        ("bearer abcdefgh+/=, next".to_owned(), "bearer ***, next".to_owned()),
        ("sent Basic dXNlcjpwYXNzd29yZA==".to_owned(), "sent Basic ***".to_owned()),
        ("proxy http://ccm:pa:ss@proxy:3128/x".to_owned(), "proxy http://***@proxy:3128/x".to_owned()),
        ("password = a b".to_owned(), "password = *** b".to_owned()),
        ("password=\"a b\", x".to_owned(), "password=\"***\", x".to_owned()),
        ("{\"token\":\"abc\",\"x\":1}".to_owned(), "{\"token\":\"***\",\"x\":1}".to_owned()),
        ("\"{\\\"password\\\": \\\"a b\\\"}\"".to_owned(), "\"{\\\"password\\\": \\\"***\\\"}\"".to_owned()),
        ("vmware_soap_session=52f4; x".to_owned(), "vmware_soap_session=***; x".to_owned()),
        ("vmware-api-session-id: 7f3a".to_owned(), "vmware-api-session-id: ***".to_owned()),
        ("Cookie: JSESSIONID=7; a=b\nnext".to_owned(), "Cookie: ***\nnext".to_owned()),
        ("SERVER.vc-session-manager-token: t0k".to_owned(), "SERVER.vc-session-manager-token: ***".to_owned()),
        ("VSPHERE_PASSWORD=a1, nsxtPassword: b2".to_owned(), "VSPHERE_PASSWORD=***, nsxtPassword: ***".to_owned()),
        (r"line 1\npassword = x\n\ttoken: y".to_owned(), r"line 1\npassword = ***\n\ttoken: ***".to_owned()),
        (format!(r"two lines\n{token}"), r"two lines\n***".to_owned()),
        ("<vim25:password>a1</vim25:password>".to_owned(), "<vim25:password>***</vim25:password>".to_owned()),
        ("<password xsi:type=\"xsd:string\">a1<".to_owned(), "<password xsi:type=\"xsd:string\">***<".to_owned()),
        ("password: Some(\"a b\"), x".to_owned(), "password: Some(\"***\"), x".to_owned()),
    ] {
        assert_eq!(SecretMasks::default().text(&text), expected, "{text}");
    }
}

#[test]
fn other_text_stays_as_it_is() {
    for text in [
        "",
        "secret_name: \"vsphere-cloud-secret\"",
        "password=\"\", token=''",
        "authentication-token-webhook-cache-ttl=10s",
        "Secret kube-system/vsphere-cloud-secret, password of the cloud config",
        "https://vc.example.com:443/sdk and vsphere://4211a1b2",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        "token::read, a --- b",
        "einé Straße",
    ] {
        assert_eq!(masks().text(text), text);
    }
}

#[test]
fn the_fields_of_documents_and_their_keys_are_masked() {
    let document = json!({
        "Password": "x",
        "nsxPassword": "y",
        "token": {"ref": 7},
        "note": format!("it is {PASSWORD}"),
        PASSWORD: [format!("{VMC_TOKEN}!"), null, true],
    });
    let expected = json!({
        "Password": "***",
        "nsxPassword": "***",
        "token": {"ref": 7},
        "note": "it is ***",
        "***": ["***!", null, true],
    });
    assert_eq!(masks().document(document), expected);
}

#[test]
fn user_names_are_removed_if_the_command_asks_for_it() {
    let users = BTreeSet::from(["ccm", USER, "CORP\\admin", ""].map(str::to_owned));
    let masks = SecretMasks::new([], users);
    assert_eq!(masks.text("user: \"CORP\\\\admin\", corp\\ADMIN, CCM@vsphere.local"), "user: \"***\", ***, ***");
    assert_eq!(masks.text("ccm@vsphere.local and ccm"), "*** and ***");
    assert_eq!(SecretMasks::default().text(USER), USER);
}
