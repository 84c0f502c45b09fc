//! Tests of the client over a transport in memory, with a paused clock. Limits, permits and observers belong to the
//! client, so they work with any transport.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::{
    CallObserver, Client, Endpoint, Error, FailedRequest, Failure, Method, Permit, Request, Response, Settings,
    TlsSettings, Transport,
};

type Script = dyn Fn(usize, &Endpoint, &Request) -> Result<Response, Failure> + Send + Sync;

/// A transport that answers from a script after a delay.
struct Memory {
    after: Duration,
    calls: AtomicUsize,
    script: Box<Script>,
}

#[async_trait]
impl Transport for Memory {
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep_until(Instant::now() + self.after).await;
        (self.script)(call, endpoint, &request)
    }
}

fn client(
    after: Duration,
    script: impl Fn(usize, &Endpoint, &Request) -> Result<Response, Failure> + Send + Sync + 'static,
) -> (Client, Arc<Memory>) {
    let memory = Arc::new(Memory { after, calls: AtomicUsize::new(0), script: Box::new(script) });
    let mut settings = Settings::new("vc.example.com", 443, TlsSettings::default(), "test");
    settings.transport = Some(Arc::clone(&memory) as Arc<dyn Transport>);
    (Client::new(settings).unwrap(), memory)
}

fn whole(body: &[u8]) -> Response {
    Response { status: 200, headers: http::HeaderMap::new(), body: body.to_vec() }
}

fn broken(endpoint: &Endpoint) -> Error {
    Error::Broken(FailedRequest { endpoint: endpoint.authority().to_owned(), operation: "probe" }, "cut".to_owned())
}

fn request(method: Method) -> Request {
    Request::new(method, "/sdk", "probe", Duration::from_secs(30))
}

