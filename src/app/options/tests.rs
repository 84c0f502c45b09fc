//! The command line: pflag's habits, refusals, and the help text's house rules.

use super::*;

fn asked(arguments: &[&str]) -> Result<Asked, Misspelled> {
    parse(std::iter::once(PROGRAM).chain(arguments.iter().copied()).map(OsString::from))
}

fn options(arguments: &[&str]) -> Options {
    match asked(arguments) {
        Ok(Asked::Run(options)) => *options,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn words_of_a_flag_may_be_joined_by_underscores() {
    assert_eq!(options(&["--cloud_config=/a_b"]).cloud_config.as_deref(), Some("/a_b"));
    assert_eq!(options(&["--leader_elect_retry-period", "3s"]).leader_elect_retry_period, "3s");
}

#[test]
fn booleans_stand_alone_or_take_a_value_behind_an_equals_sign() {
    assert_eq!(options(&[]).leader_elect, "true");
    assert_eq!(options(&["--leader-elect"]).leader_elect, "true");
    assert_eq!(options(&["--leader-elect=f"]).leader_elect, "f");
    assert_eq!(asked(&["--leader-elect", "false"]).unwrap_err(), Misspelled::Argument("false".to_owned()));
}

#[test]
fn verbosity_takes_every_form() {
    for form in [&["-v", "2"][..], &["-v=2"], &["-v2"], &["--v=2"], &["--v", "2"]] {
        assert_eq!(options(form).logging.v, "2", "{form:?}");
    }
}

#[test]
fn the_last_value_of_a_repeated_flag_counts_and_lists_grow() {
    assert_eq!(options(&["--master=a", "--master=b"]).master.as_deref(), Some("b"));
    assert_eq!(options(&[]).controllers, ["*"]);
    let grown = options(&["--controllers=cloud-node,-route", "--controllers", "-service"]).controllers;
    assert_eq!(grown, ["cloud-node", "-route", "-service"]);
}

#[test]
fn version_is_printed_for_every_form_but_false() {
    let expected = format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"));
    for form in ["--version", "--version=true", "--version=raw"] {
        assert!(matches!(asked(&[form]), Ok(Asked::Print(text)) if text == expected), "{form}");
    }
    assert_eq!(options(&["--version=false"]).version, "false");
}

#[test]
fn what_is_no_flag_is_refused() {
    let unknown = |flag: &str, nearest: Option<&str>| Misspelled::UnknownFlag {
        flag: flag.to_owned(),
        nearest: nearest.map(str::to_owned),
    };
    let cases: &[(&[&str], Misspelled)] = &[
        (&["--contollers=*"], unknown("--contollers", Some("--controllers"))),
        (&["--kube-config=/x"], unknown("--kube-config", Some("--kubeconfig"))),
        (&["--no-such-thing=/x"], unknown("--no-such-thing", None)),
        (&["serve"], Misspelled::Argument("serve".to_owned())),
        (&["--v=2", "--", "x"], Misspelled::Argument("x".to_owned())),
        (&["--cloud-config"], Misspelled::NoValue("--cloud-config".to_owned())),
    ];
    for (arguments, expected) in cases {
        assert_eq!(asked(arguments).unwrap_err(), *expected, "{arguments:?}");
    }
}

#[test]
fn every_flag_has_a_help_text_without_a_full_stop_and_a_group() {
    for flag in Options::command().get_arguments() {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && !help.ends_with('.'), "{}: {help:?}", flag.get_id());
        assert!(flag.get_help_heading().is_some(), "{}", flag.get_id());
    }
}

#[test]
fn our_flags_are_environment_variables_of_the_same_name_and_no_others_are() {
    for flag in Options::command().get_arguments() {
        let name = flag.get_long().unwrap_or_default();
        let expected =
            (flag.get_help_heading() == Some(OURS)).then(|| format!("CCM_{}", name.to_uppercase().replace('-', "_")));
        assert_eq!(flag.get_env().and_then(|variable| variable.to_str()), expected.as_deref(), "{name}");
    }
}
