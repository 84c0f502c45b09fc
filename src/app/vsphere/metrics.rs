//! Metrics of vCenter and NSX from the HTTP clients: calls, and the expiry and verification of certificates.

use crate::clients::http::{CallObserver, Client, WeakClient};
use crate::runtime::metrics::{Registry, gauge_vec, histogram_vec};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{DEFAULT_BUCKETS, GaugeVec, HistogramVec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// vCenter in the names of metrics, and as label of the server. The value of the label is `host:port`, as in the log.
pub const VCENTER: &str = "vcenter";

/// NSX in the same places.
pub const NSX: &str = "nsx";

/// The metric of call durations and outcomes.
pub struct Calls(HistogramVec);

impl Calls {
    /// Registers the metric. Fails if `registry` already has a metric with the same name.
    pub fn register(registry: &Registry, product: &str) -> Result<Self, prometheus::Error> {
        let name = format!("vsphere_ccm_{product}_call_duration_seconds");
        let labels = [product, "operation", "outcome"];
        let calls = histogram_vec(&name, "Calls, by server and how they ended.", &labels, DEFAULT_BUCKETS);
        registry.register(Box::new(calls.clone()))?;
        Ok(Self(calls))
    }
}

impl CallObserver for Calls {
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.0.with_label_values(&[endpoint, operation, outcome]).observe(duration.as_secs_f64());
    }
}

/// Metrics of server certificates: expiry and verification. A server that is not configured has no series, since an
/// unused certificate must not raise an alert.
#[derive(Clone)]
pub struct Certificates {
    expiry: GaugeVec,
    verified: GaugeVec,
    /// The clients, by their servers.
    clients: Arc<Mutex<BTreeMap<String, WeakClient>>>,
}

impl Certificates {
    /// Registers the metrics. Fails if `registry` already has a metric with one of the names.
    pub fn register(registry: &Registry, product: &str) -> Result<Self, prometheus::Error> {
        let certificates = Self {
            expiry: gauge_vec(
                &format!("vsphere_ccm_{product}_certificate_expiry_timestamp_seconds"),
                "When the certificate expires that the server presented last, in seconds since 1970.",
                &[product],
            ),
            verified: gauge_vec(
                &format!("vsphere_ccm_{product}_tls_verified"),
                "1 if the server's certificate is verified, 0 if every certificate is accepted (insecure-flag).",
                &[product],
            ),
            clients: Arc::default(),
        };
        registry.register(Box::new(certificates.clone()))?;
        Ok(certificates)
    }

    /// Exposes the certificate of the client's server as long as the client is in use.
    pub fn show(&self, client: &Client) {
        self.clients.lock().insert(client.endpoint().to_owned(), client.downgrade());
    }
}

impl Collector for Certificates {
    fn desc(&self) -> Vec<&Desc> {
        self.expiry.desc().into_iter().chain(self.verified.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut clients = self.clients.lock();
        self.expiry.reset();
        self.verified.reset();
        clients.retain(|server, client| {
            let Some(client) = client.upgrade() else { return false };
            let certificate = client.certificate_status();
            self.verified.with_label_values(&[server.as_str()]).set(f64::from(u8::from(certificate.is_verified)));
            if let Some(seconds) = certificate.expiry {
                self.expiry.with_label_values(&[server.as_str()]).set(seconds as f64);
            }
            true
        });
        self.expiry.collect().into_iter().chain(self.verified.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the series, against a server in this process.

    use super::{Certificates, Client, Registry, VCENTER};
    use crate::clients::http::tests::server::{Reply, TestServer};
    use crate::clients::http::{Method, Request, Settings, Thumbprint, TlsSettings};
    use std::time::Duration;

    fn series(registry: &Registry) -> Vec<(String, f64)> {
        of_name(registry, "vsphere_ccm_vcenter_certificate_expiry_timestamp_seconds")
    }

    fn of_name(registry: &Registry, name: &str) -> Vec<(String, f64)> {
        let families = registry.gather();
        let metrics = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
        metrics.map(|metric| (metric.get_label()[0].value().to_owned(), metric.get_gauge().get_value())).collect()
    }

    async fn call(client: &Client) {
        let request = Request::new(Method::GET, "/", "probe", Duration::from_secs(20));
        assert_eq!(client.send(request).await.unwrap().status, 200);
    }

    #[tokio::test]
    async fn a_certificate_is_shown_from_its_first_handshake_until_its_client_is_gone() {
        let registry = Registry::default();
        let certificates = Certificates::register(&registry, VCENTER).unwrap();
        let server = TestServer::start(|_| Reply::json(200, "{}")).await;
        let client = server.client();
        certificates.show(&client);
        assert_eq!(series(&registry), []);
        call(&client).await;
        // The certificate expires in the year 4096.
        let expected = [(client.endpoint().to_owned(), 67_090_118_400.0)];
        assert_eq!(series(&registry), expected);
        let clone = client.clone();
        drop(client);
        assert_eq!(series(&registry), expected, "a clone is in use");
        drop(clone);
        assert_eq!(series(&registry), []);
    }

    #[test]
    fn whether_a_certificate_is_verified_is_shown_as_long_as_its_client_is_in_use() {
        let registry = Registry::default();
        let certificates = Certificates::register(&registry, VCENTER).unwrap();
        let tls = |insecure| TlsSettings {
            insecure,
            thumbprints: vec![Thumbprint::sha256_of(b"a")],
            ..TlsSettings::default()
        };
        let client = |host: &str, insecure| Client::new(Settings::new(host, 443, tls(insecure), "test")).unwrap();
        let (verified, other) = (client("a", false), client("b", true));
        certificates.show(&verified);
        certificates.show(&other);
        let shown = || of_name(&registry, "vsphere_ccm_vcenter_tls_verified");
        assert_eq!(shown(), [("a:443".to_owned(), 1.0), ("b:443".to_owned(), 0.0)]);
        // A reload changes the settings in the same way.
        verified.set_tls(tls(true)).unwrap();
        drop(other);
        assert_eq!(shown(), [("a:443".to_owned(), 0.0)]);
    }

    #[tokio::test]
    async fn a_client_that_takes_the_place_of_another_is_shown_in_its_place() {
        let registry = Registry::default();
        let certificates = Certificates::register(&registry, VCENTER).unwrap();
        let server = TestServer::start(|_| Reply::json(200, "{}")).await;
        let (first, second) = (server.client(), server.client());
        certificates.show(&first);
        certificates.show(&second);
        call(&second).await;
        assert_eq!(series(&registry).len(), 1);
        drop(first);
        assert_eq!(series(&registry).len(), 1);
    }
}
