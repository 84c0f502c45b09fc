//! Fuzz targets for `vsphere.conf` in both dialects.

use std::ffi::OsString;

use ccm::providers::vsphere::config::{self, Config, DEFAULT_CLASS, Environment, PartName, parse_router};

use crate::laws::{SECRET, hides_secret};

/// Upper bound of the reported text, in bytes, for any input.
const MOST_TOLD: usize = 32_000;

/// Parses `vsphere.conf`. The reported text is bounded and contains no password.
pub fn vsphere_conf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (told, shown, lists) = match config::parse(&text, "f") {
        Ok(parsed) => {
            assert!(!parsed.config.vcenters.is_empty(), "a configuration without a vCenter is taken");
            let keys: std::collections::BTreeSet<_> = parsed.config.vcenters.iter().map(|one| &one.key).collect();
            assert_eq!(keys.len(), parsed.config.vcenters.len(), "two vCenters have one name");
            (parsed.warnings.clone(), format!("{parsed:?}"), 1)
        }
        Err(errors) => {
            assert!(!errors.errors.is_empty(), "nothing is wrong with what is refused");
            ([errors.errors.clone(), errors.warnings.clone()].concat(), format!("{errors:?} {errors}"), 2)
        }
    };
    let words: usize = told.iter().map(|problem| problem.to_string().len()).sum();
    assert!(told.len() <= lists * 101 && words < lists * MOST_TOLD, "{} problems in {words} bytes", told.len());
    if is_password(&text) {
        hides_secret(&shown);
        told.iter().for_each(|problem| hides_secret(&problem.to_string()));
    }
}

/// Parses NSX sections after a valid vCenter section. Lines that begin with `$` set variables. Each part is either in
/// use or has mistakes. A part in use is complete.
pub fn nsx_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (variables, lines): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('$'));
    let variables = variables.iter().filter_map(|line| line.trim_start_matches('$').split_once('='));
    let environment = Environment::new(variables.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let sections = lines.join("\n");
    let vcenter = match sections.trim_start().starts_with('[') {
        true => "[VirtualCenter \"vc\"]\nuser = u\npassword = p\n",
        false => "vcenter: {vc: {server: vc, user: u, password: p}}\n",
    };
    let shown = match config::parse_within(
        &format!("{vcenter}{sections}"),
        "f",
        &environment,
        &config::FileChecks::default(),
    ) {
        Ok(parsed) => {
            let told = parsed.warnings.len() + parsed.rejected.len();
            assert!(told <= 202, "{told} problems");
            holds_nsx(&parsed.config);
            for part in PartName::ALL.into_iter().filter(|_| parsed.rejected.len() <= 100) {
                let has_mistakes = parsed.rejected.iter().any(|(refused, _)| *refused == part);
                assert_eq!(has_mistakes, parsed.config.is_refused(part), "{part}");
            }
            format!("{parsed:?}")
        }
        Err(errors) => format!("{errors:?} {errors}"),
    };
    if is_password(&text) {
        hides_secret(&shown);
    }
}

fn holds_nsx(config: &Config) {
    let Some(nsx) = config.nsx.used() else {
        assert!(
            config.load_balancers.used().is_none() && config.routes.used().is_none(),
            "in use without a connection"
        );
        return;
    };
    assert!(!nsx.host.is_empty() && !nsx.host.contains(['/', '@', '[', ']']) && nsx.port != 0, "{nsx:?}");
    let prefix = &nsx.path_prefix;
    assert!(prefix.is_empty() || prefix.starts_with('/') && !prefix.ends_with('/'), "{nsx:?}");
    if let Some(routes) = config.routes.used() {
        assert_eq!(parse_router(&routes.router).as_ref(), Some(&routes.router), "another router");
    }
    if let Some(balancers) = config.load_balancers.used() {
        let names = balancers.classes.keys().map(String::as_str).chain([DEFAULT_CLASS]);
        names.for_each(|name| assert!(balancers.class(name).is_some(), "the class {name:?} is not complete"));
        assert!(balancers.lb_service_id.is_some() || balancers.tier1.is_some(), "no load balancer service");
    }
}

/// Returns true if the secret appears only as a password. A name may be reported, and an alias could move the secret
/// anywhere.
fn is_password(text: &str) -> bool {
    let is_value = |line: &str| {
        let keys = ["password", "vmc-access-token", "vmcAccessToken", "$NSXT_PASSWORD"];
        let mut after = keys.iter().filter_map(|key| line.trim_start().strip_prefix(key));
        after.any(|after| after.trim_start().starts_with([':', '=']))
    };
    !text.contains(['*', '&', '\r']) && text.lines().filter(|line| line.contains(SECRET)).all(is_value)
}
