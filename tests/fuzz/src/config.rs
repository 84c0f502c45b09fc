//! `vsphere.conf`, in both dialects.

use ccm::providers::vsphere::config;

use crate::laws::{SECRET, hides_secret};

/// Of this many bytes all is read; what is told of them is bounded whatever they are.
const MOST_TOLD: usize = 32_000;

/// `vsphere.conf`: what is told of it is bounded, and repeats no password.
pub fn vsphere_conf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (told, shown) = match config::parse(&text, "f") {
        Ok(parsed) => {
            assert!(!parsed.config.vcenters.is_empty(), "a configuration without a vCenter is taken");
            let keys: std::collections::BTreeSet<_> = parsed.config.vcenters.iter().map(|one| &one.key).collect();
            assert_eq!(keys.len(), parsed.config.vcenters.len(), "two vCenters have one name");
            (parsed.warnings.clone(), format!("{parsed:?}"))
        }
        Err(errors) => {
            assert!(!errors.0.is_empty(), "nothing is wrong with what is refused");
            (errors.0.clone(), format!("{errors:?} {errors}"))
        }
    };
    let words: usize = told.iter().map(|problem| problem.to_string().len()).sum();
    assert!(told.len() <= 101 && words < MOST_TOLD, "{} problems in {words} bytes", told.len());
    if is_password(&text) {
        hides_secret(&shown);
        told.iter().for_each(|problem| hides_secret(&problem.to_string()));
    }
}

/// Whether the secret stands only where a password stands. As a name it may be told, and an alias takes it anywhere.
fn is_password(text: &str) -> bool {
    let is_value = |line: &str| {
        let after = line.trim_start().strip_prefix("password").map(str::trim_start);
        after.is_some_and(|after| after.starts_with([':', '=']))
    };
    !text.contains(['*', '&', '\r']) && text.lines().filter(|line| line.contains(SECRET)).all(is_value)
}
