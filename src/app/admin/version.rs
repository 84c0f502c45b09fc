//! The pages about this program: `/version` and `/statusz`.

use crate::app::options::PROGRAM;
use crate::kubernetes::client::COMMIT;
use crate::runtime::admin::Page;
use crate::runtime::metrics::platform;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the pages `/version` and `/statusz`. The uptime counts from this call.
pub fn pages() -> [Page; 2] {
    let (started, since) = (jiff::Timestamp::now(), Instant::now());
    [
        Page { path: "/version", content_type: "application/json", write: Arc::new(version) },
        Page {
            path: "/statusz",
            content_type: "text/plain; charset=utf-8",
            write: Arc::new(move || statusz(started, since.elapsed())),
        },
    ]
}

/// Returns the fields of apimachinery's `version.Info`. `goVersion` is empty, since this is not a Go program.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut parts = version.split('.');
    let info = serde_json::json!({
        "major": parts.next().unwrap_or_default(),
        "minor": parts.next().unwrap_or_default(),
        "gitVersion": format!("v{version}"),
        "gitCommit": COMMIT.unwrap_or_default(),
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform(),
    });
    format!("{info:#}")
}

/// Returns the page in the format of component-base's `zpages/statusz`, but always with the same delimiter.
fn statusz(started: jiff::Timestamp, up: Duration) -> String {
    let second = up.as_secs();
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
    format!(
        "\n{PROGRAM} statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n\nStarted: {started}\n\
         Up: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {}\n",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
