//! What a client calls itself, in the form of client-go.

use http::HeaderValue;

/// The server derives the field manager from what stands before the slash, unless a write names one.
const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// The commit this was built from, where the build says so.
const COMMIT: Option<&str> = option_env!("CCM_COMMIT");

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<purpose>`.
pub(super) fn header(purpose: &str) -> HeaderValue {
    let (version, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let commit = COMMIT.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    let text = format!("{PROGRAM}/{version} ({os}/{architecture}) kubernetes/{commit}/{purpose}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_the_program_the_machine_and_the_purpose() {
        let header = header("system:serviceaccount:kube-system:node-controller");
        let text = header.to_str().unwrap();
        assert!(text.starts_with(concat!("vsphere-cloud-controller-manager/", env!("CARGO_PKG_VERSION"), " (linux/")));
        assert!(text.contains(") kubernetes/"), "{text}");
        assert!(text.ends_with("/system:serviceaccount:kube-system:node-controller"), "{text}");
    }
}
