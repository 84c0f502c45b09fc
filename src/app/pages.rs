//! The pages of the secure port about this process: its settings, flags, version and uptime.

mod configz;

use super::options::{PROGRAM, Value};
use super::settings::Settings;
use crate::kubernetes::client::COMMIT;
use crate::runtime::admin::Page;
use crate::runtime::metrics::platform;
use std::sync::Arc;
use std::time::{Duration, Instant};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The notice of component-base below the heading of a page.
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                      guarantees and is for debugging purposes only.";

/// Returns the pages. Only `/statusz` changes while the process runs: its uptime counts from this call.
pub fn all(settings: &Settings) -> Vec<Page> {
    let (started, since) = (jiff::Timestamp::now(), Instant::now());
    vec![
        constant("/configz", JSON, configz::text(settings)),
        constant("/flagz", TEXT, flagz(&settings.options.values)),
        constant("/version", JSON, version()),
        Page { path: "/statusz", content_type: TEXT, write: Arc::new(move || statusz(started, since.elapsed())) },
    ]
}

fn constant(path: &'static str, content_type: &'static str, text: String) -> Page {
    Page { path, content_type, write: Arc::new(move || text.clone()) }
}

/// Returns `/flagz` in the format of `k8s.io/component-base/zpages/flagz`, but always with the separator `=`.
pub fn flagz(values: &[Value]) -> String {
    let lines: String = values.iter().map(|value| format!("{}={}\n", value.flag.name, value.printed())).collect();
    format!("\ncloud-controller-manager flagz\n{NOTICE}\n\n{lines}")
}

/// Returns the fields of apimachinery's `version.Info`. `goVersion` is empty, since this is not a Go program.
fn version() -> String {
    let info = serde_json::json!({
        "major": env!("CARGO_PKG_VERSION_MAJOR"),
        "minor": env!("CARGO_PKG_VERSION_MINOR"),
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "gitCommit": COMMIT.unwrap_or_default(),
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform(),
    });
    format!("{info:#}")
}

/// Returns `/statusz` in the format of component-base's `zpages/statusz`, but always with the same delimiter.
fn statusz(started: jiff::Timestamp, up: Duration) -> String {
    let second = up.as_secs();
    let hours = second / 3600;
    let minutes = second / 60 % 60;
    let seconds = second % 60;
    let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
    format!(
        "\n{PROGRAM} statusz\n{NOTICE}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
         Binary version: {}\n",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    #[test]
    fn all_pages_are_there_and_hold_no_secret() {
        // The file of `--cloud-config` contains this password.
        let pages = all(&settled(&[]).unwrap());
        let paths = ["/configz", "/flagz", "/version", "/statusz"];
        assert_eq!(pages.iter().map(|page| page.path).collect::<Vec<_>>(), paths);
        for page in pages {
            let text = (page.write)();
            assert_eq!(text.contains("/etc/vsphere.conf"), ["/configz", "/flagz"].contains(&page.path), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn flags_stand_below_the_heading_in_the_order_of_their_names() {
        let settings = settled(&["-v=3", "--vmodule=a=1,b=2", "--vmodule=c_d=3"]).unwrap();
        let page = flagz(&settings.options.values);
        let (head, flags) = page.split_once("only.\n\n").unwrap();
        assert!(
            head.starts_with("\ncloud-controller-manager flagz\nWarning: This endpoint is not meant to be"),
            "{head}"
        );
        let names: Vec<_> = flags.lines().map(|line| line.split('=').next().unwrap()).collect();
        assert!(names.is_sorted() && names.len() > 100, "{names:?}");
        for line in ["cloud-provider=vsphere", "v=3", "vmodule=[a=1,b=2,c_d=3]", "webhooks=[]", "node-selector="] {
            assert!(flags.lines().any(|shown| shown == line), "{line} in {flags}");
        }
    }

    #[test]
    fn the_version_has_the_fields_of_the_go_program() {
        let info: serde_json::Value = serde_json::from_str(&version()).unwrap();
        let fields: Vec<_> = info.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "buildDate",
            "compiler",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "major",
            "minor",
            "platform",
        ];
        assert_eq!(fields, expected);
        assert_eq!(info["gitVersion"], concat!("v", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn the_status_says_since_when() {
        let text = statusz("2026-02-03T04:05:06Z".parse().unwrap(), Duration::from_secs(3 * 3600 + 62));
        assert!(text.contains("\nStarted: Tue Feb  3 04:05:06 UTC 2026\nUp: 3 hr 01 min 02 sec\n"), "{text}");
    }
}