#[tokio::test(start_paused = true)]
async fn a_whole_exchange_runs_in_memory_and_takes_the_time_it_says() {
    let (client, _) = client(Duration::from_secs(29), |_, endpoint, request| {
        assert_eq!((endpoint.authority(), request.path.as_str()), ("vc.example.com:443", "/sdk"));
        Ok(whole(&request.body))
    });
    let began = Instant::now();
    let mut post = request(Method::POST);
    post.body = "hello".to_owned().into();
    assert_eq!(client.send(post).await.unwrap().body, b"hello");
    assert_eq!(began.elapsed(), Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_holds_around_any_transport_and_both_attempts_together() {
    let began = Instant::now();
    let (hanging, _) = client(Duration::from_secs(3600), |_, _, _| Ok(whole(b"")));
    let error = hanging.send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    let (breaking, memory) =
        client(Duration::from_secs(20), |_, endpoint, _| Err(Failure::Unanswered(broken(endpoint))));
    let error = breaking.send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!((began.elapsed(), memory.calls.load(Ordering::SeqCst)), (Duration::from_secs(60), 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_a_second_time() {
    let cases: [(&str, Method, bool, usize); 3] = [
        ("unanswered, repeatable", Method::GET, true, 2),
        ("unanswered, not repeatable", Method::POST, true, 1),
        ("answered in part", Method::GET, false, 1),
    ];
    for (name, method, is_unanswered, attempts) in cases {
        let (client, memory) = client(Duration::ZERO, move |call, endpoint, _| match call {
            0 if is_unanswered => Err(Failure::Unanswered(broken(endpoint))),
            0 => Err(Failure::Final(broken(endpoint))),
            _ => Ok(whole(b"again")),
        });
        let result = client.send(request(method)).await;
        assert_eq!(memory.calls.load(Ordering::SeqCst), attempts, "{name}");
        assert_eq!(result.is_ok(), attempts == 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_refused_whoever_brings_it() {
    let (client, _) = client(Duration::ZERO, |_, _, _| Ok(whole(&[0; 11])));
    let mut small = request(Method::GET);
    small.max_bytes = 10;
    assert!(matches!(client.send(small).await, Err(Error::TooLarge(_, 10))));
}

#[tokio::test(start_paused = true)]
async fn a_sibling_goes_through_the_same_transport_to_its_own_endpoint() {
    let (client, _) = client(Duration::ZERO, |_, endpoint, _| Ok(whole(endpoint.authority().as_bytes())));
    let sibling = client.sibling("http://manager.svc/session").unwrap();
    assert_eq!(sibling.send(request(Method::GET)).await.unwrap().body, b"manager.svc:80");
}

#[derive(Default)]
struct Log(Mutex<Vec<(String, &'static str, &'static str)>>);

impl CallObserver for Log {
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, _duration: Duration) {
        self.0.lock().unwrap().push((endpoint.to_owned(), operation, outcome));
    }
}

#[tokio::test]
async fn the_observer_is_told_the_endpoint_also_of_a_sibling() {
    let log = Arc::new(Log::default());
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let mut settings = Settings::new("2001:db8::1", 8443, tls, "test");
    settings.observer = Some(Arc::clone(&log) as Arc<dyn CallObserver>);
    let client = Client::new(settings).unwrap();
    client.observed("Login", Error::reason, async { Ok(()) }).await.unwrap();
    let sibling = client.sibling("https://sts.example.com").unwrap();
    let refused = async { Err::<(), _>(Error::Tls(sibling.failed("Issue"), String::new())) };
    sibling.observed("Issue", Error::reason, refused).await.unwrap_err();
    let reported = log.0.lock().unwrap().clone();
    let expected =
        [("[2001:db8::1]:8443".to_owned(), "Login", "ok"), ("sts.example.com:443".to_owned(), "Issue", "Tls")];
    assert_eq!(reported, expected);
}

/// A permit that is valid until the channel has the value `true`.
struct Until(watch::Sender<bool>);

#[async_trait]
impl Permit for Until {
    fn is_valid(&self) -> bool {
        !*self.0.borrow()
    }

    async fn ended(&self) {
        drop(self.0.subscribe().wait_for(|is_over| *is_over).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_checked_before_each_attempt_and_ends_what_is_under_way() {
    let permit = Arc::new(Until(watch::Sender::new(false)));
    let with = |method| Request { permit: Some(Arc::clone(&permit) as Arc<dyn Permit>), ..request(method) };
    let over = Arc::clone(&permit);
    let (breaking, memory) = client(Duration::from_secs(1), move |_, endpoint, _| {
        over.0.send_replace(true);
        Err(Failure::Unanswered(broken(endpoint)))
    });
    let error = breaking.send(with(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
    assert_eq!(memory.calls.load(Ordering::SeqCst), 1, "the second attempt is not made");
    permit.0.send_replace(false);
    let (slow, memory) = client(Duration::from_secs(20), |_, _, _| Ok(whole(b"")));
    let began = Instant::now();
    let (answer, ()) = tokio::join!(slow.send(with(Method::PUT)), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        permit.0.send_replace(true);
    });
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::PermitEnded { .. }) && !error.is_transient(), "{error}");
    assert_eq!((began.elapsed(), memory.calls.load(Ordering::SeqCst)), (Duration::from_secs(3), 1));
    let error = slow.send(with(Method::PUT)).await.unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
    assert_eq!(memory.calls.load(Ordering::SeqCst), 1);
}

/// A permit whose end only a poll notices.
struct Silent(AtomicBool);

#[async_trait]
impl Permit for Silent {
    fn is_valid(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    async fn ended(&self) {
        poll_fn(|_| if self.is_valid() { Poll::Pending } else { Poll::Ready(()) }).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_a_connection_is_not_sent_after_a_suspension() {
    let (client, memory) = client(Duration::from_secs(5), |_, _, _| panic!("the request is sent"));
    let permit = Arc::new(Silent(AtomicBool::new(true)));
    let put = Request { permit: Some(Arc::clone(&permit) as Arc<dyn Permit>), ..request(Method::PUT) };
    let mut answer = pin!(client.send(put));
    assert!(answer.as_mut().now_or_never().is_none(), "there is no connection yet");
    permit.0.store(false, Ordering::SeqCst);
    let error = answer.await.unwrap_err();
    assert!(matches!(error, Error::PermitEnded { .. }), "{error}");
    assert_eq!(memory.calls.load(Ordering::SeqCst), 1);
}
