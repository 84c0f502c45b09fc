//! Tests of the command line: the syntax of pflag, rejected arguments, and the format of the help text.

use super::*;

fn asked(arguments: &[&str]) -> Result<Invocation, UsageError> {
    parse(std::iter::once(PROGRAM).chain(arguments.iter().copied()).map(OsString::from))
}

fn options(arguments: &[&str]) -> Options {
    match asked(arguments) {
        Ok(Invocation::Run(options)) => *options,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// Returns the value of the flag with this name. Some flags have no constant.
fn value<'a>(options: &'a Options, name: &str) -> &'a Value {
    options.values.iter().find(|value| value.flag.name == name).unwrap()
}

fn text(arguments: &[&str], name: &str) -> String {
    value(&options(arguments), name).items.last().cloned().unwrap_or_default()
}

fn list(arguments: &[&str], name: &str) -> Vec<String> {
    value(&options(arguments), name).items.clone()
}

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

#[test]
fn words_of_a_flag_may_be_joined_by_underscores() {
    assert_eq!(text(&["--cloud_config=/a_b"], "cloud-config"), "/a_b");
    assert_eq!(text(&["--leader_elect_retry-period", "3s"], "leader-elect-retry-period"), "3s");
}

#[test]
fn booleans_stand_alone_or_take_a_value_behind_an_equals_sign() {
    assert_eq!(text(&[], "leader-elect"), "true");
    assert_eq!(text(&["--leader-elect"], "leader-elect"), "true");
    assert_eq!(text(&["--leader-elect=f"], "leader-elect"), "f");
    assert_eq!(asked(&["--leader-elect", "false"]).unwrap_err(), UsageError(unexpected("false")));
}

#[test]
fn verbosity_takes_every_form() {
    for form in [&["-v", "2"][..], &["-v=2"], &["-v2"], &["--v=2"], &["--v", "2"]] {
        assert_eq!(text(form, "v"), "2", "{form:?}");
    }
}

#[test]
fn the_last_value_of_a_repeated_flag_counts_and_lists_grow() {
    assert_eq!(list(&["--master=a", "--master=b"], "master"), ["b"]);
    assert_eq!(list(&[], "controllers"), ["*"]);
    let grown = ["--controllers=cloud-node,-route", "--controllers", "-service"];
    assert_eq!(list(&grown, "controllers"), ["cloud-node", "-route", "-service"]);
}

// vectors: O-10–O-12
#[test]
fn o_10_to_o_12_lists_are_lines_of_comma_separated_values() {
    let paths = |arguments: &[&str]| list(arguments, "authorization-always-allow-paths");
    assert_eq!(paths(&[]), ["/healthz", "/readyz", "/livez"]);
    assert!(paths(&["--authorization-always-allow-paths="]).is_empty(), "O-10");
    assert_eq!(list(&["--controllers=foo,bar"], "controllers"), ["foo", "bar"], "O-11");
    assert_eq!(list(&["--webhooks=foo,bar,-baz"], "webhooks"), ["foo", "bar", "-baz"], "O-12");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--authorization-always-allow-paths=/a", "--authorization-always-allow-paths=/b,/c"], &["/a", "/b", "/c"]),
        (&["--authorization-always-allow-paths=", "--authorization-always-allow-paths=/b"], &["/b"]),
        (&["--authorization-always-allow-paths", "\"/a,/b\",/c"], &["/a,/b", "/c"]),
        (&["--authorization-always-allow-paths=\"*\""], &["*"]),
        (&["--authorization-always-allow-paths=/a b,,/c"], &["/a b", "/c"]),
    ];
    for (arguments, expected) in cases {
        assert_eq!(paths(arguments), expected, "{arguments:?}");
    }
}

/// The Go program accepts the flags of the provider `vsphere-paravirtual` with any provider.
#[test]
fn flags_of_the_other_provider_are_accepted() {
    let flags = [
        "--is-legacy-paravirtual",
        "--enable-vpc-mode=true",
        "--pod-ip-pool-type=Public",
        "--enable-service-annotation-propagation",
        "--vm-operator-api-version=v1alpha5",
        "--cluster-ip-family=ipv4,ipv6",
    ];
    let options = options(&flags);
    let reported: Vec<String> = options.without_effect().into_iter().map(|(flag, _)| flag).collect();
    for flag in flags {
        let name = flag.split('=').next().unwrap();
        assert!(reported.iter().any(|told| told == name), "{name}: {reported:?}");
    }
}

// vectors: O-13, O-15, O-16
#[test]
fn o_13_o_15_o_16_flags_of_the_ports_are_taken_over() {
    let flags = [
        "--bind-address=192.168.4.21",
        "--secure-port=10001",
        "--cert-dir=/a/b/c",
        "--http2-max-streams-per-connection=47",
        "--webhook-tls-sni-cert-key=example.crt,example.key:example.com",
        "--webhook-tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_AES_256_CBC_SHA",
        "--webhook-tls-min-version=VersionTLS13",
        "--webhook-disable-http2-serving=true",
    ];
    let texts = [
        ("O-13", "bind-address", "192.168.4.21"),
        ("O-13", "secure-port", "10001"),
        ("O-13", "cert-dir", "/a/b/c"),
        ("O-13", "http2-max-streams-per-connection", "47"),
        ("O-16", "webhook-tls-min-version", "VersionTLS13"),
        ("O-16", "webhook-disable-http2-serving", "true"),
    ];
    for (id, flag, expected) in texts {
        assert_eq!(text(&flags, flag), expected, "{id}: {flag}");
    }
    assert_eq!(list(&flags, "webhook-tls-sni-cert-key"), ["example.crt,example.key:example.com"], "O-15");
    let suites = ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"];
    assert_eq!(list(&flags, "webhook-tls-cipher-suites"), suites, "O-16");
}

