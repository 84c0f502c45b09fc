//! Values for `vsphere.conf`: one vCenter or several, trust, NSX, zones, and objects of one's own.

use serde_json::{Value, json};
use support::pages::page;

use super::super::kustomize::objects;
use super::{CONFIG, assert_refused, refusal, render, render_all};

/// Each value of this group once, different from its default. NSX has no routes, which need a flag.
pub const ALL: &str = r#"
config:
  enabled: true
  secret: {name: ""}
  existingSecret: my-vcenters
  caBundle: |
    -----BEGIN CERTIFICATE-----
    AAAA
    -----END CERTIFICATE-----
  vcenters:
    vc-1.example.com: {}
    west:
      server: fd00::1
      port: 8443
      datacenters: [dc-1, dc-2]
      ipFamily: [ipv6, ipv4]
      thumbprint: "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD"
      secretName: west
      secretNamespace: default
  datacenter: dc-9
  region: k8s-region
  zone: k8s-zone
  nsx:
    caBundle: |
      -----BEGIN CERTIFICATE-----
      BBBB
      -----END CERTIFICATE-----
    nsxt: {host: nsx.example.com, secretName: nsx}
    loadBalancer:
      size: SMALL
      tier1GatewayPath: /infra/tier-1s/lb
      ipPoolName: public
      tcpAppProfileName: default-tcp-lb-app-profile
      udpAppProfileName: default-udp-lb-app-profile
      tags: {team: network}
    loadBalancerClass: {internal: {ipPoolName: internal}}
"#;

/// Returns a configuration that is rendered, with these values of `config`.
pub fn with(values: &str) -> String {
    CONFIG.replace('}', &format!(", {values}}}"))
}

#[tokio::test]
async fn several_vcenters_and_nsx_are_rendered() {
    let rendered = render(ALL).await;
    let data = &rendered.one("ConfigMap")["data"];
    let config = objects(data["vsphere.conf"].as_str().unwrap()).await.remove(0);
    let expected = json!({
        "global": {"port": 443, "caFile": "/etc/cloud/vcenter-ca.pem", "datacenters": ["dc-9"],
            "secretName": "my-vcenters", "secretNamespace": "kube-system"},
        "vcenter": {
            "vc-1.example.com": {"server": "vc-1.example.com"},
            "west": {"server": "fd00::1", "port": 8443, "datacenters": ["dc-1", "dc-2"], "ipFamily": ["ipv6", "ipv4"],
                "thumbprint": "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD",
                "secretName": "west", "secretNamespace": "default"},
        },
        "labels": {"region": "k8s-region", "zone": "k8s-zone"},
        "nsxt": {"host": "nsx.example.com", "secretName": "nsx", "secretNamespace": "kube-system",
            "caFile": "/etc/cloud/nsx-ca.pem"},
        "loadBalancer": {"size": "SMALL", "tier1GatewayPath": "/infra/tier-1s/lb", "ipPoolName": "public",
            "tcpAppProfileName": "default-tcp-lb-app-profile", "udpAppProfileName": "default-udp-lb-app-profile",
            "tags": {"team": "network"}},
        "loadBalancerClass": {"internal": {"ipPoolName": "internal"}},
    });
    assert_eq!(config, expected);
    let bundle = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    assert_eq!((&data["vcenter-ca.pem"], &data["nsx-ca.pem"]), (&json!(bundle("AAAA")), &json!(bundle("BBBB"))));
    assert!(!rendered.kinds().contains_key("Secret"), "config.existingSecret");
    let roles = rendered.objects.iter().filter(|object| object["kind"] == "Role");
    let of_secrets = roles.filter(|role| role["rules"][0]["resources"] == json!(["secrets"]));
    let read: Vec<_> = of_secrets
        .map(|role| (role["metadata"]["namespace"].clone(), role["rules"][0]["resourceNames"][0].clone()))
        .collect();
    let expected = [("kube-system", "my-vcenters"), ("default", "west"), ("kube-system", "nsx")];
    assert_eq!(read, expected.map(|(namespace, name)| (json!(namespace), json!(name))));
}

