//! The image value of the chart is required, and its mistakes are found before a pod is created.

use serde_json::json;

use super::super::kustomize::parsed;
use super::{DIGEST, GO_VALUES, IMAGE, refusal, render, render_all};

const SECRET: &str = "config: {secret: {name: a}}";

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
        let values = values.replace("image:", "repository:");
        let values =
            if values.contains("repository") { values } else { format!("repository: registry.test/ccm, {values}") };
        let new = render_all(&[SECRET, &format!("image: {{{values}}}")], &[]).await.unwrap();
        assert_eq!(new.image(), expected, "{values}");
    }
}

#[tokio::test]
async fn a_registry_is_put_before_the_repository() {
    let values = "image: {registry: 'registry.test:5000/mirror', repository: a/ccm, tag: v9}";
    let rendered = render_all(&[SECRET, values], &[]).await.unwrap();
    assert_eq!(rendered.image(), "registry.test:5000/mirror/a/ccm:v9");
    let refused = refusal(&[SECRET, "image: {registry: registry.test}"], &[]).await;
    assert!(refused.contains("image.registry is set without image.repository"), "{refused}");
}

#[tokio::test]
async fn an_old_and_a_new_value_of_the_image_must_not_differ() {
    let digest = DIGEST.replace('0', "1");
    let digests = format!("image: {{digest: '{DIGEST}'}}\ndaemonset: {{digest: '{digest}'}}");
    for (values, [new, old]) in [
        ("image: {repository: registry.test/other}", ["image.repository", "daemonset.image"]),
        ("{image: {tag: v1}, daemonset: {tag: v2}}", ["image.tag", "daemonset.tag"]),
        (&digests, ["image.digest", "daemonset.digest"]),
        ("{image: {pullPolicy: Always}, daemonset: {pullPolicy: Never}}", ["image.pullPolicy", "daemonset.pullPolicy"]),
        (
            "{image: {pullSecrets: [{name: a}]}, imagePullSecrets: [{name: b}]}",
            ["image.pullSecrets", "imagePullSecrets"],
        ),
    ] {
        let refused = refusal(&[IMAGE, values], &[]).await;
        let named = refused.contains(new) && refused.contains(old) && refused.contains("differ");
        assert!(named, "{values}: {refused}");
    }
    let same = "{image: {repository: registry.test/ccm, tag: v1, pullSecrets: [{name: a}], pullPolicy: Always}, \
                imagePullSecrets: [{name: a}], daemonset: {tag: v1}}";
    let rendered = render(same).await;
    assert_eq!(rendered.image(), "registry.test/ccm:v1");
    assert_eq!(rendered.pod()["imagePullSecrets"], json!([{"name": "a"}]));
    // The default of upstream's chart counts as unset.
    assert_eq!(rendered.container()["imagePullPolicy"], "Always");
}

/// This includes values of an older release alone.
#[tokio::test]
async fn without_an_image_the_chart_says_which_value_to_set() {
    for values in ["", "daemonset: {tag: v9}", "daemonset: {image: ''}"] {
        for flags in [&[][..], &["--reused"]] {
            let refused = refusal(&["config: {secret: {name: a}}", values], flags).await;
            for part in ["image.repository is not set", "image.tag", "image.pullSecrets", "docs/install/image.md"] {
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
        let expected = format!("daemonset.image is {image}, the image of upstream's program");
        assert!(refused.contains(&expected), "{image}: {refused}");
    }
}

/// The new value replaces upstream's image and its tag, which reused values contain.
#[tokio::test]
async fn a_repository_replaces_the_image_of_the_go_program() {
    let upstream = "daemonset: {image: registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere, tag: v1.36.0}";
    let ours = "image: {repository: registry.test/ccm, tag: v0.1.0}";
    let rendered = render_all(&[GO_VALUES, upstream, ours], &["--reused"]).await.unwrap();
    assert_eq!(rendered.image(), "registry.test/ccm:v0.1.0");
    assert!(rendered.notes.contains("daemonset.image and daemonset.tag name upstream's image"), "{}", rendered.notes);
    let refused =
        refusal(&[IMAGE, &ours.replace("registry.test/ccm", "gcr.io/cloud-provider-vsphere/cpi/release/manager")], &[])
            .await;
    assert!(refused.contains("image.repository") && refused.contains("daemonset.image"), "{refused}");
    let refused =
        refusal(&[SECRET, "image: {repository: gcr.io/cloud-provider-vsphere/cpi/release/manager}"], &[]).await;
    assert!(refused.contains("the image of upstream's program"), "{refused}");
}
