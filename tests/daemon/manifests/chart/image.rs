//! The image value of the chart is required, and its mistakes are found before a pod is created.

use super::super::kustomize::parsed;
use super::{DIGEST, GO_VALUES, refusal, render};

#[tokio::test]
async fn the_image_is_repository_tag_and_digest() {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    for (values, expected) in [
        (String::new(), format!("registry.test/ccm:{version}")),
        ("tag: v9".to_owned(), "registry.test/ccm:v9".to_owned()),
        (format!("digest: {DIGEST}"), format!("registry.test/ccm@{DIGEST}")),
        (format!("tag: v9, digest: {DIGEST}"), format!("registry.test/ccm:v9@{DIGEST}")),
        ("image: 'localhost:5000/a/b'".to_owned(), format!("localhost:5000/a/b:{version}")),
    ] {
        let rendered = render(&format!("daemonset: {{{values}}}")).await;
        assert_eq!(rendered.image(), expected, "{values}");
        assert!(parsed(rendered.image()).await.is_ok_and(|parsed| parsed == expected), "{values}");
    }
}

/// This includes values of an older release alone.
#[tokio::test]
async fn without_an_image_the_chart_says_which_value_to_set() {
    for values in ["", "daemonset: {tag: v9}", "daemonset: {image: ''}"] {
        for flags in [&[][..], &["--reused"]] {
            let refused = refusal(&["config: {secret: {name: a}}", values], flags).await;
            for part in ["daemonset.image is not set", "daemonset.tag", "imagePullSecrets", "docs/install/image.md"] {
                assert!(refused.contains(part), "{values} {flags:?}: {part}: {refused}");
            }
        }
    }
}

/// The Go program's image does not answer the probes, so a release with reused values would restart it without end.
#[tokio::test]
async fn the_image_of_the_go_program_is_refused() {
    for image in [
        "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere",
        "mirror.test:5000/k8s/cloud-pv-vsphere/cloud-provider-vsphere",
        "gcr.io/cloud-provider-vsphere/cpi/release/manager",
    ] {
        let values = format!("daemonset: {{image: '{image}', tag: v1.36.0}}");
        let refused = refusal(&[GO_VALUES, &values], &["--reused"]).await;
        let expected = format!("daemonset.image is {image}, the image of the Go program");
        assert!(refused.contains(&expected), "{image}: {refused}");
    }
}
