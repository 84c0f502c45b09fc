//! From the bytes of an answer to typed updates, through the client with an in-memory transport: the daemon's work for
//! each answer, including a copy of the bytes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http as wire;
use ccm::clients::http::{Endpoint, Failure, Request, Response, Settings, TlsSettings, Transport};
use ccm::clients::vim::{Client, FilterSpec, MoRef, Value};
use criterion::{Criterion, Throughput};

use crate::answers::{MACHINES, entered, page};

/// A transport that always answers the same bytes.
struct Canned(Vec<u8>);

#[async_trait]
impl Transport for Canned {
    async fn exchange(&self, _endpoint: &Endpoint, _request: Request) -> Result<Response, Failure> {
        Ok(Response { status: 200, headers: http::HeaderMap::new(), body: self.0.clone() })
    }
}

fn client(answer: Vec<u8>) -> Client {
    let mut settings = Settings::new("vc.example.org", 443, TlsSettings::default(), "micro");
    settings.transport = Some(Arc::new(Canned(answer)));
    Client::new(wire::Client::new(settings).expect("nothing but memory is needed"))
}

/// Measures the decoding of answers.
pub fn measure(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut group = criterion.benchmark_group("decode");

    let answer = entered();
    group.throughput(Throughput::Bytes(answer.len() as u64));
    let waiting = client(answer);
    let collector = MoRef::new("PropertyCollector", "session[1]52");
    group.bench_function("WaitForUpdatesEx", |bencher| {
        bencher.iter(|| {
            let wait = waiting.wait_for_updates(&collector, "3", Duration::from_secs(60), 1_000);
            let updates = runtime.block_on(wait).expect("an answer").expect("updates");
            let objects = &updates.filters[0].objects;
            assert_eq!((objects.len(), objects[0].changes.len()), (MACHINES, 20));
            let is_interfaces = |value: &Value| matches!(value, Value::Nics(nics) if nics.len() == 6);
            assert!(objects[0].changes[5].value.as_ref().is_some_and(is_interfaces));
            updates
        });
    });

    let answer = page();
    group.throughput(Throughput::Bytes(answer.len() as u64));
    let reading = client(answer);
    let spec = FilterSpec::of_object(&collector, &["name"]);
    group.bench_function("RetrievePropertiesEx", |bencher| {
        bencher.iter(|| {
            let objects = runtime.block_on(reading.retrieve_properties(&spec)).expect("an answer");
            assert_eq!((objects.len(), objects[0].properties.len()), (MACHINES, 20));
            objects
        });
    });
    group.finish();
}
