//! Tests of the request, byte for byte, and of the result of each kind of answer.

use super::{Ids, issue, request};
use crate::clients::http::tests::server::{Reply, TestServer};
use crate::clients::token::tests::{ASSERTION, CERTIFICATE, KEY, holder_key, now, secret};

fn ids() -> Ids {
    let id = |name: &str| format!("_{name}-1");
    Ids { timestamp: id("timestamp"), body: id("body"), certificate: id("certificate"), signature: id("signature") }
}

fn response(assertion: &str) -> String {
    format!(
        "<S:Envelope xmlns:S=\"http://schemas.xmlsoap.org/soap/envelope/\"><S:Body><RequestSecurityTokenResponse>\
         <Lifetime><Expires>2026-03-01T10:04:00.000Z</Expires></Lifetime><RequestedSecurityToken>{assertion}\
         </RequestedSecurityToken></RequestSecurityTokenResponse></S:Body></S:Envelope>"
    )
}

fn fault(code: &str) -> Reply {
    let body = format!(
        "<S:Envelope xmlns:S=\"http://schemas.xmlsoap.org/soap/envelope/\"><S:Body><S:Fault><faultcode>ns0:{code}\
         </faultcode><faultstring>it says so</faultstring></S:Fault></S:Body></S:Envelope>"
    );
    Reply::xml(500, &body)
}

#[test]
fn the_request_is_the_golden_one_for_a_given_key_time_and_ids() {
    let document = request(&holder_key(), now(), &ids()).unwrap();
    let document = std::str::from_utf8(&document).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/sts/issue.xml");
    assert_eq!(document, std::fs::read_to_string(path).unwrap());
}

#[tokio::test]
async fn a_token_is_asked_for_at_the_vcenter_itself() {
    let server = TestServer::start(|_| Reply::xml(200, &response(ASSERTION))).await;
    let token = issue(&server.client(), CERTIFICATE, &secret(KEY), now()).await.unwrap();
    assert_eq!((token.id(), token.assertion()), ("_token-1", ASSERTION));
    assert_eq!(token.key().certificate(), holder_key().certificate());
    let received = server.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].line, "POST /sts/STSService");
    let action = "\"http://docs.oasis-open.org/ws-sx/ws-trust/200512/RST/Issue\"";
    assert_eq!(received[0].header("soapaction"), Some(action));
    assert_eq!(received[0].header("content-type"), Some("text/xml; charset=\"utf-8\""));
    // The body has the expected time, and does not contain the private key.
    assert!(received[0].body.contains("<wsu:Created>2026-03-01T10:00:00.123Z</wsu:Created>"));
    assert!(!received[0].body.contains(KEY.lines().nth(3).unwrap()));
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_told_and_nothing_is_sent() {
    let server = TestServer::start(|_| Reply::xml(200, &response(ASSERTION))).await;
    let error = issue(&server.client(), CERTIFICATE, &secret("hunter2"), now()).await.unwrap_err();
    assert_eq!(error.reason(), "Certificate");
    assert!(!error.is_invalid_login());
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    assert_eq!(server.received().len(), 0);
}

#[tokio::test]
async fn refusals_are_sorted_by_what_can_be_done_about_them() {
    let not_there = Reply::Whole(404, Vec::new(), b"<html>".to_vec());
    let garbled = Reply::xml(200, &response("<saml2:Assertion ID=\"_1\">MIID</saml2:Assertion>"));
    let bytes =
        Reply::Whole(200, Vec::new(), response(ASSERTION).replace("co<", "\u{e9}<").chars().map(|c| c as u8).collect());
    let large = Reply::Whole(200, Vec::new(), vec![b' '; (1 << 20) + 1]);
    let cases = [
        (fault("FailedAuthentication"), "InvalidLogin", true, "FailedAuthentication: it says so"),
        (fault("InvalidSecurity"), "InvalidLogin", true, "InvalidSecurity: it says so"),
        (fault("InvalidTimeRange"), "ClockDifference", false, "must agree within a minute"),
        (fault("RequestFailed"), "Fault", false, "RequestFailed: it says so"),
        (not_there, "NotThere", false, "/sts/STSService"),
        (Reply::html(503), "Status", false, "503"),
        (Reply::xml(500, &response(ASSERTION)), "Status", false, "500"),
        (Reply::html(200), "Malformed", false, "cannot be understood"),
        (garbled, "Malformed", false, "declared outside"),
        (bytes, "Malformed", false, "no UTF-8"),
        (large, "TooLarge", false, "larger than"),
        (Reply::Close, "Broken", false, "broke"),
    ];
    for (reply, reason, is_invalid_login, part) in cases {
        let server = TestServer::start(move |_| reply.clone()).await;
        let error = issue(&server.client(), CERTIFICATE, &secret(KEY), now()).await.unwrap_err();
        assert_eq!((error.reason(), error.is_invalid_login()), (reason, is_invalid_login), "{error}");
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains("MIID"), "{text}");
        assert_eq!(server.received().len(), 1, "it is sent once: {text}");
    }
}
