//! Tests of the metrics of the whole process against `docs/metrics.md`.

use super::files::SystemFiles;
use super::options::{self, Invocation, PROGRAM};
use super::shared_services::SharedServices;
use super::{Stages, access, build_provider, controllers, settings};
use crate::providers::vsphere::config::Environment;
use crate::runtime::metrics::Series;
use std::ffi::OsString;

mod secret_files;

/// Prefix of all series that only this program has.
const OURS: &str = "vsphere_ccm_";

/// Prefixes of the series that the Go program has too.
const OF_THE_GO_PROGRAM: &[&str] = &[
    "apiserver_delegated_",
    "authenticated_user_requests",
    "authentication_",
    "authorization_",
    "kubernetes_build_info",
    "kubernetes_healthcheck",
    "leader_election_",
    "node_controller_",
    "process_",
    "rest_client_",
    "route_controller_",
    "running_managed_controllers",
    "service_controller_",
    "workqueue_",
];

/// Returns the series that a daemon registers at start, before it has reached a server.
async fn registered() -> Vec<Series> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // No process listens on port 1.
    let config = write("vsphere.conf", "[VirtualCenter \"127.0.0.1\"]\nuser = u\npassword = p\nport = 1\n");
    let kubeconfig = write(
        "kubeconfig",
        r#"{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}"#,
    );
    let flags = [
        PROGRAM.to_owned(),
        format!("--cloud-config={config}"),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ];
    let Ok(Invocation::Run(options)) = options::parse(flags.map(OsString::from)) else { panic!("flags") };
    let settings = settings::resolve(&options, &SystemFiles, &Environment::default()).unwrap();
    let mut stages = Stages::default();
    let mut parts = SharedServices::prepare(&settings, &mut stages).await.unwrap();
    let _access = access::prepare(&settings, &parts, &mut stages).await.unwrap();
    parts.compete(&mut stages);
    let (provider, _) = build_provider(&settings, &parts, &mut stages).unwrap();
    let _terms = controllers::start(&settings, &parts, &provider, &mut stages).unwrap();
    let registry = parts.metrics.registry();
    let series = registry.series();
    for family in registry.gather() {
        assert!(series.iter().any(|series| series.name == family.name()), "{} is registered apart", family.name());
    }
    stages.stop().await;
    series
}

/// Returns one table row for each of these series.
fn table(series: &[&Series]) -> String {
    let mut table = String::from("| series | type | labels | says |\n|---|---|---|---|\n");
    for Series { name, kind, labels, help } in series {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        table += &format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), help.replace('|', "\\|"));
    }
    table
}

/// Returns the page with these rows between the two markers of a table.
fn filled(page: &str, mark: &str, rows: &str) -> String {
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the page has no {end}"));
    format!("{before}{begin}{rows}{end}{after}")
}

#[tokio::test]
async fn the_page_of_metrics_names_every_series_the_daemon_can_show() {
    let series = registered().await;
    let (ours, others): (Vec<&Series>, Vec<&Series>) = series.iter().partition(|one| one.name.starts_with(OURS));
    for one in &others {
        let is_known = OF_THE_GO_PROGRAM.iter().any(|prefix| one.name.starts_with(prefix));
        assert!(is_known, "{} is neither the Go program's nor below {OURS}", one.name);
    }
    for one in &ours {
        assert!(one.help.ends_with('.'), "{one:?}");
        assert!(matches!(one.kind, "counter" | "gauge" | "histogram"), "{one:?}");
        assert_eq!(one.kind == "counter", one.name.ends_with("_total"), "{one:?}");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let wanted = filled(&filled(&page, "ours", &table(&ours)), "Go", &table(&others));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &wanted).unwrap();
    } else {
        assert_eq!(page, wanted, "docs/metrics.md is old: UPDATE_GOLDEN=1 writes it");
    }
}
