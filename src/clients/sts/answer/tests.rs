//! Tests with answers of the token service: the assertion is extracted byte for byte, faults are read, and all other
//! answers are rejected.

use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::{TokenAnswer, read};

const ASSERTION: &str = "<saml2:Assertion xmlns:saml2=\"urn:oasis:names:tc:SAML:2.0:assertion\"\n  Version='2.0' \
     ID=\"_1&#45;a\"><ds:X509Certificate xmlns:ds=\"d\">MIID\nxTCC</ds:X509Certificate><a:Assertion xmlns:a=\"b\"/>\
     <saml2:Value>a &amp;&#13; b</saml2:Value><saml2:Empty /></saml2:Assertion >";

fn response(inside: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<S:Envelope xmlns:S=\"http://schemas.xmlsoap.org/soap/envelope/\"><S:Header/><S:Body>\
         <c:RequestSecurityTokenResponseCollection xmlns:c=\"t\"><c:RequestSecurityTokenResponse>{inside}\
         </c:RequestSecurityTokenResponse></c:RequestSecurityTokenResponseCollection></S:Body></S:Envelope>"
    )
}

fn with(assertion: &str) -> String {
    response(&format!(
        "<c:Lifetime><u:Created xmlns:u=\"w\">2026-03-01T10:00:00.000Z</u:Created>\
         <u:Expires xmlns:u=\"w\">2026-03-01T10:05:00.000Z</u:Expires></c:Lifetime>\
         <c:RequestedSecurityToken>\n  {assertion}\n</c:RequestedSecurityToken>"
    ))
}

#[test]
fn the_assertion_is_kept_byte_for_byte() {
    let TokenAnswer::Token { id, assertion } = read(&with(ASSERTION)).unwrap() else { panic!("a fault") };
    assert_eq!(assertion.expose_secret(), ASSERTION);
    assert_eq!(id, "_1-a");
}

#[test]
fn a_fault_has_its_code_without_prefix_and_its_text_in_one_line() {
    let long = "x".repeat(1000);
    let cases = [
        (
            "<faultcode>ns0:InvalidTimeRange</faultcode><faultstring>token\n is late</faultstring>",
            "InvalidTimeRange",
            "token  is late",
        ),
        ("<faultcode xmlns:n='u'>n:FailedAuthentication</faultcode><faultstring/>", "FailedAuthentication", ""),
        ("<faultcode> InvalidSecurity </faultcode>", "InvalidSecurity", ""),
        (&format!("<faultcode>S:Server</faultcode><faultstring>{long}</faultstring>"), "Server", &"x".repeat(300)),
    ];
    for (inside, expected, text) in cases {
        let document = format!("<S:Envelope xmlns:S='s'><S:Body><S:Fault>{inside}</S:Fault></S:Body></S:Envelope>");
        let TokenAnswer::Fault { code, text: found } = read(&document).unwrap() else { panic!("{inside} is no fault") };
        assert_eq!((code.as_str(), found.as_str()), (expected, text));
    }
}

#[test]
fn what_is_no_whole_answer_is_refused_without_its_content() {
    let whole = with(ASSERTION);
    let nested = "<a>".repeat(40);
    let outside = ASSERTION.replace("xmlns:saml2", "xmlns:other");
    let twice = format!("{ASSERTION}{ASSERTION}");
    let cases = [
        ("nothing", String::new()),
        ("no XML", "MIIDxTCC".to_owned()),
        ("HTML", "<html><body><h1>MIIDxTCC".to_owned()),
        ("cut inside the assertion", whole.split_once("xTCC").unwrap().0.to_owned()),
        ("cut after the assertion", whole.split_once("</c:RequestedSecurityToken>").unwrap().0.to_owned()),
        ("no assertion", with("")),
        ("several assertions", with(&twice)),
        ("no id", with(&ASSERTION.replace("ID=", "Id="))),
        ("an empty id", with(&ASSERTION.replace("_1&#45;a", ""))),
        ("an id of no length a server gives", with(&ASSERTION.replace("_1", &"_".repeat(300)))),
        ("a namespace from outside", with(&outside)),
        ("an assertion elsewhere", response(ASSERTION)),
        ("too deep", format!("{nested}{}", "</a>".repeat(40))),
        ("a document type", format!("<!DOCTYPE a [<!ENTITY b 'c'>]>{whole}")),
    ];
    for (name, text) in cases {
        let problem = read(&text).expect_err(name);
        assert!(!problem.contains("MIID") && !problem.contains("saml2"), "{name}: {problem}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in ".{0,400}") {
        let _ = read(&text);
    }

    #[test]
    fn any_cut_and_any_insertion_is_read_without_panic(at in 0_usize..900, insertion in ".{0,20}") {
        let mut text: Vec<char> = with(ASSERTION).chars().collect();
        let at = at.min(text.len());
        let tail = text.split_off(at);
        let _ = read(&text.iter().collect::<String>());
        text.extend(insertion.chars().chain(tail));
        let _ = read(&text.iter().collect::<String>());
    }
}
