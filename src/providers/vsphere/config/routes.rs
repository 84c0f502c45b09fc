//! The section `Route`: the router that has the static routes to the pods. Pure.
//!
//! Mirrors `pkg/cloudprovider/vsphere/route/config`, which only checks that the path is given.

use super::fields::RawSection;
use super::optional_sections::{OptionalSection, PartName};
use super::problems::ProblemReport;

/// Prefix of the API, which may precede a Policy path but is not part of it.
const API: &str = "policy/api/v1/";

/// Prefix of the path of a tier-0 gateway.
const TIER0_PREFIX: &str = "/infra/tier-0s/";

/// Prefix of the path of a tier-1 gateway.
pub(super) const TIER1_PREFIX: &str = "/infra/tier-1s/";

/// The routes to the pods of the Nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The Policy path of the router that has the routes, as [`parse_router`] returns it.
    pub router: String,
}

/// Parses the Policy path of a tier-0 or tier-1 gateway, and returns it in canonical spelling. Accepts a missing first
/// slash, a trailing slash and the prefix `/policy/api/v1`.
pub fn parse_router(text: &str) -> Option<String> {
    let path = text.trim().trim_matches('/');
    let path = format!("/{}", path.strip_prefix(API).unwrap_or(path).trim_start_matches('/'));
    let id = path.strip_prefix(TIER0_PREFIX).or_else(|| path.strip_prefix(TIER1_PREFIX))?;
    let is_id = !id.is_empty()
        && id.trim() == id
        && id != "."
        && id != ".."
        && !id.contains(|c: char| c.is_control() || "/?#\\".contains(c));
    is_id.then_some(path)
}

pub(super) fn check(section: &RawSection, report: &mut ProblemReport) -> OptionalSection<RouteConfig> {
    const PATH: &str = "router-path";
    if section.line.is_none() {
        return OptionalSection::Absent;
    }
    let router = section.text(PATH).and_then(parse_router);
    match section.text(PATH) {
        None if section.has_error_at(PATH) || !report.is_readable => {}
        None => report.error_at(section, Some(PATH), "router path is required: expected /infra/tier-1s/<id>"),
        Some(_) if router.is_none() => {
            report.error_at(section, Some(PATH), "expected /infra/tier-0s/<id> or /infra/tier-1s/<id>");
        }
        Some(text) if router.as_ref().is_some_and(|path| path != text) => {
            report.warn_at(section, Some(PATH), SPELLING);
        }
        Some(_) => {}
    }
    match router {
        Some(router) if !report.is_refused(PartName::Routes) => OptionalSection::Used(RouteConfig { router }),
        _ => OptionalSection::Refused,
    }
}

/// Warning about a path that is not in canonical spelling.
pub(super) const SPELLING: &str =
    "read as /infra/<kind>/<id>; expected that spelling, because the upstream program fails with any other";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_router_path_is_read_in_the_spellings_of_users() {
        for (text, want) in [
            ("/infra/tier-1s/a", Some("/infra/tier-1s/a")),
            ("/infra/tier-0s/a b", Some("/infra/tier-0s/a b")),
            ("infra/tier-1s/a", Some("/infra/tier-1s/a")),
            ("/infra/tier-1s/a/", Some("/infra/tier-1s/a")),
            (" /policy/api/v1/infra/tier-1s/a ", Some("/infra/tier-1s/a")),
            ("policy/api/v1//infra/tier-1s/a", Some("/infra/tier-1s/a")),
            ("a", None),
            ("/infra/tier-1s/", None),
            ("/infra/tier-1s/a /", None),
            ("/infra/tier-1s/..", None),
            ("/infra/tier-1s/a?b", None),
            ("/infra/tier-2s/a", None),
            ("/infra/tier-1s/a/static-routes/b", None),
            ("/global-infra/tier-1s/a", None),
            ("https://nsx/policy/api/v1/infra/tier-1s/a", None),
            ("", None),
        ] {
            assert_eq!(parse_router(text).as_deref(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_read_the_same_from_its_path(text in "[/a-z0-9.?-]{0,8}(/?(policy/api/v1/)?/?infra/tier-[012]s/)?[/a-z?. ]{0,6}") {
            if let Some(path) = parse_router(&text) {
                prop_assert_eq!(parse_router(&path), Some(path));
            }
        }
    }
}
