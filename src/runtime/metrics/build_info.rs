//! What was built, under the Go program's name of the series.

use prometheus::{IntGauge, Opts};

/// Always 1; the labels are those of the Go program. What does not exist here is empty.
pub(super) fn build_info() -> Result<IntGauge, prometheus::Error> {
    let help = "Always 1; the labels say which version this is and what it was built for.";
    let options = Opts::new("kubernetes_build_info", help)
        .const_label("major", env!("CARGO_PKG_VERSION_MAJOR"))
        .const_label("minor", env!("CARGO_PKG_VERSION_MINOR"))
        .const_label("git_version", concat!("v", env!("CARGO_PKG_VERSION")))
        .const_label("git_commit", "")
        .const_label("git_tree_state", "")
        .const_label("build_date", "")
        .const_label("go_version", "")
        .const_label("compiler", "rustc")
        .const_label("platform", platform());
    let info = IntGauge::with_opts(options)?;
    info.set(1);
    Ok(info)
}

/// System and architecture, in the words of images and of Go.
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}
