//! What a client calls itself, in the form of client-go.

use http::HeaderValue;

use crate::runtime::metrics::platform;

/// The server derives the field manager from what stands before the slash, unless a write names one.
const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// The commit this was built from, where the build says so.
pub const COMMIT: Option<&str> = option_env!("CCM_COMMIT");

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<purpose>`.
pub(super) fn header(purpose: &str) -> HeaderValue {
    built_from(COMMIT, purpose)
}

fn built_from(commit: Option<&str>, purpose: &str) -> HeaderValue {
    let (version, platform) = (env!("CARGO_PKG_VERSION"), platform());
    let commit = commit.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    let text = format!("{PROGRAM}/{version} ({platform}) kubernetes/{commit}/{purpose}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_the_program_the_machine_and_the_purpose() {
        let purpose = "system:serviceaccount:kube-system:node-controller";
        for (commit, shown) in [(Some("0123456789abcdef"), "0123456"), (Some(""), "unknown"), (None, "unknown")] {
            let header = built_from(commit, purpose);
            let text = header.to_str().unwrap();
            let program = concat!("vsphere-cloud-controller-manager/", env!("CARGO_PKG_VERSION"), " (linux/");
            assert!(text.starts_with(program), "{text}");
            assert!(text.ends_with(&format!(") kubernetes/{shown}/{purpose}")), "{text}");
        }
    }
}
