//! The sections `LoadBalancer` and `LoadBalancerClass`. Pure.
//!
//! Mirrors `pkg/cloudprovider/vsphere/loadbalancer/config`, and `setupClasses` of `class.go`. The name and the id of a
//! pool are inherited together, as are the name and the path of a profile. In the Go program, a class with its own pool
//! name inherits the pool id of the section `LoadBalancer`, and the id takes precedence over the name.

use std::collections::BTreeMap;

use super::fields::{RawFile, RawSection};
use super::optional_sections::{OptionalSection, PartName};
use super::problems::ProblemReport;
use super::routes::{SPELLING, TIER1_PREFIX, parse_router};

/// The class of Services that name no class. It always exists.
pub const DEFAULT_CLASS: &str = "default";

/// Tag scopes that only this program sets; configured tags with these scopes are ignored. `owner` is missing here,
/// because the configuration may set it.
const OWN_SCOPES: [&str; 9] = [
    "cluster",
    "service",
    "port",
    "ippoolid",
    "lbclass",
    "cluster-uid",
    "service-uid",
    "virtual-server-address",
    "ipfamily",
];

/// Maximum length of scope and tag in NSX, in characters.
const LONGEST_TAG: (usize, usize) = (128, 256);

/// Maximum number of configured tags with which no tag of this program is omitted. NSX allows 30 tags per object, and a
/// pool of Nodes may have nine tags of this program.
pub const MAX_EXTRA_TAGS: usize = 21;
/// Maximum number of configured tags for virtual servers of the second load balancer of a Service. With more, NSX
/// refuses them even without the tags that the Go program does not write.
const MAX_TAGS_OF_SECOND: usize = 23;
/// The same maximum for other virtual servers.
const MAX_TAGS_OF_SERVER: usize = 24;

/// Configuration of the load balancers of Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerConfig {
    /// The size of a load balancer service that this program creates. Also required if the service exists.
    pub size: Size,
    /// The id of an existing load balancer service to use. If `None`, this program creates a service.
    pub lb_service_id: Option<String>,
    /// The tier-1 gateway path of the created load balancer service, or the required path of an existing one. A valid
    /// path is stored in canonical form. Any other text is stored as written, because the Go program sends any text.
    pub tier1: Option<String>,
    /// Whether the source address of clients is preserved.
    pub snat_disabled: bool,
    /// Tags of all created objects, by scope. A tag with the scope `owner` overrides the tag of this program.
    pub tags: BTreeMap<String, String>,
    /// The pool and the profiles of the section `LoadBalancer`.
    pub common: Class,
    /// The classes of the file, without inherited settings; see [`Self::class`].
    pub classes: BTreeMap<String, Class>,
    /// The ids of the IPv6 address pools, by class. They come from `--nsx-ipv6-pool`, not from the file.
    pub ipv6_pools: BTreeMap<String, String>,
}

/// The settings of a class, without inherited settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// The address pool.
    pub pool: Option<IpPool>,
    /// The application profile of TCP ports.
    pub tcp: Option<Profile>,
    /// The application profile of UDP ports.
    pub udp: Option<Profile>,
}

/// A class with inherited settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteClass<'a> {
    /// The address pool.
    pub pool: &'a IpPool,
    /// The application profile of TCP ports.
    pub tcp: &'a Profile,
    /// The application profile of UDP ports.
    pub udp: &'a Profile,
}

/// An IP pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpPool {
    /// By id, the last part of the path.
    Id(String),
    /// By display name.
    Name(String),
}

/// An application profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// By path, as written.
    Path(String),
    /// By display name.
    Name(String),
}

/// The size of a load balancer service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// `SMALL`.
    Small,
    /// `MEDIUM`.
    Medium,
    /// `LARGE`.
    Large,
    /// `XLARGE`.
    Xlarge,
    /// `DLB`: a distributed load balancer.
    Dlb,
}

impl Size {
    const ALL: [Self; 5] = [Self::Small, Self::Medium, Self::Large, Self::Xlarge, Self::Dlb];

    /// Returns the spelling of NSX and of the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Small => "SMALL",
            Self::Medium => "MEDIUM",
            Self::Large => "LARGE",
            Self::Xlarge => "XLARGE",
            Self::Dlb => "DLB",
        }
    }
}

impl LoadBalancerConfig {
    /// Returns an error message if more than [`MAX_EXTRA_TAGS`] tags are configured. Tags with the scope `owner` or a
    /// scope of this program do not count.
    pub fn too_many_tags(&self) -> Option<String> {
        too_many_tags(self.tags.keys().map(String::as_str))
    }