#[test]
fn deprecated_flags_are_told_with_the_hint_of_the_go_program_and_are_not_in_the_help() {
    assert_eq!(options(&["-v=2"]).deprecations(), Vec::<String>::new());
    assert_eq!(
        options(&["--node_sync_period=1s", "--allow-untagged-cloud", "--node-sync-period=2s"]).deprecations(),
        [
            "Flag --allow-untagged-cloud has been deprecated, This flag is deprecated and will be removed in a future \
             release. A cluster-id will be required on cloud instances.",
            "Flag --node-sync-period has been deprecated, This flag is currently no-op and will be deleted.",
        ]
    );
    let Ok(Invocation::Print(help)) = asked(&["--help"]) else { panic!("no help") };
    let deprecated: Vec<_> = definitions().into_iter().filter(|flag| flag.deprecated.is_some()).collect();
    assert_eq!(deprecated.len(), 2);
    for FlagDefinition { name, .. } in deprecated {
        assert!(!help.contains(&format!("--{name}")), "{name}");
    }
}

/// Every command line is either accepted or rejected with a message.
#[test]
fn no_command_line_breaks_the_reader() {
    use proptest::prelude::*;
    let words = proptest::collection::vec(
        prop_oneof![
            "\\PC{0,12}",
            "--?[a-z_-]{0,12}(=\\PC{0,8})?",
            Just("--controllers=\"a".to_owned()),
            Just("--version=v".to_owned()),
            Just("--".to_owned()),
        ],
        0..5,
    );
    proptest!(|(words in words)| {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        if let Err(reported) = asked(&words) {
            prop_assert!(reported.to_string().contains("for all flags: "));
        }
    });
}

#[test]
#[cfg(unix)]
fn an_argument_that_is_no_text_is_told_with_its_place() {
    use std::os::unix::ffi::OsStringExt as _;
    let wrong = OsString::from_vec(b"--cloud-config=/etc/\xff".to_vec());
    let reported = parse([PROGRAM.into(), "-v=2".into(), wrong]).unwrap_err().to_string();
    assert!(reported.starts_with("argument 2 is not text in UTF-8: "), "{reported}");
}

#[test]
fn version_is_printed_for_every_form_but_false() {
    let expected = format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"));
    for form in ["--version", "--version=true", "--version=raw", "--version=1"] {
        assert!(matches!(asked(&[form]), Ok(Invocation::Print(text)) if text == expected), "{form}");
    }
    assert!(
        matches!(asked(&["--version=v1.36.0+x"]), Ok(Invocation::Print(text)) if text == format!("{PROGRAM} v1.36.0+x\n"))
    );
    for form in ["--version=false", "--version=0"] {
        assert!(matches!(asked(&[form]), Ok(Invocation::Run(_))), "{form}");
    }
    for form in ["--version=very", "--version=no", "--version="] {
        let reported = asked(&[form]).unwrap_err().to_string();
        assert!(reported.starts_with(&format!("{form}: expected true, false, raw or a version")), "{reported}");
    }
}

/// Returns the error about an argument that is no flag.
fn unexpected(typed: &str) -> String {
    format!("{PROGRAM:?} takes no arguments other than flags, got {typed:?}; a command is the first argument")
}

#[test]
fn what_is_no_flag_is_refused() {
    let cases: &[(&[&str], String)] = &[
        (&["--contollers=*"], "unknown flag: --contollers; did you mean --controllers?".to_owned()),
        (&["--kube-config=/x"], "unknown flag: --kube-config; did you mean --kubeconfig?".to_owned()),
        (&["--no-such-thing=/x"], "unknown flag: --no-such-thing".to_owned()),
        (&["serve"], unexpected("serve")),
        (&["--v=2", "--", "x"], unexpected("x")),
        (&["--cloud-config"], "flag needs a value: --cloud-config".to_owned()),
    ];
    for (arguments, expected) in cases {
        assert_eq!(asked(arguments).unwrap_err(), UsageError(expected.clone()), "{arguments:?}");
    }
}

#[test]
fn every_flag_has_a_help_text_without_a_full_stop_and_a_group() {
    for flag in command().get_arguments() {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && !help.ends_with('.'), "{}: {help:?}", flag.get_id());
        assert!(flag.get_help_heading().is_some(), "{}", flag.get_id());
    }
}

#[test]
fn our_flags_are_environment_variables_of_the_same_name_and_no_others_are() {
    for flag in command().get_arguments() {
        let name = flag.get_long().unwrap_or_default();
        let expected =
            (flag.get_help_heading() == Some(OURS)).then(|| format!("CCM_{}", name.to_uppercase().replace('-', "_")));
        assert_eq!(flag.get_env().and_then(|variable| variable.to_str()), expected.as_deref(), "{name}");
    }
}

#[test]
fn the_nearest_flag_is_named_and_no_far_one() {
    let names = ["cloud-config", "controllers", "kubeconfig", "v"];
    let cases = [
        ("--cluod-config", Some("cloud-config")),
        ("--cloud-conf=/x", Some("cloud-config")),
        ("--controller", Some("controllers")),
        ("--kube-config", Some("kubeconfig")),
        ("--webhook-secure-port", None),
    ];
    for (typed, expected) in cases {
        assert_eq!(nearest(typed, names.into_iter()), expected, "{typed}");
    }
}
