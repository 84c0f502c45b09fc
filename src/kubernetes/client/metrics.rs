//! Metrics of calls to the API server, with client-go's names.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use kube::Config;
use parking_lot::Mutex;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use tower::layer::{LayerFn, layer_fn};
use tower::{BoxError, Service};

use crate::runtime::metrics::{Registry, counter_vec, gauge_vec, histogram_vec, metrics};

/// Buckets in seconds, as in client-go.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Buckets in bytes, as in client-go.
const BYTES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// Value of the status label if there is no answer, as in client-go.
const NO_ANSWER: &str = "<error>";

/// Metrics of all clients. As in the Go program, there is one set per process, because several places create clients.
static SERIES: LazyLock<Series> = LazyLock::new(Series::default);

/// Expiry times in seconds since 1970, by server and certificate file.
static KNOWN: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

metrics! {
    struct Series {
        requests: IntCounterVec = counter_vec("rest_client_requests_total",
            "Requests to the API server, by the status of the answer.", &["code", "method", "host"]),
        duration: HistogramVec = histogram_vec("rest_client_request_duration_seconds",
            "How long requests to the API server took, until the answer was read; without watches.",
            &["verb", "host"], &SECONDS),
        request_size: HistogramVec = histogram_vec("rest_client_request_size_bytes",
            "Size of the bodies sent to the API server.", &["verb", "host"], &BYTES),
        response_size: HistogramVec = histogram_vec("rest_client_response_size_bytes",
            "Size of the bodies that the API server answered; without watches.", &["verb", "host"], &BYTES),
        limiter: HistogramVec = histogram_vec("rest_client_rate_limiter_duration_seconds",
            "How long writes waited here for their turn before they were sent.", &["verb", "host"], &SECONDS),
        /// The earliest expiry of the client certificates. Without a certificate there is no time series.
        expiry: GaugeVec = gauge_vec("vsphere_ccm_apiserver_client_certificate_expiry_timestamp_seconds",
            "When the client certificate for the API server expires, in seconds since 1970; of several, the first \
             to expire.",
            &[]),
    }
}

/// Registers the metrics of all clients. Fails if `registry` already has a collector with one of the names.
pub fn register(registry: &Registry) -> Result<(), prometheus::Error> {
    registry.register(Box::new(SERIES.clone()))
}

/// Updates the expiry metric, which shows the earliest expiry, with the client certificate of `config`.
pub(super) fn show_expiry(config: &Config, certificate: &CertifiedKey) {
    let Some(seconds) = certificate.cert.first().and_then(|certificate| not_after(certificate)) else { return };
    let file = config.auth_info.client_certificate.as_deref().unwrap_or_default();
    let mut known = KNOWN.lock();
    known.insert(format!("{} {file}", config.cluster_url), seconds);
    let first = known.values().copied().fold(f64::INFINITY, f64::min);
    SERIES.expiry.with_label_values::<&str>(&[]).set(first);
}

/// The value shown for the certificate in this file.
#[cfg(test)]
pub(super) fn shown_for(file: &str) -> Option<f64> {
    let known = KNOWN.lock();
    known.iter().find(|(key, _)| key.ends_with(file)).map(|(_, seconds)| *seconds)
}

/// Returns the expiry of a certificate, in seconds since 1970.
fn not_after(certificate: &[u8]) -> Option<f64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    // The conversion is exact, because a float has 53 bits for integers.
    Some(parsed.validity().not_after.timestamp() as f64)
}

/// Records the delay of a write that is sent now.
pub(super) fn waited(method: &Method, host: &str, began: Instant) {
    SERIES.limiter.with_label_values(&[verb(method), host]).observe(began.elapsed().as_secs_f64());
}

/// Returns the label value of a method. Unknown methods share one value, so that a caller cannot add label values.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

/// Whether the request opens a watch, whose response is an open-ended stream.
pub(super) fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// Returns a layer that counts requests and responses. It must be inside the layers that delay or reject writes, so
/// that unsent requests are not counted. `host` is the host and port in the API server's URL.
pub(super) fn layer<S>(host: &str) -> LayerFn<impl Fn(S) -> MetricsService<S> + use<S>> {
    let host: Arc<str> = host.into();
    layer_fn(move |inner| MetricsService { inner, host: Arc::clone(&host) })
}