    /// Returns the class of this name; `None` if the file does not have the class, or if no section has its pool or a
    /// profile. The default class exists even if the file does not have it.
    ///
    /// As in the Go program, each setting comes from the first section that has the setting. The order for a pool is:
    /// the class, the section `LoadBalancer`, the default class. The order for a profile is: the class, the default
    /// class, the section `LoadBalancer`.
    pub fn class(&self, name: &str) -> Option<CompleteClass<'_>> {
        let default = self.classes.get(DEFAULT_CLASS);
        let own = self.classes.get(name);
        if own.is_none() && name != DEFAULT_CLASS {
            return None;
        }
        let common = Some(&self.common);
        let (for_pools, for_profiles) = ([own, common, default], [own, default, common]);
        Some(CompleteClass {
            pool: for_pools.into_iter().flatten().find_map(|class| class.pool.as_ref())?,
            tcp: for_profiles.into_iter().flatten().find_map(|class| class.tcp.as_ref())?,
            udp: for_profiles.into_iter().flatten().find_map(|class| class.udp.as_ref())?,
        })
    }
}

const SIZE: &str = "size";
const SERVICE: &str = "lb-service-id";
const TIER1: &str = "tier1-gateway-path";
const POOL_ID: &str = "ip-pool-id";
const POOL_NAME: &str = "ip-pool-name";

/// Name key and path key of each protocol's profile, and the error if the section has neither key.
const PROFILES: [(&str, &str, &str); 2] = [
    (
        "tcp-app-profile-name",
        "tcp-app-profile-path",
        "either load balancer TCP application profile name or path required",
    ),
    (
        "udp-app-profile-name",
        "udp-app-profile-path",
        "either load balancer UDP application profile name or path required",
    ),
];

const DISTRIBUTED: &str = "a distributed load balancer serves only workloads on the hosts of the same NSX: clients elsewhere do not \
                           reach it, and it may have no health checks";

const NO_EFFECT: &str =
    "no effect: load balancers are off without a class, size, service id, IP pool and tier-1 gateway";

pub(super) fn check(raw: &RawFile, report: &mut ProblemReport) -> OptionalSection<LoadBalancerConfig> {
    let section = &raw.load_balancer;
    let is_on = !raw.classes.is_empty()
        || [SIZE, SERVICE, POOL_ID, POOL_NAME, TIER1].into_iter().any(|key| section.text(key).is_some());
    if report.is_refused(PartName::LoadBalancers) && !is_on {
        return OptionalSection::Refused;
    }
    if !is_on {
        if section.line.is_some() {
            report.warn_at(section, None, NO_EFFECT);
        }
        return OptionalSection::Absent;
    }
    let size = check_rules(raw, report);
    if size == Some(Size::Dlb) && section.text(SERVICE).is_none() {
        report.warn_at(section, Some(SIZE), DISTRIBUTED);
    }
    let tags = tags(section, report);
    let (common, tier1) = (class(section, report), tier1(section, report));
    let classes = raw.classes.iter().map(|section| (section.key.clone(), class(section, report))).collect();
    match size {
        Some(size) if !report.is_refused(PartName::LoadBalancers) => OptionalSection::Used(LoadBalancerConfig {
            ipv6_pools: BTreeMap::new(),
            size,
            lb_service_id: section.text(SERVICE).map(str::to_owned),
            tier1,
            snat_disabled: section.flag("snat-disabled").unwrap_or_default(),
            tags,
            common,
            classes,
        }),
        _ => OptionalSection::Refused,
    }
}

