//! Pure: classifies the answers of NSX by one table.
//!
//! | answer | meaning |
//! |---|---|
//! | 429; 503; 500 with code 607 | busy; 429 and 503 also lower the call rate |
//! | at a login: 401 or 403; with HTTP Basic: 401, or 403 with code 403 | credentials rejected |
//! | 401; 403 with code 98 or 403 | the session has ended |
//! | an error without a JSON object; 5xx; 3xx | unavailable |
//! | another 403 | no permission |
//! | 404 with code 600, 202 or 500090 | the other object in the message is missing, or else the request's object |
//! | 400 with code 500012 | the other object in the message is missing, or else the request is wrong |
//! | 400 with code 500030 | still referenced |
//! | 400 with code 500045 | marked for deletion |
//! | 409; 412; codes 206, 500127, 500087, 500232, 100148 | another client changed the object |
//! | another 4xx | the request is wrong |
//!
//! The first matching row decides. NSX reports an ended session as wrong credentials (code 403) or as a wrong XSRF
//! token (code 98). The codes of other refusals with 403 are 401 (missing permission), 289 (protected object) and 505
//! (license).

use super::error::{ErrorAnswer, Kind};
use super::json::ErrorFields;

const MESSAGE: usize = 300;

/// Codes of an object that does not exist.
const NOT_FOUND: [i64; 3] = [600, 202, 500_090];

/// The code of an invalid path in the body, which NSX also uses for an object that does not exist.
const INVALID_PATH: i64 = 500_012;

/// Codes of an object that another client has changed.
const CONFLICT: [i64; 5] = [206, 500_127, 500_087, 500_232, 100_148];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestContext<'a> {
    /// The path of the object in the Policy API, such as `/infra/tier-1s/a`.
    pub object: &'a str,
    pub presents: PresentedCredentials,
}

/// The credentials in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresentedCredentials {
    /// The request is a login.
    Login,
    /// Every request contains user and password.
    EachTime,
    /// The request uses a session, a token or a certificate.
    Nothing,
}

pub(super) fn classify(asked: RequestContext<'_>, status: u16, body: &[u8]) -> (Kind, ErrorAnswer) {
    let error = ErrorFields::read(body);
    let (is_json, error) = (error.is_some(), error.unwrap_or_default());
    let message: String = error.message.chars().filter(|c| !c.is_control()).take(MESSAGE).collect();
    let error = ErrorFields { message, ..error };
    let kind = kind(asked, status, is_json, &error);
    (kind, ErrorAnswer { status, code: error.code, message: error.message, retry_after: None })
}

fn kind(asked: RequestContext<'_>, status: u16, is_json: bool, error: &ErrorFields) -> Kind {
    let code = error.code.unwrap_or_default();
    match status {
        429 | 503 => Kind::Busy,
        500 if code == 607 => Kind::Busy,
        401 | 403 if asked.presents == PresentedCredentials::Login => Kind::Rejected,
        401 if asked.presents == PresentedCredentials::EachTime => Kind::Rejected,
        403 if asked.presents == PresentedCredentials::EachTime && code == 403 => Kind::Rejected,
        401 => Kind::SessionOver,
        403 if matches!(code, 98 | 403) => Kind::SessionOver,
        _ if !is_json || !(400..500).contains(&status) => Kind::Unavailable,
        403 => Kind::NoPermission,
        404 if NOT_FOUND.contains(&code) => match missing(&error.message, asked.object) {
            Some(path) => Kind::MissingReference(path),
            None => Kind::NotFound,
        },
        400 if code == INVALID_PATH => {
            missing(&error.message, asked.object).map_or(Kind::BadRequest, Kind::MissingReference)
        }
        400 if code == 500_030 => Kind::Referenced,
        400 if code == 500_045 => Kind::MarkedForDeletion,
        409 | 412 => Kind::Conflict,
        _ if CONFLICT.contains(&code) => Kind::Conflict,
        _ => Kind::BadRequest,
    }
}

