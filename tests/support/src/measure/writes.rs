//! Writes that the API server has served, from its metrics.

use std::collections::BTreeMap;

use kube::Client;

const METRIC: &str = "apiserver_request_total{";
const VERBS: [&str; 5] = ["APPLY", "DELETE", "PATCH", "POST", "PUT"];
/// Resources that are counted. Leases are left out, because the API server itself writes some.
const RESOURCES: [&str; 2] = ["nodes", "events"];

/// Writes of Nodes and Events so far, by verb, resource and HTTP status, such as `PATCH nodes/status 200`.
#[derive(Clone, Debug, Default)]
pub struct Writes(BTreeMap<String, u64>);

impl Writes {
    /// Reads the metrics of the API server.
    ///
    /// # Errors
    ///
    /// A sentence, if it does not answer.
    pub async fn of(client: &Client) -> Result<Self, String> {
        let request = http::Request::get("/metrics").body(Vec::new()).map_err(|error| error.to_string())?;
        let text = client.request_text(request).await.map_err(|error| format!("the API server's metrics: {error}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut writes = BTreeMap::new();
        for (labels, value) in text.lines().filter_map(|line| line.strip_prefix(METRIC)?.rsplit_once("} ")) {
            let label = |name: &str| {
                let start = format!("{name}=\"");
                labels.split(',').find_map(|label| label.strip_prefix(&start)?.strip_suffix('"')).unwrap_or_default()
            };
            if VERBS.contains(&label("verb")) && RESOURCES.contains(&label("resource")) {
                let place = match label("subresource") {
                    "" => label("resource").to_owned(),
                    subresource => format!("{}/{subresource}", label("resource")),
                };
                // The metrics show large counters as 1e+06.
                let count = value.parse::<f64>().unwrap_or_default() as u64;
                *writes.entry(format!("{} {place} {}", label("verb"), label("code"))).or_default() += count;
            }
        }
        Self(writes)
    }

    /// Returns the writes since `before`, without those that have not increased.
    #[must_use]
    pub fn since(&self, before: &Self) -> BTreeMap<String, u64> {
        let came = self.0.iter().map(|(key, count)| (key.clone(), count - before.0.get(key).copied().unwrap_or(0)));
        came.filter(|(_, count)| *count > 0).collect()
    }

    /// Adds the writes of [`super::kubelet::register`] for this many nodes.
    #[must_use]
    pub fn with_kubelets(mut self, nodes: usize) -> Self {
        for key in ["POST nodes 201", "PATCH nodes/status 200"] {
            *self.0.entry(key.to_owned()).or_default() += nodes as u64;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_told_from_reads_and_from_what_was_before() {
        let before = Writes::parse(
            "apiserver_request_total{code=\"200\",resource=\"nodes\",subresource=\"\",verb=\"PATCH\"} 2\n",
        );
        let after = "# HELP apiserver_request_total Counter\n\
            apiserver_request_total{code=\"200\",resource=\"nodes\",subresource=\"\",verb=\"PATCH\"} 5\n\
            apiserver_request_total{code=\"409\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 1\n\
            apiserver_request_total{code=\"200\",resource=\"nodes\",subresource=\"\",verb=\"LIST\"} 9\n\
            apiserver_request_total{code=\"200\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 9\n";
        let expected = [("PATCH nodes 200", 3), ("PATCH nodes/status 409", 1)];
        assert_eq!(Writes::parse(after).since(&before), expected.map(|(key, count)| (key.to_owned(), count)).into());
    }
}