/// The program itself accepts what the chart writes.
#[tokio::test]
async fn the_program_accepts_bundles_several_vcenters_and_nsx() {
    let bundle = json!(page("tests/vcenter/certificates/ca.pem"));
    let nsx = "{host: nsx.example.com, secretName: nsx}";
    let balancer = "{size: SMALL, tier1GatewayPath: /infra/tier-1s/lb, ipPoolName: a, tcpAppProfileName: b, \
                    udpAppProfileName: c}";
    let values = format!(
        "config: {{enabled: true, existingSecret: mine, secret: {{name: ''}}, caBundle: {bundle}, datacenter: dc-9, \
         vcenters: {{vc-1.example.com: {{}}, west: {{server: vc-2.example.com, datacenters: [dc-1]}}}}, \
         nsx: {{caBundle: {bundle}, nsxt: {nsx}, loadBalancer: {balancer}}}}}"
    );
    let config = render(&values).await.config().await;
    assert_eq!(config["vcenter"]["west"]["server"], "vc-2.example.com");
    assert_eq!(config["nsxt"]["caFile"], "/etc/cloud/nsx-ca.pem");
}

#[tokio::test]
async fn the_chart_creates_one_secret_for_vcenters_that_name_none() {
    let account = "username: ccm, password: 'a: b'";
    let values = format!(
        "config: {{enabled: true, insecureFlag: true, vcenters: {{a.example.com: {{{account}}}, \
         b: {{server: 'fd00::1', {account}}}, c: {{secretName: other}}}}}}"
    );
    let rendered = render(&values).await;
    let keys = json!({
        "a.example.com.username": "ccm", "a.example.com.password": "a: b",
        "server_1": "fd00::1", "username_1": "ccm", "password_1": "a: b",
    });
    assert_eq!(rendered.one("Secret")["stringData"], keys);
    assert_eq!(rendered.config().await["vcenter"]["c"]["secretNamespace"], "kube-system");
    // Without a shared Secret there is none to create, to name or to read.
    let alone = render("config: {enabled: true, insecureFlag: true, vcenters: {c: {secretName: other}}}").await;
    assert!(!alone.kinds().contains_key("Secret"));
    assert_eq!(alone.config().await["global"], json!({"port": 443}));
}

/// In the section global, `insecureFlag` takes precedence over the thumbprint of a vCenter.
#[tokio::test]
async fn a_vcenter_with_a_certificate_of_its_own_is_verified_also_if_the_others_are_not() {
    let thumbprint = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD";
    let vcenters = format!("{{a: {{thumbprint: '{thumbprint}'}}, b: {{}}, c: {{insecureFlag: false}}}}");
    let values = format!("config: {{enabled: true, insecureFlag: true, existingSecret: mine, vcenters: {vcenters}}}");
    let config = render(&values).await.config().await;
    assert_eq!(config["global"]["insecureFlag"], Value::Null);
    let flags = ["a", "b", "c"].map(|name| config["vcenter"][name]["insecureFlag"].clone());
    assert_eq!(flags, [Value::Null, json!(true), json!(false)]);
}

