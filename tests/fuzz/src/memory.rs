//! Servers in memory: an HTTP client whose answers come from a script, and the runtime for it.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ccm::clients::http::{Client, Endpoint, Failure, Request, Response, Settings, TlsSettings, Transport};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A name, and a function that reads an answer with this HTTP status and body.
pub type Read = (&'static str, fn(u16, &[u8]));

/// An answer: the status, headers, the body.
pub struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// An answer without headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.into() }
    }

    /// Adds this value of `Set-Cookie`, if it is a valid header value.
    pub fn with_cookie(self, cookie: &[u8]) -> Self {
        self.with_header("set-cookie", cookie)
    }

    /// Adds this header, if its value is valid.
    pub fn with_header(mut self, name: &'static str, value: &[u8]) -> Self {
        self.headers.extend(HeaderValue::from_bytes(value).ok().map(|value| (HeaderName::from_static(name), value)));
        self
    }
}

struct Memory<F>(F);

#[async_trait]
impl<F: Fn(&Request) -> Answer + Send + Sync> Transport for Memory<F> {
    async fn exchange(&self, _: &Endpoint, request: Request) -> Result<Response, Failure> {
        let Answer { status, headers, body } = (self.0)(&request);
        Ok(Response { status, headers, body })
    }
}

/// Makes a client whose server answers with `script`.
pub fn client(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Client {
    // Nothing is verified in memory, and reading the system's certificates takes long.
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let mut settings = Settings::new("vc.example.com", 443, tls, "fuzz");
    settings.transport = Some(Arc::new(Memory(script)));
    Client::new(settings).expect("these settings are good")
}

/// Runs work that never waits for input or output.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime without I/O");
    }
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let result = work.await;
            // A client of the API server has a background task, which ends at its next poll. Without this yield the
            // runtime would never poll the task and would keep it.
            tokio::task::yield_now().await;
            result
        })
    })
}

/// Makes a client of an API server that answers each request with a status and a body. `script` gets the method, the
/// path and the body. A watch is never answered.
pub fn api_server(script: impl Fn(&str, &str, Vec<u8>) -> (u16, Vec<u8>) + Send + Sync + 'static) -> kube::Client {
    let script = Arc::new(script);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let script = Arc::clone(&script);
        async move {
            let (head, body) = request.into_parts();
            if head.uri.query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let body = body.collect_bytes().await?;
            let (status, body) = script(head.method.as_str(), head.uri.path(), body.to_vec());
            Ok::<_, tower::BoxError>(http::Response::builder().status(status).body(kube::client::Body::from(body))?)
        }
    });
    kube::Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::{api_server, run};

    #[test]
    fn what_was_made_for_an_input_is_gone_after_it() {
        for _ in 0..100 {
            run(async { drop(api_server(|_, _, sent| (200, sent))) });
        }
        let left = run(async { tokio::runtime::Handle::current().metrics().num_alive_tasks() });
        assert_eq!(left, 0, "tasks of clients that are gone");
    }
}