pub(super) struct MetricsService<S> {
    inner: S,
    host: Arc<str>,
}

impl<S, B, R> Service<Request<B>> for MetricsService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Body,
    R: 'static,
{
    type Response = Response<CountedBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<CountedBody<R>>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verb = verb(request.method());
        let host = Arc::clone(&self.host);
        let is_watch = is_watch(&request);
        let size = request.body().size_hint().exact().filter(|size| *size > 0);
        let answer = self.inner.call(request);
        async move {
            // The first poll sends the request.
            let mut call = Call { verb, host, is_watch, began: Instant::now(), is_answered: false };
            if let Some(size) = size {
                call.observe(&SERIES.request_size, size as f64);
            }
            let answer = answer.await?;
            call.answered(answer.status().as_str());
            Ok(answer.map(|body| CountedBody { body, size: 0, call: Some(call) }))
        }
        .boxed()
    }
}

/// A sent request. Dropping it records the end of the request.
struct Call {
    verb: &'static str,
    host: Arc<str>,
    is_watch: bool,
    began: Instant,
    is_answered: bool,
}

impl Call {
    fn observe(&self, histogram: &HistogramVec, value: f64) {
        histogram.with_label_values(&[self.verb, &self.host]).observe(value);
    }

    fn answered(&mut self, code: &str) {
        self.is_answered = true;
        SERIES.requests.with_label_values(&[code, self.verb, &self.host]).inc();
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_answered {
            // The request failed, or the caller cancelled it.
            self.answered(NO_ANSWER);
        }
        if !self.is_watch {
            self.observe(&SERIES.duration, self.began.elapsed().as_secs_f64());
        }
    }
}