#[tokio::test]
async fn a_configuration_without_server_credentials_or_trust_is_refused() {
    let trust = ["config.thumbprint", "config.caFile", "config.caBundle", "config.insecureFlag=true"];
    assert_refused(&[
        (
            "config: {enabled: true, username: a, password: b, insecureFlag: true}",
            &["config.vcenter", "config.vcenters"],
        ),
        ("config: {enabled: true, vcenter: '', insecureFlag: true}", &["config.vcenter", "config.vcenters"]),
        ("config: {enabled: true, vcenter: a, insecureFlag: true}", &["config.username", "config.password"]),
        (
            "config: {enabled: true, vcenter: a, username: b, insecureFlag: true}",
            &["config.username", "config.password", "config.existingSecret"],
        ),
        (
            "config: {enabled: true, vcenter: a, password: b, insecureFlag: true}",
            &["config.username", "config.password", "config.existingSecret"],
        ),
        ("config: {enabled: true, vcenter: a, username: b, password: c}", &trust),
        ("config: {enabled: true, existingSecret: vsphere-cloud-secret, vcenters: {a: {}}}", &trust),
        (
            "config: {enabled: true, insecureFlag: true, vcenters: {a: {username: b}}}",
            &["config.vcenters.a.username", "config.vcenters.a.password", "config.existingSecret"],
        ),
        // The Secret would have the credentials of the last one for both.
        (
            "config: {enabled: true, insecureFlag: true, vcenters: {a: {server: v, username: b, password: c}, \
             d: {server: v, port: 8443, username: b, password: e}}}",
            &["config.vcenters.a", "config.vcenters.d", "the same server v", "secretName"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn values_that_contradict_each_other_are_refused_with_both_names() {
    let pem = "'-----BEGIN CERTIFICATE-----'";
    let cases = [
        (with("vcenters: {a: {}}"), ["config.vcenter ", "config.vcenters"]),
        (
            "config: {enabled: true, insecureFlag: true, vcenters: {a/b: {secretName: c}}}".to_owned(),
            ["config.vcenters.a/b.server is not set", "the name a/b is no host name"],
        ),
        (with("region: a"), ["config.region is set", "config.zone is not"]),
        (with("zone: a"), ["config.zone is set", "config.region is not"]),
        (with("existingConfigMap: a"), ["config.existingConfigMap", "config.enabled"]),
        (with(&format!("caFile: /a, caBundle: {pem}")), ["config.caFile", "config.caBundle"]),
        (
            with(&format!("nsx: {{caBundle: {pem}, nsxt: {{host: a, caFile: /b}}}}")),
            ["config.nsx.caBundle", "config.nsx.nsxt.caFile"],
        ),
        ("config: {secret: {name: a}, existingSecret: b}".to_owned(), ["config.existingSecret", "config.secret.name"]),
        ("config: {vcenters: {a: {}}}".to_owned(), ["config.vcenters", "config.enabled"]),
        ("config: {nsx: {nsxt: {host: a}}}".to_owned(), ["config.nsx", "config.enabled"]),
        (format!("config: {{caBundle: {pem}}}"), ["config.caBundle", "config.enabled"]),
        (with("nsx: {loadBalancer: {size: SMALL}}"), ["config.nsx is set", "config.nsx.nsxt"]),
        (
            with("nsx: {nsxt: {host: a}, route: {routerPath: /infra/tier-1s/a}}"),
            ["config.nsx.route", "cluster-cidr in daemonset.cmdline.additionalParams"],
        ),
        (with("nsx: {nsxt: {host: a}}"), ["config.nsx.nsxt.secretName", "config.nsx.nsxt.clientAuthCertFile"]),
        (
            with("nsx: {nsxt: {host: a, secretNamespace: b}}"),
            ["config.nsx.nsxt.secretNamespace", "config.nsx.nsxt.secretName"],
        ),
        (
            "config: {enabled: true, insecureFlag: true, vcenters: {a: {secretNamespace: b}}}".to_owned(),
            ["config.vcenters.a.secretNamespace", "config.vcenters.a.secretName"],
        ),
    ];
    for (values, names) in &cases {
        assert_refused(&[(values, names)]).await;
    }
}

#[tokio::test]
async fn misspelled_keys_of_the_configuration_are_refused_by_name() {
    let nsx = |keys: &str| with(&format!("nsx: {{{keys}}}"));
    for (values, expected) in [
        (with("vcenters: {a: {datacentre: b}}"), "additional properties 'datacentre' not allowed"),
        (with("caBundle: /etc/ca.pem"), "at '/config/caBundle'"),
        (with("existingSecret: A_b"), "at '/config/existingSecret'"),
        (nsx("nsxt: {host: a, password: b}"), "additional properties 'password' not allowed"),
        (nsx("nsxt: {host: 'https://a'}"), "at '/config/nsx/nsxt/host'"),
        (nsx("nsxt: {host: 'admin:secret@a'}"), "at '/config/nsx/nsxt/host'"),
        (with("vcenters: {a: {server: 'b:443'}}"), "at '/config/vcenters/a/server'"),
        (nsx("nsxt: {host: a}, route: {routerPath: a}"), "at '/config/nsx/route/routerPath'"),
        (nsx("nsxt: {host: a}, loadBalancer: {size: HUGE}"), "at '/config/nsx/loadBalancer/size'"),
    ] {
        let refused = refusal(&[super::IMAGE, &values], &[]).await;
        assert!(refused.contains(expected), "{values}: {refused}");
    }
}

/// The program accepts every certificate then, also with a thumbprint.
#[tokio::test]
async fn notes_warn_about_each_certificate_that_is_not_verified() {
    let values = "config: {enabled: true, existingSecret: mine, \
                  nsx: {nsxt: {host: nsx, secretName: nsx, insecureFlag: true}}, \
                  vcenters: {a: {insecureFlag: true, thumbprint: 'AA:BB'}, b: {caFile: /b}}}";
    let notes = render(values).await.notes;
    let warnings: Vec<&str> = notes.lines().filter(|line| line.starts_with("WARNING: ")).collect();
    assert_eq!(warnings.len(), 2, "{notes}");
    assert!(warnings[0].contains("vCenter a is not verified. Remove config.vcenters.a.insecureFlag"), "{notes}");
    assert!(warnings[1].contains("NSX is not verified. Set config.nsx.caBundle"), "{notes}");
}

/// A bundle goes into the ConfigMap, which is not secret.
#[tokio::test]
async fn a_private_key_in_a_bundle_is_refused_without_its_text() {
    let pem =
        "\"-----BEGIN CERTIFICATE-----\\nA\\n-----END CERTIFICATE-----\\n-----BEGIN EC PRIVATE KEY-----\\nSECRET\"";
    for (values, path) in [
        (with(&format!("caBundle: {pem}")), "config.caBundle"),
        (with(&format!("nsx: {{caBundle: {pem}, nsxt: {{host: a}}}}")), "config.nsx.caBundle"),
    ] {
        let refused = refusal(&[super::IMAGE, &values], &[]).await;
        assert!(refused.contains(&format!("{path} contains a private key")), "{refused}");
        assert!(!refused.contains("SECRET"), "{refused}");
    }
}

/// M2, M3: without these values the program would log in elsewhere, search in a datacenter that does not exist, or wait
/// for tags.
#[tokio::test]
async fn datacenters_and_zones_are_not_set_by_default() {
    let config = render(CONFIG).await.config().await;
    let expected = json!({"vc.example.com": {"server": "vc.example.com"}});
    assert_eq!((&config["vcenter"], &config["labels"]), (&expected, &json!({"region": "", "zone": ""})));
    let zones = render(&with("region: a, zone: b, datacenter: 'dc-1, dc-2'")).await.config().await;
    assert_eq!(zones["labels"], json!({"region": "a", "zone": "b"}));
    assert_eq!(zones["vcenter"]["vc.example.com"]["datacenters"], json!(["dc-1, dc-2"]));
}

/// M4: without this value the name of the ConfigMap is fixed.
#[tokio::test]
async fn a_config_map_of_ones_own_can_have_another_name() {
    let image = "image: {repository: registry.test/ccm}";
    for (values, name) in [("", "cloud-config"), (", existingConfigMap: vsphere-cloud-config", "vsphere-cloud-config")]
    {
        let values = format!("config: {{existingSecret: a{values}}}");
        let rendered = render_all(&[image, &values], &[]).await.unwrap();
        assert_eq!(rendered.pod()["volumes"][0]["configMap"]["name"], name);
        assert!(
            rendered.notes.contains(&format!("waits for the ConfigMap {name} in kube-system")),
            "{}",
            rendered.notes
        );
        assert!(!rendered.kinds().contains_key("ConfigMap"));
    }
}

/// M6: NSX needs no ConfigMap by hand.
#[tokio::test]
async fn routes_are_rendered_with_the_networks_of_the_pods() {
    let values = with("nsx: {nsxt: {host: a, secretName: b}, route: {routerPath: /infra/tier-1s/a}}");
    let flag = "daemonset: {cmdline: {additionalParams: {cluster-cidr: 10.244.0.0/16}}}";
    let rendered = render(&format!("{values}\n{flag}")).await;
    let text = rendered.one("ConfigMap")["data"]["vsphere.conf"].as_str().unwrap();
    let config: Value = objects(text).await.remove(0);
    assert_eq!(config["route"]["routerPath"], "/infra/tier-1s/a");
}

/// The program reads credentials for NSX from the environment, too.
#[tokio::test]
async fn nsx_needs_no_secret_if_the_environment_can_have_its_credentials() {
    for environment in
        ["extraEnvFrom: [{secretRef: {name: nsx}}]", "daemonset: {env: [{name: NSXT_USERNAME, value: a}]}"]
    {
        let rendered = render(&format!("{}\n{environment}", with("nsx: {nsxt: {host: a}}"))).await;
        let text = rendered.one("ConfigMap")["data"]["vsphere.conf"].as_str().unwrap();
        assert_eq!(objects(text).await[0]["nsxt"], json!({"host": "a"}), "{environment}");
    }
}
