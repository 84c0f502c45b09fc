//! Reads a Lease together with the clock of the API server.

use http::header::DATE;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{GetParams, Request};
use kube::client::Body;
use kube::core::Status;

/// A Lease as the API server answered a read.
#[derive(Clone, Debug)]
pub(in crate::kubernetes) struct DatedLease {
    /// The Lease; `None` if the API server answers that it does not exist.
    pub lease: Option<Lease>,
    /// The header `Date` of the answer, in whole seconds, if the answer has one.
    pub server_time: Option<Timestamp>,
}

/// Reads the Lease `name`. [`Api::get_opt`] exposes no headers. The caller limits the time.
///
/// # Errors
/// The call fails, or the answer is an error. A 404 that is not from the API server, such as one of a proxy, is an
/// error, too, and so is another object.
pub(in crate::kubernetes) async fn read(api: &Api<Lease>, name: &str) -> kube::Result<DatedLease> {
    let request = Request::new(api.resource_url());
    let request = request.get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    let response = api.clone().into_client().send(request.map(Body::from)).await?;
    let status = response.status();
    let server_time = date(response.headers());
    let body = response.into_body().collect_bytes().await?;
    if status.is_success() {
        let lease: Lease = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
        if lease.metadata.name.as_deref() != Some(name) {
            let error = <serde_json::Error as serde::de::Error>::custom("the answer is not the requested Lease");
            return Err(kube::Error::SerdeError(error));
        }
        return Ok(DatedLease { lease: Some(lease), server_time });
    }
    let plain = || Status::failure(&status.to_string(), "Unknown").with_code(status.as_u16());
    let refused: Status = serde_json::from_slice(&body).unwrap_or_else(|_| plain());
    if status == StatusCode::NOT_FOUND && refused.reason == "NotFound" {
        return Ok(DatedLease { lease: None, server_time });
    }
    Err(kube::Error::Api(refused.boxed()))
}

/// Returns the `Date` of an answer.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    rfc2822::parse(text).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use kube::Client;
    use serde_json::json;
    use tower::BoxError;

    #[test]
    fn the_date_of_an_answer_is_read_and_another_one_is_none() {
        let of = |text: &'static str| date(&[(DATE, text.parse().unwrap())].into_iter().collect());
        assert_eq!(of("Sun, 22 Nov 2026 22:30:00 GMT").map(Timestamp::as_second), Some(1_795_386_600));
        for text in ["", "now", "Sun, 22 Nov", "22.11.2026 22:30:00"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(date(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn only_the_api_server_can_say_that_there_is_no_lease() {
        let status = |reason: &str, code: u16| {
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}).to_string()
        };
        let lease = json!({"metadata": {"name": "a"}}).to_string();
        let cases = [
            (200, lease, Some(true)),
            (404, status("NotFound", 404), Some(false)),
            (404, status("", 404), None),
            (404, "404 page not found".to_owned(), None),
            (404, "<html>".to_owned(), None),
            (403, status("Forbidden", 403), None),
            (503, String::new(), None),
            (200, "<html>".to_owned(), None),
            (200, "{}".to_owned(), None),
            (200, json!({"metadata": {"name": "b"}}).to_string(), None),
        ];
        for (code, body, expected) in cases {
            let answer = body.clone();
            let server = tower::service_fn(move |_| {
                let body = Body::from(answer.clone().into_bytes());
                let response =
                    Response::builder().status(code).header(DATE, "Sun, 22 Nov 2026 22:30:00 GMT").body(body);
                async move { Ok::<_, BoxError>(response?) }
            });
            let api = Api::<Lease>::default_namespaced(Client::new(server, "default"));
            let found = read(&api, "a").await;
            let exists = found.as_ref().ok().map(|found| found.lease.is_some());
            assert_eq!(exists, expected, "{code} {body}: {found:?}");
            if let Ok(found) = found {
                assert_eq!(found.server_time.map(Timestamp::as_second), Some(1_795_386_600), "{code} {body}");
            }
        }
    }
}