/// A response body whose bytes are counted.
pub(super) struct CountedBody<B> {
    body: B,
    size: usize,
    call: Option<Call>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        use hyper::body::Buf as _;
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => this.size += frame.data_ref().map_or(0, |data| data.remaining()),
            Some(Err(_)) => drop(this.call.take()),
            None => {
                if let Some(call) = this.call.take().filter(|call| !call.is_watch) {
                    call.observe(&SERIES.response_size, this.size as f64);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Reports the end only after the last poll, because that poll counts the body.
        self.call.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::read_file;
    use super::super::limits::WriteLimits;
    use super::super::{guard, identity};
    use super::*;
    use crate::kubernetes::call::limited;
    use crate::kubernetes::leadership::{Holder, Leadership, SendTime};
    use crate::runtime::metrics::Metrics;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use futures::TryStreamExt as _;
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::api::{DeleteParams, PostParams, WatchParams};
    use kube::client::{Body as KubeBody, ClientBuilder};
    use rcgen::{CertificateParams, KeyPair};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a client of a server with this name, which answers after 1 s. A creation gets 409. A deletion gets a
    /// broken connection.
    fn client(host: &str, leadership: Leadership) -> kube::Client {
        let service = tower::service_fn(|request: Request<KubeBody>| async move {
            tokio::time::sleep(SECOND).await;
            let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
            let (status, body) = match *request.method() {
                Method::POST => {
                    (409, r#"{"kind":"Status","status":"Failure","reason":"Conflict","code":409}"#.to_owned())
                }
                Method::DELETE => return Err("cut off".into()),
                _ if is_watch(&request) => (200, format!(r#"{{"type":"ADDED","object":{node}}}"#)),
                _ => (200, node.to_owned()),
            };
            let response = Response::builder().status(status).body(KubeBody::from(body.into_bytes()));
            Ok::<_, BoxError>(response.unwrap())
        });
        ClientBuilder::new(service, "default")
            .with_layer(&layer(host))
            .with_layer(&guard::layer(leadership, WriteLimits::new(1, None, host)))
            .build()
    }

    /// Returns the metrics of this server, without the label `host`.
    fn lines(host: &str) -> Vec<String> {
        let metrics = Metrics::new().unwrap();
        register(metrics.registry()).unwrap();
        let label = format!("host=\"{host}\",");
        let text = metrics.encode().unwrap();
        let ours = text.lines().filter(|line| line.contains(&label) && !line.contains("_bucket"));
        ours.map(|line| line.replace(&label, "").replace("rest_client_", "")).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_by_their_answer_and_watches_once_when_they_are_opened() {
        let nodes: Api<Node> = Api::all(client("counted:6443", Leadership::always()));
        limited("get", 60 * SECOND, nodes.get("a")).await.unwrap();
        limited("get", SECOND / 2, nodes.get("a")).await.unwrap_err();
        let node = Node { metadata: kube::api::ObjectMeta::default(), ..Node::default() };
        limited("create", 60 * SECOND, nodes.create(&PostParams::default(), &node)).await.unwrap_err();
        limited("delete", 60 * SECOND, nodes.delete("a", &DeleteParams::default())).await.unwrap_err();
        let watch = nodes.watch(&WatchParams::default(), "0").await.unwrap();
        assert_eq!(watch.try_collect::<Vec<_>>().await.unwrap().len(), 1);
        let lines = lines("counted:6443");
        for expected in [
            "requests_total{code=\"200\",method=\"GET\"} 2",
            "requests_total{code=\"<error>\",method=\"GET\"} 1",
            "requests_total{code=\"409\",method=\"POST\"} 1",
            "requests_total{code=\"<error>\",method=\"DELETE\"} 1",
            "request_duration_seconds_count{verb=\"GET\"} 2",
            "request_duration_seconds_sum{verb=\"GET\"} 1.5",
            "request_duration_seconds_count{verb=\"POST\"} 1",
            "request_duration_seconds_sum{verb=\"DELETE\"} 1",
            "response_size_bytes_count{verb=\"GET\"} 1",
            "response_size_bytes_sum{verb=\"GET\"} 57",
            "response_size_bytes_sum{verb=\"POST\"} 67",
            "request_size_bytes_count{verb=\"POST\"} 1",
            "rate_limiter_duration_seconds_count{verb=\"POST\"} 1",
            "rate_limiter_duration_seconds_sum{verb=\"POST\"} 0",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is not among {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.starts_with("request_size_bytes_count{verb=\"GET\"")), "{lines:#?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_not_sent_is_no_request_and_one_that_waits_is_shown_to_have_waited() {
        let (mut holder, leadership) = Holder::new();
        let nodes: Api<Node> = Api::all(client("unsent:6443", leadership));
        limited("delete", SECOND, nodes.delete("a", &DeleteParams::default())).await.unwrap_err();
        let before = lines("unsent:6443");
        assert!(!before.iter().any(|line| line.starts_with("requests_total")), "{before:#?}");
        holder.begin(SendTime::now(), 60 * SECOND);
        let post = PostParams::default();
        let (one, other) = (Node::default(), Node::default());
        let create = |node| limited("create", 60 * SECOND, nodes.create(&post, node));
        let _ = tokio::join!(create(&one), create(&other));
        let lines = lines("unsent:6443");
        let expected = "rate_limiter_duration_seconds_sum{verb=\"POST\"} 1".to_owned();
        assert!(lines.contains(&expected), "{lines:#?}");
    }

    #[test]
    fn the_end_of_a_certificate_in_a_file_or_in_the_kubeconfig_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mut shown = Vec::new();
        for year in [2040, 2030] {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().unwrap();
            let pem = parameters.self_signed(&key).unwrap().pem();
            let mut config = Config::new(format!("https://{year}.example").parse().unwrap());
            if year == 2040 {
                let path = folder.path().join("tls.crt");
                // The expiry ignores the same broken blocks as the reader of certificates.
                let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
                std::fs::write(&path, format!("{broken}{}", pem.replace("\nM", "\n M"))).unwrap();
                config.auth_info.client_certificate = Some(path.display().to_string());
            } else {
                config.auth_info.client_certificate_data = Some(STANDARD.encode(pem).replacen('L', "L\n", 1));
            }
            config.auth_info.client_key_data = Some(STANDARD.encode(key.serialize_pem()).into());
            let certificate = identity::of(&config.auth_info, &read_file).unwrap().unwrap();
            show_expiry(&config, &certificate);
            let known = KNOWN.lock();
            shown.extend(known.iter().filter(|(key, _)| key.contains(&year.to_string())).map(|(_, seconds)| *seconds));
        }
        assert_eq!(shown, [2_208_988_800.0, 1_893_456_000.0]);
        assert!(SERIES.expiry.with_label_values::<&str>(&[]).get() <= 1_893_456_000.0, "the first to expire");
    }
}