/// Checks the rules of the Go program, with its error texts and in its order. The Go program reports only the first
/// error. Returns the size, if it is valid.
fn check_rules(raw: &RawFile, report: &mut ProblemReport) -> Option<Size> {
    let section = &raw.load_balancer;
    let has = |key: &str| section.text(key).is_some() || section.has_error_at(key);
    let mut require = |is_met: bool, key: Option<&str>, rule: &str| {
        if !is_met && report.is_readable {
            report.error_at(section, key, rule);
        }
    };
    require(has(SERVICE) || has(TIER1), Some(TIER1), "either load balancer service id or T1 gateway path required");
    for (name, path, rule) in PROFILES {
        require(has(name) || has(path), Some(name), rule);
    }
    let size = section.text(SIZE).and_then(|text| Size::ALL.into_iter().find(|size| size.as_str() == text));
    let is_size = size.is_some() || section.has_error_at(SIZE);
    require(is_size, Some(SIZE), "load balancer size is invalid. Valid values are: DLB,LARGE,MEDIUM,SMALL,XLARGE");
    let has_pool = has(POOL_ID) || has(POOL_NAME);
    let default = raw.classes.iter().find(|class| class.key == DEFAULT_CLASS);
    match default {
        None => require(has_pool, Some(POOL_NAME), "no default load balancer class defined"),
        Some(class) => {
            let is_met = has_pool || [POOL_ID, POOL_NAME].into_iter().any(|key| class.text(key).is_some());
            require(is_met, Some(POOL_NAME), "default load balancer class: ipPoolName and ipPoolID is empty");
        }
    }
    let is_one = !(has(POOL_ID) && has(POOL_NAME));
    require(is_one, Some(POOL_ID), "either load balancer ipPoolName or ipPoolID can be set");
    size
}

/// Reads the pool and the profiles of a section. Id and path take precedence over a name, as in the Go program.
fn class(section: &RawSection, report: &mut ProblemReport) -> Class {
    let mut either = |exact: &str, name: &str| {
        let (exact_text, name_text) = (section.text(exact), section.text(name));
        if exact_text.is_some() && name_text.is_some() {
            report.warn_at(section, Some(name), format!("ignored: {} takes precedence", section.shown_key(exact)));
        }
        exact_text.map(|text| (text.to_owned(), true)).or(name_text.map(|text| (text.to_owned(), false)))
    };
    let pool = either(POOL_ID, POOL_NAME);
    let [tcp, udp] = PROFILES.map(|(name, path, _)| {
        let found = either(path, name);
        found.map(|(text, is_path)| if is_path { Profile::Path(text) } else { Profile::Name(text) })
    });
    Class { pool: pool.map(|(text, is_id)| if is_id { IpPool::Id(text) } else { IpPool::Name(text) }), tcp, udp }
}

/// Accepts any text: with an existing service, the Go program works with any text that equals the gateway path of the
/// service.
fn tier1(section: &RawSection, report: &mut ProblemReport) -> Option<String> {
    let text = section.text(TIER1)?;
    let path = parse_router(text).filter(|path| path.starts_with(TIER1_PREFIX));
    if path.is_none() {
        report.warn_at(section, Some(TIER1), "expected /infra/tier-1s/<id>; sent to NSX as it is written");
    } else if path.as_deref() != Some(text) {
        report.warn_at(section, Some(TIER1), SPELLING);
    }
    Some(path.unwrap_or_else(|| text.to_owned()))
}

fn too_many_tags<'a>(scopes: impl Iterator<Item = &'a str>) -> Option<String> {
    let count = scopes.filter(|scope| *scope != "owner" && !OWN_SCOPES.contains(scope)).count();
    if count <= MAX_EXTRA_TAGS {
        return None;
    }
    let effect = if count > MAX_TAGS_OF_SERVER {
        "NSX refuses every virtual server"
    } else if count > MAX_TAGS_OF_SECOND {
        "NSX refuses the virtual servers of second load balancers, and tags that only this program writes are omitted"
    } else {
        "tags that only this program writes are omitted where they do not fit"
    };
    Some(format!(
        "{count} tags are configured in addition to \"owner\"; expected at most {MAX_EXTRA_TAGS}, because NSX \
         accepts 30 for an object: {effect}"
    ))
}

fn tags(section: &RawSection, report: &mut ProblemReport) -> BTreeMap<String, String> {
    const TAGS: &str = "tags";
    let written = section.entries(TAGS);
    if written.iter().any(|(scope, _)| OWN_SCOPES.contains(&scope.as_str())) {
        report.warn_at(section, Some(TAGS), format!("ignored where the scope is one of {}", OWN_SCOPES.join(", ")));
    }
    if let Some(problem) = too_many_tags(written.iter().map(|(scope, _)| scope.as_str())) {
        report.warn_at(section, Some(TAGS), problem);
    }
    let (longest_scope, longest_tag) = LONGEST_TAG;
    let is_long = |text: &str, most| text.chars().count() > most;
    if written.iter().any(|(scope, tag)| is_long(scope, longest_scope) || is_long(tag, longest_tag)) {
        let expected =
            format!("expected scopes of at most {longest_scope} characters, and tags of at most {longest_tag}");
        report.error_at(section, Some(TAGS), expected);
    }
    written.iter().map(|(scope, tag)| (scope.clone(), tag.to_string())).collect()
}