pub(super) fn slows_down(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Returns the path of the missing object in the message; `None` if the message has no path, or names the request's
/// object.
fn missing(message: &str, object: &str) -> Option<String> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '\'' | '"' | '[' | ']' | '(' | ')');
    // An id may contain a space, so the whole path is searched first.
    let mut own = message.match_indices(object).filter_map(|(at, own)| message.get(at + own.len()..));
    if own.any(|rest| rest.trim_start_matches('.').chars().next().is_none_or(is_end)) {
        return None;
    }
    let mut paths = message
        .split(is_end)
        .filter(|word| ["/infra/", "/global-infra/", "/orgs/"].iter().any(|start| word.starts_with(start)))
        .map(|word| word.trim_end_matches('.'));
    paths.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    //! Tests of each row of the classification table.

    use proptest::prelude::*;
    use serde_json::json;

    use super::{Kind, PresentedCredentials, RequestContext, classify};

    const OBJECT: &str = "/infra/tier-1s/t/static-routes/r";

    fn asked(presents: PresentedCredentials) -> RequestContext<'static> {
        RequestContext { object: OBJECT, presents }
    }

    fn error(code: i64, message: &str) -> Vec<u8> {
        json!({"httpStatus": "X", "error_code": code, "error_message": message}).to_string().into_bytes()
    }

    #[test]
    fn the_first_row_that_fits_decides() {
        let no_code = b"{}".to_vec();
        let html = b"<html>403</html>".to_vec();
        let list = b"[]".to_vec();
        let huge = b"{\"error_code\":403,\"x\":1e999}".to_vec();
        let own = format!("The requested object : {OBJECT} could not be found. Object identifiers are case sensitive.");
        let other = "The path=[/infra/tier-1s/t] does not exist";
        let reference = || Kind::MissingReference("/infra/tier-1s/t".to_owned());
        let sibling = || Kind::MissingReference(format!("{OBJECT}2"));
        let cases = [
            (PresentedCredentials::Nothing, 429, html.clone(), Kind::Busy),
            (PresentedCredentials::Login, 503, html.clone(), Kind::Busy),
            (PresentedCredentials::Nothing, 500, error(607, ""), Kind::Busy),
            (PresentedCredentials::Nothing, 500, error(99, ""), Kind::Unavailable),
            (PresentedCredentials::Login, 401, html.clone(), Kind::Rejected),
            (PresentedCredentials::Login, 403, error(98, ""), Kind::Rejected),
            (PresentedCredentials::EachTime, 401, html.clone(), Kind::Rejected),
            (PresentedCredentials::EachTime, 403, error(403, ""), Kind::Rejected),
            (PresentedCredentials::EachTime, 403, huge.clone(), Kind::Rejected),
            (PresentedCredentials::EachTime, 403, error(289, ""), Kind::NoPermission),
            (PresentedCredentials::EachTime, 403, error(401, ""), Kind::NoPermission),
            (PresentedCredentials::Nothing, 401, html.clone(), Kind::SessionOver),
            (PresentedCredentials::Nothing, 403, error(98, ""), Kind::SessionOver),
            (PresentedCredentials::Nothing, 403, error(403, ""), Kind::SessionOver),
            (PresentedCredentials::Nothing, 403, huge, Kind::SessionOver),
            (PresentedCredentials::Nothing, 403, error(401, ""), Kind::NoPermission),
            (PresentedCredentials::Nothing, 403, error(289, ""), Kind::NoPermission),
            (PresentedCredentials::Nothing, 403, error(505, ""), Kind::NoPermission),
            (PresentedCredentials::Nothing, 403, no_code.clone(), Kind::NoPermission),
            (PresentedCredentials::Nothing, 500, error(98, ""), Kind::Unavailable),
            (PresentedCredentials::Nothing, 503, error(101, ""), Kind::Busy),
            (PresentedCredentials::Nothing, 403, html.clone(), Kind::Unavailable),
            (PresentedCredentials::Nothing, 404, html.clone(), Kind::Unavailable),
            (PresentedCredentials::Nothing, 404, list, Kind::Unavailable),
            (PresentedCredentials::Nothing, 404, no_code.clone(), Kind::BadRequest),
            (PresentedCredentials::Nothing, 302, no_code.clone(), Kind::Unavailable),
            (PresentedCredentials::Nothing, 502, no_code.clone(), Kind::Unavailable),
            (PresentedCredentials::Nothing, 404, error(600, &own), Kind::NotFound),
            (PresentedCredentials::Nothing, 404, error(202, ""), Kind::NotFound),
            (PresentedCredentials::Nothing, 404, error(500_090, other), reference()),
            (PresentedCredentials::Nothing, 404, error(600, other), reference()),
            (
                PresentedCredentials::Nothing,
                404,
                error(600, &format!("{OBJECT} below /infra/tier-1s/t")),
                Kind::NotFound,
            ),
            (PresentedCredentials::Nothing, 404, error(600, &format!("There is no {OBJECT}.")), Kind::NotFound),
            (PresentedCredentials::Nothing, 404, error(600, &format!("There is no {OBJECT}2.")), sibling()),
            (PresentedCredentials::Nothing, 400, error(500_012, "The path=[/infra/tier-1s/t] is invalid"), reference()),
            (
                PresentedCredentials::Nothing,
                400,
                error(500_012, &format!("The path=[{OBJECT}] is invalid")),
                Kind::BadRequest,
            ),
            (PresentedCredentials::Nothing, 400, error(500_012, "no path"), Kind::BadRequest),
            (PresentedCredentials::Nothing, 400, error(500_030, &own), Kind::Referenced),
            (PresentedCredentials::Nothing, 400, error(500_045, &own), Kind::MarkedForDeletion),
            (PresentedCredentials::Nothing, 409, no_code.clone(), Kind::Conflict),
            (PresentedCredentials::Nothing, 412, no_code.clone(), Kind::Conflict),
            (PresentedCredentials::Nothing, 400, error(500_127, ""), Kind::Conflict),
            (PresentedCredentials::Nothing, 400, error(100_148, ""), Kind::Conflict),
            (PresentedCredentials::Nothing, 400, error(1, ""), Kind::BadRequest),
            (PresentedCredentials::Nothing, 418, no_code, Kind::BadRequest),
        ];
        for (presents, status, body, expected) in cases {
            let (kind, _) = classify(asked(presents), status, &body);
            assert_eq!(kind, expected, "{presents:?} {status} {}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn an_id_may_hold_spaces() {
        let asked =
            RequestContext { object: "/infra/tier-1s/t/static-routes/a b", presents: PresentedCredentials::Nothing };
        let body = error(600, "The requested object : /infra/tier-1s/t/static-routes/a b could not be found.");
        assert_eq!(classify(asked, 404, &body).0, Kind::NotFound);
    }

    #[test]
    fn codes_may_be_text_and_messages_are_short_and_of_one_line() {
        let body = json!({"error_code": "600", "error_message": format!("a\nb{}", "x".repeat(1000))}).to_string();
        let (kind, refused) = classify(asked(PresentedCredentials::Nothing), 404, body.as_bytes());
        assert_eq!((kind, refused.code, refused.message.len()), (Kind::NotFound, Some(600), 300));
        assert!(!refused.message.contains('\n'));
    }

    #[test]
    fn a_refusal_that_is_too_large_for_one_proves_nothing() {
        let padded = |size: usize| {
            let body = String::from_utf8(error(600, "")).unwrap();
            body.replacen('{', &format!("{{\"a\": \"{}\", ", "x".repeat(size)), 1)
        };
        assert_eq!(classify(asked(PresentedCredentials::Nothing), 404, padded(60 << 10).as_bytes()).0, Kind::NotFound);
        assert_eq!(
            classify(asked(PresentedCredentials::Nothing), 404, padded(64 << 10).as_bytes()).0,
            Kind::Unavailable
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_judged(status in any::<u16>(), body in any::<Vec<u8>>(), code in any::<i64>(), message in ".*") {
            for body in [body, error(code, &message)] {
                for presents in [PresentedCredentials::Login, PresentedCredentials::EachTime, PresentedCredentials::Nothing] {
                    let (kind, _) = classify(asked(presents), status, &body);
                    prop_assert!(kind != Kind::NotFound || status == 404);
                    prop_assert!(!matches!(kind, Kind::MissingReference(_)) || [400, 404].contains(&status));
                }
            }
        }
    }
}
