//! Tests of mistakes in variables together with a valid file: the parts that are turned off, and that the parts of the
//! file stay.

use std::path::Path;

use super::*;

#[test]
fn a_mistake_in_the_variables_of_a_further_vcenter_turns_off_that_one_alone() {
    const GOOD: [&str; 3] = ["VSPHERE_VCENTER_2=c", "VSPHERE_USER=u", "VSPHERE_PASSWORD=p"];
    let rows: [(&str, &str, Texts, Texts, Texts); 8] = [
        (
            "its port",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_PORT=x"],
            &["a -> a, fu/fp", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
        ),
        (
            "its port, and another variable replaces it",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_PORT=x", "VSPHERE_VCENTER_3=b"],
            &["a -> a, fu/fp", "b -> b, u/p", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
        ),
        (
            "its address",
            FILE,
            &["VSPHERE_VCENTER_1=https://b"],
            &["a -> a, fu/fp", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
        ),
        (
            "what all of them inherit",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VSPHERE_VCENTER_PORT=x"],
            &["a -> a, fu/fp"],
            &["VSPHERE_VCENTER_1", "VSPHERE_VCENTER_2"],
        ),
        (
            "the thumbprint that all of them inherit",
            FILE,
            &["VSPHERE_THUMBPRINT=x"],
            &["a -> a, fu/fp"],
            &["VSPHERE_VCENTER_2"],
        ),
        (
            "no verification",
            FILE,
            &["VSPHERE_THUMBPRINT=x", "VCENTER_2_INSECURE=true"],
            &["a -> a, fu/fp", "c -> c, u/p"],
            &[],
        ),
        (
            "in place of an entry of the file",
            FILE,
            &["VSPHERE_VCENTER_1=a", "VCENTER_1_PORT=0"],
            &["a -> a, fu/fp", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
        ),
        (
            "in place of Global's",
            GLOBAL,
            &["VSPHERE_VCENTER_1=g", "VCENTER_1_IP_FAMILY=x"],
            &["g -> g, gu/gp", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
        ),
    ];
    for (id, text, more, expected, refused) in rows {
        let variables: Vec<&str> = more.iter().chain(&GOOD).copied().collect();
        let parsed = read(text, &variables, &[]).unwrap_or_else(|errors| panic!("{id}: {errors}"));
        assert_eq!(vcenters(&parsed.config), *expected, "{id}");
        assert_eq!(parsed.config.refused_vcenters, *refused, "{id}");
        let is_told = parsed.rejected.iter().all(|(part, _)| *part == PartName::FurtherVcenters);
        assert_eq!((is_told, parsed.rejected.is_empty()), (true, refused.is_empty()), "{id}: {:?}", parsed.rejected);
    }
    for text in [EMPTY.to_owned(), format!("{FILE}port=x\n")] {
        let reported = read(&text, &["VSPHERE_VCENTER_1=b", "VCENTER_1_PORT=x"], &[]).unwrap_err().to_string();
        assert!(reported.contains("environment: VCENTER_1_PORT: expected a port"), "{reported}");
    }
}

#[test]
fn what_a_variable_takes_the_place_of_stays_where_the_trust_of_the_variable_cannot_be_used() {
    let login = ["VSPHERE_USER=u", "VSPHERE_PASSWORD=p"];
    let two = format!("{FILE}[VirtualCenter \"b\"]\nuser=v\npassword=w\nca-file=/b.pem\n");
    let rows: [(&str, &str, Texts, Texts, Texts, Texts); 5] = [
        (
            "the only entry of the file",
            FILE,
            &["VSPHERE_VCENTER_1=a", "VCENTER_1_CAFILE=/bad.pem"],
            &["a -> a, fu/fp"],
            &["VSPHERE_VCENTER_1"],
            &["environment: VCENTER_1_CAFILE: /bad.pem is bad"],
        ),
        (
            "one of two, whose own CA file is named again",
            &two,
            &["VSPHERE_VCENTER_1=b", "VSPHERE_CAFILE=/bad.pem"],
            &["a -> a, fu/fp", "b -> b, v/w"],
            &["VSPHERE_VCENTER_1"],
            &["environment: VSPHERE_CAFILE: /bad.pem is bad"],
        ),
        (
            "that of Global",
            GLOBAL,
            &["VSPHERE_VCENTER_1=g", "VCENTER_1_CAFILE=/bad.pem"],
            &["g -> g, gu/gp"],
            &["VSPHERE_VCENTER_1"],
            &["environment: VCENTER_1_CAFILE: /bad.pem is bad"],
        ),
        (
            "none",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_CAFILE=/bad.pem", "VSPHERE_VCENTER_2=c"],
            &["a -> a, fu/fp", "c -> c, u/p"],
            &["VSPHERE_VCENTER_1"],
            &["environment: VCENTER_1_CAFILE: /bad.pem is bad"],
        ),
        (
            "that of the file is not judged here",
            "[VirtualCenter \"a\"]\nuser=fu\npassword=fp\nca-file=/bad.pem\n",
            &[],
            &["a -> a, fu/fp"],
            &[],
            &[],
        ),
    ];
    let trust_errors = |vcenter: &VcenterConfig| {
        let bad = vcenter.ca_files.iter().filter(|path| path.ends_with("bad.pem"));
        bad.map(|path| format!("{} is bad", path.display())).collect()
    };
    for (id, text, variables, expected, refused, reported) in rows {
        let variables: Vec<&str> = variables.iter().chain(&login).copied().collect();
        let checks = FileChecks { trust_errors: &trust_errors, ..FileChecks::default() };
        let parsed = parse_within(text, "f", &environment(&variables), &checks)
            .unwrap_or_else(|errors| panic!("{id}: {errors}"));
        assert_eq!(vcenters(&parsed.config), *expected, "{id}");
        assert_eq!(parsed.config.refused_vcenters, *refused, "{id}");
        assert_eq!(parsed.rejected.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>(), *reported, "{id}");
        let of_b = parsed.files.ca_file("b").filter(|_| text == two);
        assert_eq!(of_b, (text == two).then_some("f:7: [VirtualCenter \"b\"] ca-file"), "{id}");
    }
}

/// Returns an environment in which the values of `names` are not UTF-8. `variables` have valid values.
#[cfg(unix)]
fn without_text(names: &[&str], variables: &[&str]) -> Environment {
    use std::os::unix::ffi::OsStringExt as _;
    let no_text = names.iter().map(|name| (OsString::from(*name), OsString::from_vec(b"s3cr\xff".to_vec())));
    let text = variables.iter().filter_map(|variable| variable.split_once('='));
    Environment::new(no_text.chain(text.map(|(name, value)| (name.into(), value.into()))))
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_takes_nothing_from_the_file() {
    const DEFINED: Texts = &["VSPHERE_VCENTER_1=b", "VCENTER_1_USERNAME=u", "VCENTER_1_PASSWORD=p"];
    const NO_TEXT: &str = "expected text in UTF-8";
    let both = format!("{FILE}[VirtualCenter \"c\"]\nuser=v\npassword=w\n");
    let rows: [(&str, &str, Texts, Texts, Texts, Texts); 9] = [
        ("the user", FILE, &["VSPHERE_USER"], &[], &["a -> a, fu/fp"], &[]),
        ("both", FILE, &["VSPHERE_USER", "VSPHERE_PASSWORD"], &[], &["a -> a, fu/fp"], &[]),
        (
            "the name of a Secret",
            STORED,
            &["VSPHERE_SECRET_NAME"],
            &["VSPHERE_SECRET_NAMESPACE=ms"],
            &["a -> a, secret ns/n"],
            &[],
        ),
        (
            "its namespace",
            STORED,
            &["VSPHERE_SECRET_NAMESPACE"],
            &["VSPHERE_SECRET_NAME=m"],
            &["a -> a, secret ns/n"],
            &[],
        ),
        (
            "the directory",
            "[Global]\nserver=g\nsecrets-directory=/x\n",
            &["VSPHERE_SECRETS_DIRECTORY"],
            &[],
            &["g -> g, directory /x"],
            &[],
        ),
        (
            "without effect",
            FILE,
            &["VSPHERE_VCENTER", "VSPHERE_INSECURE", "VSPHERE_CAFILE", "VSPHERE_THUMBPRINT"],
            &[],
            &["a -> a, fu/fp"],
            &[],
        ),
        ("the definition of another", FILE, &["VSPHERE_VCENTER_2"], &[], &["a -> a, fu/fp"], &["VSPHERE_VCENTER_2"]),
        (
            "the definition of one of two",
            FILE,
            &["VSPHERE_VCENTER_2"],
            DEFINED,
            &["a -> a, fu/fp", "b -> b, u/p"],
            &["VSPHERE_VCENTER_2"],
        ),
        // `b` inherits `VSPHERE_USER`, so it could need other credentials than its own. It is turned off.
        (
            "what each further one inherits",
            &both,
            &["VSPHERE_USER"],
            DEFINED,
            &["a -> a, fu/fp", "c -> c, v/w"],
            &["VSPHERE_VCENTER_1"],
        ),
    ];
    for (id, text, no_text, variables, expected, refused) in rows {
        let is_directory = |path: &Path| path == Path::new("/x");
        let checks = FileChecks { is_directory: &is_directory, ..FileChecks::default() };
        let parsed = parse_within(text, "f", &without_text(no_text, variables), &checks);
        let parsed = parsed.unwrap_or_else(|errors| panic!("{id}: {errors}"));
        assert_eq!(vcenters(&parsed.config), *expected, "{id}");
        assert_eq!(parsed.config.refused_vcenters, *refused, "{id}");
        assert_eq!(parsed.config.is_refused(PartName::FurtherVcenters), !parsed.rejected.is_empty(), "{id}");
        let reported = parsed.rejected.iter().map(|(_, error)| error).chain(&parsed.warnings);
        let told: Vec<_> = reported.map(ToString::to_string).collect();
        for name in no_text {
            let names = |line: &&String| line.starts_with(&format!("environment: {name}: "));
            assert_eq!(told.iter().filter(names).count(), 1, "{id}: {told:?}");
        }
        let is_plain = id == "without effect" || told.iter().any(|line| line.contains(NO_TEXT));
        assert!(is_plain && !told.concat().contains("s3cr"), "{id}: {told:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_a_mistake_where_it_is_all_there_is() {
    let rows: [(&str, Texts, Texts, &str); 6] = [
        ("[VirtualCenter \"a\"]\n", &["VSPHERE_USER"], &["VSPHERE_PASSWORD=p"], "VSPHERE_USER: "),
        (EMPTY, &["VSPHERE_VCENTER"], &[], "VSPHERE_VCENTER: "),
        (EMPTY, &["VSPHERE_VCENTER_1"], &[], "VSPHERE_VCENTER_1: "),
        (EMPTY, &["VSPHERE_USER"], &["VSPHERE_VCENTER=x", "VSPHERE_PASSWORD=p"], "VSPHERE_USER: "),
        // Without a valid value, addresses and zones of a Node are not guessed.
        (FILE, &["VSPHERE_LABEL_ZONE"], &[], "VSPHERE_LABEL_ZONE: "),
        (FILE, &["VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME"], &[], "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME: "),
    ];
    for (text, no_text, variables, reported) in rows {
        let errors = parse_within(text, "f", &without_text(no_text, variables), &FileChecks::default()).unwrap_err();
        let all: Vec<_> = errors.errors.iter().chain(&errors.warnings).map(ToString::to_string).collect();
        assert!(
            all.iter().any(|line| line.contains(reported) && line.contains("text in UTF-8")),
            "{reported}: {all:?}"
        );
        assert!(!all.concat().contains("s3cr"), "{all:?}");
    }
    let other =
        parse_within(FILE, "f", &without_text(&["VSPHERE_ELSE", "OTHER"], &[]), &FileChecks::default()).unwrap();
    assert_eq!((other.rejected.len(), other.warnings.len()), (0, 0), "variables that are not read");
}
