//! Logins with a certificate and with a ticket. The simulator's front checks every signature with independent code.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ccm::clients::http::{self, Endpoint, Failure, Request, Response, Settings, TlsSettings, Transport};
use ccm::clients::token::{HolderKey, Token};
use ccm::clients::{sts, vapi, vim};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use support::{Scenario, Vcenter};

use super::{UUID, https, scenario, soap, user_of};

const CERTIFICATE: &str = include_str!("../golden/sts/holder.crt");
const KEY: &str = include_str!("../golden/sts/holder.key");
const OTHER_KEY: &str = include_str!("../golden/sts/other.key");

fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}

/// Returns a second certificate with the same names as the first.
fn other_certificate() -> String {
    let key = rcgen::KeyPair::from_pem(OTHER_KEY).unwrap();
    rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
}

fn certified() -> Scenario {
    scenario().solution_user(CERTIFICATE)
}

async fn issue(http: &http::Client) -> Result<Token, sts::Error> {
    sts::issue(http, CERTIFICATE, &secret(KEY), Timestamp::now()).await
}

/// Changes requests before they are sent, and stores the answers.
struct Meddler {
    to: http::Client,
    change: Box<dyn Fn(&mut Request) + Send + Sync>,
    answers: Mutex<Vec<String>>,
}

#[async_trait]
impl Transport for Meddler {
    async fn exchange(&self, _endpoint: &Endpoint, mut request: Request) -> Result<Response, Failure> {
        (self.change)(&mut request);
        let response = self.to.send(request).await.map_err(Failure::Final)?;
        self.answers.lock().unwrap().push(String::from_utf8_lossy(&response.body).into_owned());
        Ok(response)
    }
}

/// Returns a client of the simulator whose requests are changed by this function.
fn meddled(vcenter: &Vcenter, change: impl Fn(&mut Request) + Send + Sync + 'static) -> (http::Client, Arc<Meddler>) {
    let meddler = Arc::new(Meddler { to: https(vcenter), change: Box::new(change), answers: Mutex::default() });
    let mut settings = Settings::new(vcenter.host(), vcenter.port(), TlsSettings::default(), vim::user_agent(None));
    settings.transport = Some(Arc::clone(&meddler) as Arc<dyn Transport>);
    (http::Client::new(settings).unwrap(), meddler)
}

/// Replaces a text of the body. Panics if the text is missing.
fn replace(request: &mut Request, from: &str, to: &str) {
    let text = String::from_utf8(request.body.to_vec()).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    request.body = text.replacen(from, to, 1).into();
}

/// Replaces the first character in the text of an element.
fn spoil(request: &mut Request, element: &str) {
    let text = String::from_utf8(request.body.to_vec()).unwrap();
    let begin = format!("<{element}>");
    let first = text.split_once(&begin).unwrap().1.chars().next().unwrap();
    let other = if first == 'A' { 'B' } else { 'A' };
    replace(request, &format!("{begin}{first}"), &format!("{begin}{other}"));
}

#[tokio::test]
async fn a_certificate_becomes_a_token_and_the_token_logs_in_to_both_interfaces() {
    let vcenter = Vcenter::start(&certified()).await;
    let http = https(&vcenter);
    let token = issue(&http).await.unwrap();
    let client = vim::Client::new(http.clone());
    client.connect().await.unwrap();
    client.login_by_token(&token, Timestamp::now()).await.unwrap();
    assert_eq!(user_of(&client).await, "ccm-solution-user@VSPHERE.LOCAL");
    assert_eq!(client.find_all_by_uuid(UUID).await.unwrap().len(), 1);
    // A second login over the first, with the same token, creates a new session.
    client.login_by_token(&token, Timestamp::now()).await.unwrap();
    assert!(client.is_logged_in().await.unwrap());
    let rest = vapi::Client::new(http);
    for _ in 0..2 {
        rest.login_signed(&token, Timestamp::now()).await.unwrap();
        assert_eq!(rest.list_categories().await.unwrap().len(), 1);
        rest.logout().await.unwrap();
    }
    client.logout().await.unwrap();
    let counts = vcenter.counts().await;
    assert_eq!((counts.of("STS:Issue"), counts.soap_logins, counts.rest_logins), (1, 2, 2));
    assert_eq!(counts.rest_sessions, 0);
}

#[tokio::test]
async fn a_login_in_the_api_form_is_signed_for_its_own_path() {
    let vcenter = Vcenter::start(&certified()).await;
    let token = issue(&https(&vcenter)).await.unwrap();
    let (http, meddler) = meddled(&vcenter, |request| {
        if request.path.starts_with("/rest/") {
            request.path = "/nothing-here".to_owned();
        }
    });
    // The simulator itself does not support this form. Its front would have answered 401 to a wrong signature.
    let error = vapi::Client::new(http).login_signed(&token, Timestamp::now()).await.unwrap_err();
    assert!(error.to_string().contains("HTTP status 404"), "{error}");
    assert_eq!(meddler.answers.lock().unwrap().len(), 2);
    assert_eq!(vcenter.counts().await.of("REST:session-login"), 1);
}

#[tokio::test]
async fn a_certificate_that_nobody_registered_is_an_invalid_login() {
    let vcenter = Vcenter::start(&scenario()).await;
    let error = issue(&https(&vcenter)).await.unwrap_err();
    assert!(error.is_invalid_login(), "{error}");
    assert!(error.to_string().contains("FailedAuthentication: the certificate belongs to no solution user"), "{error}");
    assert_eq!(vcenter.counts().await.of("STS:Issue"), 1);
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_as_such() {
    let vcenter = Vcenter::start(&certified()).await;
    for away in [SignedDuration::from_mins(-10), SignedDuration::from_mins(10)] {
        let error = sts::issue(&https(&vcenter), CERTIFICATE, &secret(KEY), Timestamp::now() + away).await.unwrap_err();
        assert!(error.is_clock_difference() && !error.is_invalid_login(), "{error}");
        assert!(error.to_string().contains("MessageExpired: the message "), "{error}");
    }
}

type Change = fn(&mut Request);

#[tokio::test]
async fn a_request_for_a_token_that_was_changed_on_its_way_is_refused() {
    const DELEGATABLE: &str = "<Delegatable>true</Delegatable>";
    const TRANSFORM: &str = "<ds:Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\">";
    let cases: [(&str, Change, &str); 14] = [
        ("the body", |r| replace(r, DELEGATABLE, "<Delegatable>false</Delegatable>"), "digest of the Body is wrong"),
        ("space in the body", |r| replace(r, DELEGATABLE, "<Delegatable>true</Delegatable> "), "digest of the Body"),
        (
            "the time stamp",
            |r| replace(r, "Z</wsu:Expires></wsu:Timestamp>", "Z </wsu:Expires></wsu:Timestamp>"),
            "digest of the Timestamp is wrong",
        ),
        ("a digest", |r| spoil(r, "ds:DigestValue"), "digest of the Timestamp is wrong"),
        ("the signature", |r| spoil(r, "ds:SignatureValue"), "not of the expected key"),
        (
            "what is signed",
            |r| replace(r, "</ds:SignedInfo>", "<ds:Object></ds:Object></ds:SignedInfo>"),
            "not of the expected key",
        ),
        (
            "the canonical form",
            |r| {
                replace(
                    r,
                    "CanonicalizationMethod Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"",
                    "CanonicalizationMethod Algorithm=\"http://www.w3.org/TR/2001/REC-xml-c14n-20010315\"",
                )
            },
            "CanonicalizationMethod is",
        ),
        (
            "the signature's algorithm",
            |r| {
                replace(
                    r,
                    "SignatureMethod Algorithm=\"http://www.w3.org/2001/04/xmldsig-more#rsa-sha256\"",
                    "SignatureMethod Algorithm=\"http://www.w3.org/2000/09/xmldsig#rsa-sha1\"",
                )
            },
            "SignatureMethod is",
        ),
        ("a transformation", |r| replace(r, TRANSFORM, "<ds:Transform Algorithm=\"none\">"), "Transform is"),
        (
            "the digest's algorithm",
            |r| replace(r, "http://www.w3.org/2001/04/xmlenc#sha256", "http://www.w3.org/2000/09/xmldsig#sha1"),
            "DigestMethod is",
        ),
        (
            "a second body",
            |r| replace(r, "</soapenv:Envelope>", "<soapenv:Body></soapenv:Body></soapenv:Envelope>"),
            "several Body",
        ),
        (
            "a second element of the body's id",
            |r| {
                let text = String::from_utf8(r.body.to_vec()).unwrap();
                let id = text
                    .split_once("<soapenv:Body")
                    .unwrap()
                    .1
                    .split_once("wsu:Id=\"")
                    .unwrap()
                    .1
                    .split_once('"')
                    .unwrap()
                    .0
                    .to_owned();
                replace(r, "<wsse:BinarySecurityToken ", &format!("<x Id=\"{id}\"></x><wsse:BinarySecurityToken "));
            },
            "2 elements have the id of the Body",
        ),
        (
            "the reference to the certificate",
            |r| replace(r, "<wsse:Reference URI=\"#", "<wsse:Reference URI=\"#x"),
            "does not refer to the certificate",
        ),
        ("the action", |r| r.headers.retain(|(name, _)| *name != "SOAPAction"), "SOAPAction is"),
    ];
    let vcenter = Vcenter::start(&certified()).await;
    for (name, change, expected) in cases {
        let (http, _) = meddled(&vcenter, change);
        let error = issue(&http).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
        assert_eq!(error.is_invalid_login(), name != "the action", "{name}: {error}");
    }
    issue(&meddled(&vcenter, |_| ()).0).await.unwrap();
}

#[tokio::test]
async fn a_certificate_beside_a_signature_of_another_key_is_refused() {
    let other = other_certificate();
    let vcenter = Vcenter::start(&certified().solution_user(&other)).await;
    let base64 = |pem: &str| pem.lines().filter(|line| !line.contains("-----")).collect::<String>();
    let (from, to) = (base64(CERTIFICATE), base64(&other));
    let (http, _) = meddled(&vcenter, move |request| replace(request, &from, &to));
    let error = issue(&http).await.unwrap_err();
    assert!(error.to_string().contains("not of the expected key"), "{error}");
    sts::issue(&https(&vcenter), &other, &secret(OTHER_KEY), Timestamp::now()).await.unwrap();
}

#[tokio::test]
async fn a_login_with_a_token_that_was_changed_on_its_way_is_an_invalid_login() {
    let cases: [(&str, Change, &str); 9] = [
        (
            "the body",
            |r| replace(r, ">SessionManager</_this>", ">SessionManager2</_this>"),
            "digest of the Body is wrong",
        ),
        ("the time stamp", |r| replace(r, "Z</wsu:Expires>", "Z </wsu:Expires>"), "digest of the Timestamp is wrong"),
        ("the signature", |r| spoil(r, "ds:SignatureValue"), "not of the expected key"),
        ("a digest", |r| spoil(r, "ds:DigestValue"), "digest of the Timestamp is wrong"),
        (
            "the assertion",
            |r| replace(r, "vcsim &#38; co", "vcsim &amp; co"),
            "not the one that was issued, byte for byte",
        ),
        ("space in the assertion", |r| replace(r, "\n  xmlns:xsi", " xmlns:xsi"), "byte for byte"),
        ("the token's id", |r| replace(r, " ID=\"_", " ID=\"_x"), "does not refer to the assertion"),
        (
            "the reference's kind",
            |r| replace(r, "profile-1.1#SAMLID", "profile-1.0#SAMLAssertionID"),
            "does not refer to the assertion",
        ),
        (
            "no signature",
            |r| {
                let text = String::from_utf8(r.body.to_vec()).unwrap();
                let (head, rest) =
                    text.split_once("<ds:Signature xmlns:ds=\"http://www.w3.org/2000/09/xmldsig#\" Id").unwrap();
                r.body = format!("{head}{}", rest.split_once("</ds:Signature>").unwrap().1).into();
            },
            "no Signature",
        ),
    ];
    let vcenter = Vcenter::start(&certified()).await;
    let token = issue(&https(&vcenter)).await.unwrap();
    for (name, change, expected) in cases {
        let (http, _) = meddled(&vcenter, change);
        let client = vim::Client::new(http);
        let error = client.login_by_token(&token, Timestamp::now()).await.unwrap_err();
        assert!(error.is_invalid_login() && error.to_string().contains(expected), "{name}: {error}");
        assert!(client.session_secret().is_none(), "{name}: a cookie is kept");
    }
    let late = Timestamp::now() - SignedDuration::from_mins(2);
    let error = vim::Client::new(https(&vcenter)).login_by_token(&token, late).await.unwrap_err();
    assert!(error.is_invalid_login() && error.to_string().contains("the message has expired"), "{error}");
    assert_eq!(vcenter.counts().await.soap_logins, 0);
    vim::Client::new(meddled(&vcenter, |_| ()).0).login_by_token(&token, Timestamp::now()).await.unwrap();
}

#[tokio::test]
async fn a_token_in_the_hands_of_another_key_is_an_invalid_login() {
    let vcenter = Vcenter::start(&certified()).await;
    let (http, meddler) = meddled(&vcenter, |_| ());
    let token = issue(&http).await.unwrap();
    let answer = meddler.answers.lock().unwrap().remove(0);
    let (_, rest) = answer.split_once("<ns:RequestedSecurityToken>").unwrap();
    let (assertion, _) = rest.split_once("</ns:RequestedSecurityToken>").unwrap();
    let take = |key| Token::new(token.id(), secret(assertion), Arc::new(key));
    let stolen = take(HolderKey::from_pem(&other_certificate(), &secret(OTHER_KEY)).unwrap());
    let client = vim::Client::new(https(&vcenter));
    let error = client.login_by_token(&stolen, Timestamp::now()).await.unwrap_err();
    assert!(error.is_invalid_login() && error.to_string().contains("not of the expected key"), "{error}");
    let rest = vapi::Client::new(https(&vcenter));
    let error = rest.login_signed(&stolen, Timestamp::now()).await.unwrap_err();
    assert!(error.is_invalid_login() && error.to_string().contains("not of the token's key"), "{error}");
    // The same with the right key proves that the wrong key was the reason.
    let own = take(HolderKey::from_pem(CERTIFICATE, &secret(KEY)).unwrap());
    client.login_by_token(&own, Timestamp::now()).await.unwrap();
    rest.login_signed(&own, Timestamp::now()).await.unwrap();
}

/// Replaces a text of the `Authorization` header. Panics if the text is missing.
fn replace_header(request: &mut Request, from: &str, to: &str) {
    for (name, value) in &mut request.secret_headers {
        assert_eq!(*name, "Authorization");
        assert!(value.expose_secret().contains(from), "{from} is not in the header");
        *value = secret(&value.expose_secret().replacen(from, to, 1));
    }
}

#[tokio::test]
async fn a_signed_rest_login_that_was_changed_on_its_way_is_unauthenticated() {
    let cases: [(&str, Change, &str); 8] = [
        ("the nonce's number", |r| replace_header(r, ":", ":1"), "not of the token's key"),
        ("the nonce's time", |r| replace_header(r, "nonce=\"", "nonce=\"1"), "not of the token's key"),
        ("the signature", |r| replace_header(r, "signature=\"", "signature=\"AAAA"), "not of the token's key"),
        ("the algorithm", |r| replace_header(r, "RSA-SHA256", "RSA-SHA1"), "the algorithm is"),
        ("the hash of the body", |r| replace_header(r, "bodyhash=\"4", "bodyhash=\"5"), "hash of the body"),
        ("the body", |r| r.body = "{}".to_owned().into(), "hash of the body"),
        ("the path", |r| r.path = "/api/session".to_owned(), "not of the token's key"),
        ("the token", |r| replace_header(r, "token=\"H4", "token=\"H5"), "cannot be unpacked"),
    ];
    let vcenter = Vcenter::start(&certified()).await;
    let token = issue(&https(&vcenter)).await.unwrap();
    for (name, change, expected) in cases {
        let client = vapi::Client::new(meddled(&vcenter, change).0);
        let error = client.login_signed(&token, Timestamp::now()).await.unwrap_err();
        assert!(error.is_invalid_login() && error.to_string().contains(expected), "{name}: {error}");
        assert!(!client.has_session(), "{name}");
    }
    let late = Timestamp::now() - SignedDuration::from_mins(10);
    let error = vapi::Client::new(https(&vcenter)).login_signed(&token, late).await.unwrap_err();
    assert!(error.is_invalid_login() && error.to_string().contains("away from now"), "{error}");
    assert_eq!(vcenter.counts().await.rest_logins, 0);
}

#[tokio::test]
async fn a_signed_rest_login_is_good_once() {
    let vcenter = Vcenter::start(&certified()).await;
    let token = issue(&https(&vcenter)).await.unwrap();
    let first: Arc<Mutex<Option<SecretString>>> = Arc::default();
    let (http, _) = meddled(&vcenter, move |request| {
        let (_, value) = &mut request.secret_headers[0];
        *value = first.lock().unwrap().get_or_insert_with(|| value.clone()).clone();
    });
    let client = vapi::Client::new(http);
    client.login_signed(&token, Timestamp::now()).await.unwrap();
    let error = client.login_signed(&token, Timestamp::now()).await.unwrap_err();
    assert!(error.is_invalid_login() && error.to_string().contains("the nonce was used before"), "{error}");
}

/// Requests a ticket to clone this session, as a session manager does.
async fn ticket(vcenter: &Vcenter, owner: &vim::Client) -> SecretString {
    let mut request =
        Request::new(http::Method::POST, "/sdk", "AcquireCloneTicket", std::time::Duration::from_secs(20));
    let cookie = owner.session_secret().unwrap();
    request.headers.push(("Cookie", format!("vmware_soap_session={}", cookie.expose_secret())));
    request.body = "<e:Envelope xmlns:e=\"http://schemas.xmlsoap.org/soap/envelope/\"><e:Body><AcquireCloneTicket \
        xmlns=\"urn:vim25\"><_this type=\"SessionManager\">SessionManager</_this></AcquireCloneTicket></e:Body></e:Envelope>"
        .to_owned()
        .into();
    let response = https(vcenter).send(request).await.unwrap();
    let text = String::from_utf8(response.body).unwrap();
    let (_, rest) = text.split_once("<returnval>").unwrap();
    secret(rest.split_once("</returnval>").unwrap().0)
}

#[tokio::test]
async fn a_ticket_clones_a_session_once_and_the_clone_lives_by_itself() {
    let vcenter = Vcenter::start(&scenario()).await;
    let owner = soap(&vcenter).await;
    let ticket = ticket(&vcenter, &owner).await;
    let clone = vim::Client::new(https(&vcenter));
    clone.connect().await.unwrap();
    clone.clone_session(&ticket).await.unwrap();
    assert_eq!(user_of(&clone).await, vcenter.user());
    assert_ne!(
        clone.session_secret().unwrap().expose_secret(),
        owner.session_secret().unwrap().expose_secret(),
        "a session of its own"
    );
    owner.logout().await.unwrap();
    assert_eq!(clone.find_all_by_uuid(UUID).await.unwrap().len(), 1);
    let again = vim::Client::new(https(&vcenter)).clone_session(&ticket).await.unwrap_err();
    assert!(again.is_invalid_login(), "{again}");
}

#[tokio::test]
async fn a_cloned_session_serves_rest_too_until_it_ends() {
    let vcenter = Vcenter::start(&scenario().shares_sessions()).await;
    let owner = soap(&vcenter).await;
    let clone = vim::Client::new(https(&vcenter));
    clone.clone_session(&ticket(&vcenter, &owner).await).await.unwrap();
    let rest = vapi::Client::new(https(&vcenter));
    rest.borrow_session(clone.session_secret().unwrap());
    assert_eq!(rest.list_categories().await.unwrap().len(), 1);
    clone.logout().await.unwrap();
    assert!(rest.list_categories().await.unwrap_err().is_unauthenticated());
    assert_eq!(vcenter.counts().await.of("REST:session-login"), 0);
}

#[tokio::test]
async fn an_unknown_ticket_is_an_invalid_login_and_ends_the_session_there_was() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let error = client.clone_session(&secret("cst-VCT-hunter2")).await.unwrap_err();
    assert!(error.is_invalid_login(), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    assert!(client.session_secret().is_none());
}
