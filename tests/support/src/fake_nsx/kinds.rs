//! The table of object types and their fields (`nsx.md` 3.7 to 3.14).

/// The JSON type of a field.
#[derive(Debug)]
pub(super) enum Shape {
    Bool,
    /// An integer in this range.
    Int(i64, i64),
    /// A text with at most this many characters.
    Text(usize),
    OneOf(&'static [&'static str]),
    Ip,
    Cidr,
    /// A single port, as text.
    Port,
    /// A port or a range of ports, as text.
    Ports,
    /// The path of an existing object of one of these collections.
    Path(&'static [&'static str]),
    /// A list with a minimum and a maximum number of entries.
    List(&'static Shape, usize, usize),
    Object(&'static [Field]),
    /// An object whose type is in the field of this name.
    Union(&'static str, &'static [Variant]),
    Any,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    /// Default value as JSON.
    pub(super) default: Option<&'static str>,
}

/// A resource type, or a type of a union.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// The objects of one collection.
#[derive(Debug)]
pub(super) struct Kind {
    /// The collections from `/infra` down to its own.
    pub(super) collections: &'static [&'static str],
    pub(super) variants: &'static [Variant],
    /// Whether a body must have a `resource_type`.
    pub(super) is_polymorphic: bool,
    /// Whether a DELETE may have `force`.
    pub(super) is_forcible: bool,
    pub(super) is_read_only: bool,
}

impl Kind {
    /// Returns the last collection, which is part of operation names.
    pub(super) fn collection(&self) -> &'static str {
        self.collections.last().copied().unwrap_or_default()
    }

    pub(super) fn of(collections: &[&str]) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.collections == collections)
    }

    pub(super) fn of_path(path: &str) -> Option<&'static Kind> {
        let segments: Vec<&str> = path.strip_prefix("/infra/")?.split('/').collect();
        let is_whole = segments.len().is_multiple_of(2) && segments.iter().all(|segment| !segment.is_empty());
        let collections: Vec<&str> = segments.iter().copied().step_by(2).collect();
        Kind::of(&collections).filter(|_| is_whole)
    }
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, is_required: false, default: None }
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, is_required: true, default: None }
}

const fn with_default(name: &'static str, shape: Shape, default: &'static str) -> Field {
    Field { name, shape, is_required: false, default: Some(default) }
}

const fn flag(name: &'static str, default: &'static str) -> Field {
    with_default(name, Shape::Bool, default)
}

const fn variant(name: &'static str, fields: &'static [Field]) -> Variant {
    Variant { name, fields }
}

const fn kind(collections: &'static [&'static str], variants: &'static [Variant]) -> Kind {
    Kind { collections, variants, is_polymorphic: false, is_forcible: false, is_read_only: false }
}

const PATH: Shape = Shape::Text(1024);
const POSITIVE: Shape = Shape::Int(1, i64::MAX);
const SECONDS: Shape = Shape::Int(1, 2_147_483_647);

const TAG: Shape = Shape::Object(&[field("scope", Shape::Text(128)), field("tag", Shape::Text(256))]);

/// Fields of every object that a client may write.
pub(super) static COMMON: &[Field] = &[
    field("display_name", Shape::Text(255)),
    field("description", Shape::Text(1024)),
    field("tags", Shape::List(&TAG, 0, 30)),
];

/// Fields that only the manager writes. The manager ignores them in a request.
pub(super) static READ_ONLY: &[&str] = &[
    "path",
    "relative_path",
    "parent_path",
    "remote_path",
    "unique_id",
    "realization_id",
    "owner_id",
    "origin_site_id",
    "marked_for_delete",
    "overridden",
    "_create_time",
    "_last_modified_time",
    "_create_user",
    "_last_modified_user",
    "_system_owned",
    "_protection",
    "_links",
    "_schema",
    "_self",
    "ip_address_type",
    "pool_usage",
    "allocated_ip",
];

static LB_SERVICE: &[Field] = &[
    field("connectivity_path", Shape::Path(&["tier-1s"])),
    with_default("size", Shape::OneOf(&["SMALL", "MEDIUM", "LARGE", "XLARGE", "DLB"]), "\"SMALL\""),
    flag("enabled", "true"),
    with_default(
        "error_log_level",
        Shape::OneOf(&["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"]),
        "\"INFO\"",
    ),
    field("access_log_enabled", Shape::Bool),
    flag("relax_scale_validation", "false"),
];

static LB_VIRTUAL_SERVER: &[Field] = &[
    required("ip_address", Shape::Ip),
    required("ports", Shape::List(&Shape::Ports, 1, 1000)),
    required("application_profile_path", Shape::Path(&["lb-app-profiles"])),
    field("lb_service_path", Shape::Path(&["lb-services"])),
    field("pool_path", Shape::Path(&["lb-pools"])),
    field("sorry_pool_path", Shape::Path(&["lb-pools"])),
    field("default_pool_member_ports", Shape::List(&Shape::Ports, 0, 14)),
    flag("enabled", "true"),
    field("lb_persistence_profile_path", Shape::Path(&["lb-persistence-profiles"])),
    field(
        "access_list_control",
        Shape::Object(&[
            required("action", Shape::OneOf(&["ALLOW", "DROP"])),
            required("group_path", Shape::Path(&["groups"])),
            flag("enabled", "false"),
        ]),
    ),
    flag("access_log_enabled", "false"),
    flag("log_significant_event_only", "false"),
    field("max_concurrent_connections", POSITIVE),
    field("max_new_connection_rate", POSITIVE),
    field("rules", Shape::Any),
    field("client_ssl_profile_binding", Shape::Any),
    field("server_ssl_profile_binding", Shape::Any),
];

const POOL_MEMBER: Shape = Shape::Object(&[
    required("ip_address", Shape::Ip),
    field("display_name", Shape::Text(255)),
    with_default("admin_state", Shape::OneOf(&["ENABLED", "DISABLED", "GRACEFUL_DISABLED"]), "\"ENABLED\""),
    field("port", Shape::Port),
    with_default("weight", Shape::Int(1, 256), "1"),
    flag("backup_member", "false"),
    field("max_concurrent_connections", POSITIVE),
]);

const SNAT: Shape = Shape::Union(
    "type",
    &[
        variant("LBSnatAutoMap", &[field("port_overload", Shape::Int(1, 32))]),
        variant("LBSnatDisabled", &[]),
        variant(
            "LBSnatIpPool",
            &[
                field("port_overload", Shape::Int(1, 32)),
                required(
                    "ip_addresses",
                    Shape::List(
                        &Shape::Object(&[
                            required("ip_address", Shape::Text(100)),
                            field("prefix_length", Shape::Int(0, 128)),
                        ]),
                        1,
                        64,
                    ),
                ),
            ],
        ),
    ],
);

static LB_POOL: &[Field] = &[
    field("members", Shape::List(&POOL_MEMBER, 0, 100_000)),
    field("active_monitor_paths", Shape::List(&Shape::Path(&["lb-monitor-profiles"]), 0, 100)),
    field("passive_monitor_path", Shape::Path(&["lb-monitor-profiles"])),
    with_default("snat_translation", SNAT, "{\"type\":\"LBSnatAutoMap\"}"),
    with_default(
        "algorithm",
        Shape::OneOf(&[
            "ROUND_ROBIN",
            "WEIGHTED_ROUND_ROBIN",
            "LEAST_CONNECTION",
            "WEIGHTED_LEAST_CONNECTION",
            "IP_HASH",
        ]),
        "\"ROUND_ROBIN\"",
    ),
    with_default("min_active_members", POSITIVE, "1"),
    flag("tcp_multiplexing_enabled", "false"),
    with_default("tcp_multiplexing_number", POSITIVE, "6"),
    field(
        "member_group",
        Shape::Object(&[
            required("group_path", Shape::Path(&["groups"])),
            with_default("ip_revision_filter", Shape::OneOf(&["IPV4", "IPV6", "IPV4_IPV6"]), "\"IPV4\""),
            field("max_ip_list_size", POSITIVE),
            field("port", Shape::Int(1, 65_535)),
            field("customized_members", Shape::Any),
        ]),
    ),
];

/// Fields of all active monitors, and the given fields.
macro_rules! monitor {
    ($($more:expr),* $(,)?) => {
        &[
            field("monitor_port", Shape::Int(0, 65_535)),
            with_default("interval", SECONDS, "5"),
            with_default("timeout", SECONDS, "15"),
            with_default("fall_count", SECONDS, "3"),
            with_default("rise_count", SECONDS, "3"),
            $($more),*
        ]
    };
}

macro_rules! http_monitor {
    ($($more:expr),* $(,)?) => {
        monitor![
            with_default("request_method", Shape::OneOf(&["GET", "OPTIONS", "POST", "HEAD", "PUT"]), "\"GET\""),
            with_default("request_url", Shape::Text(2048), "\"/\""),
            with_default(
                "request_version",
                Shape::OneOf(&["HTTP_VERSION_1_0", "HTTP_VERSION_1_1"]),
                "\"HTTP_VERSION_1_1\""
            ),
            field(
                "request_headers",
                Shape::List(
                    &Shape::Object(&[
                        required("header_name", Shape::Text(1024)),
                        required("header_value", Shape::Text(1024)),
                    ]),
                    0,
                    100
                )
            ),
            field("request_body", Shape::Text(65_536)),
            field("response_body", Shape::Text(65_536)),
            field("response_status_codes", Shape::List(&Shape::Int(100, 599), 0, 64)),
            $($more),*
        ]
    };
}

static LB_MONITORS: &[Variant] = &[
    variant("LBTcpMonitorProfile", monitor![field("send", Shape::Text(1024)), field("receive", Shape::Text(1024))]),
    variant(
        "LBUdpMonitorProfile",
        monitor![required("send", Shape::Text(1024)), required("receive", Shape::Text(1024))],
    ),
    variant("LBHttpMonitorProfile", http_monitor![]),
    variant("LBHttpsMonitorProfile", http_monitor![field("server_ssl_profile_binding", Shape::Any)]),
    variant("LBIcmpMonitorProfile", monitor![with_default("data_length", Shape::Int(0, 65_507), "56")]),
    variant(
        "LBPassiveMonitorProfile",
        &[with_default("max_fails", SECONDS, "5"), with_default("timeout", SECONDS, "5")],
    ),
];

static LB_APP_PROFILES: &[Variant] = &[
    variant(
        "LBFastTcpProfile",
        &[
            with_default("idle_timeout", SECONDS, "1800"),
            with_default("close_timeout", Shape::Int(1, 60), "8"),
            flag("ha_flow_mirroring_enabled", "false"),
        ],
    ),
    variant(
        "LBFastUdpProfile",
        &[with_default("idle_timeout", SECONDS, "300"), flag("flow_mirroring_enabled", "false")],
    ),
    variant("LBHttpProfile", &[with_default("idle_timeout", SECONDS, "15")]),
];

static LB_PERSISTENCE_PROFILES: &[Variant] = &[
    variant(
        "LBSourceIpPersistenceProfile",
        &[
            with_default("timeout", SECONDS, "300"),
            with_default("purge", Shape::OneOf(&["FULL", "NO_PURGE"]), "\"FULL\""),
            flag("persistence_shared", "false"),
            flag("ha_persistence_mirroring_enabled", "false"),
        ],
    ),
    variant("LBCookiePersistenceProfile", &[flag("persistence_shared", "false")]),
    variant("LBGenericPersistenceProfile", &[flag("persistence_shared", "false")]),
];

static IP_POOL: &[Field] = &[
    with_default("ip_release_delay", Shape::Int(0, i64::MAX), "120000"),
    flag("check_overlap_with_existing_pools", "false"),
    field("visibility", Shape::Text(64)),
    field("sync_realization", Shape::Bool),
];

static IP_BLOCK: &[Field] = &[required("cidr", Shape::Cidr), field("visibility", Shape::Text(64))];

static IP_SUBNETS: &[Variant] = &[
    variant(
        "IpAddressPoolStaticSubnet",
        &[
            required("cidr", Shape::Cidr),
            field("gateway_ip", Shape::Ip),
            required(
                "allocation_ranges",
                Shape::List(&Shape::Object(&[required("start", Shape::Ip), required("end", Shape::Ip)]), 1, 1000),
            ),
            field("dns_nameservers", Shape::List(&Shape::Ip, 0, 3)),
            field("dns_suffix", Shape::Text(253)),
        ],
    ),
    variant(
        "IpAddressPoolBlockSubnet",
        &[
            required("ip_block_path", Shape::Path(&["ip-blocks"])),
            required("size", POSITIVE),
            field("start_ip", Shape::Ip),
            flag("auto_assign_gateway", "true"),
        ],
    ),
];

static IP_ALLOCATION: &[Field] = &[field("allocation_ip", Shape::Ip), field("sync_realization", Shape::Bool)];

const NEXT_HOP: Shape = Shape::Object(&[
    required("ip_address", Shape::Ip),
    with_default("admin_distance", Shape::Int(1, 255), "1"),
    field("scope", Shape::List(&PATH, 0, 100)),
]);

static STATIC_ROUTES: &[Variant] = &[variant(
    "StaticRoutes",
    &[
        required("network", Shape::Cidr),
        required("next_hops", Shape::List(&NEXT_HOP, 1, 100)),
        flag("enabled_on_secondary", "false"),
    ],
)];

static GATEWAY: &[Field] = &[
    field("ha_mode", Shape::Text(64)),
    field("failover_mode", Shape::Text(64)),
    field("route_advertisement_types", Shape::Any),
    field("type", Shape::Text(64)),
];

static TIER_1: &[Field] = &[
    field("tier0_path", Shape::Path(&["tier-0s"])),
    field("ha_mode", Shape::Text(64)),
    field("failover_mode", Shape::Text(64)),
    field("route_advertisement_types", Shape::Any),
    field("type", Shape::Text(64)),
];

static LOCALE_SERVICES: &[Field] = &[field("edge_cluster_path", PATH)];

static GROUP: &[Field] = &[
    field("expression", Shape::List(&EXPRESSION, 0, 1000)),
    field("group_type", Shape::List(&Shape::Text(64), 0, 10)),
];

/// Fields that the manager writes into an expression of a group.
macro_rules! expression {
    ($($more:expr),* $(,)?) => {
        &[
            field("id", Shape::Text(255)),
            field("path", PATH),
            field("relative_path", PATH),
            field("parent_path", PATH),
            field("marked_for_delete", Shape::Bool),
            field("overridden", Shape::Bool),
            field("_protection", Shape::Text(64)),
            $($more),*
        ]
    };
}

const EXPRESSION: Shape = Shape::Union(
    "resource_type",
    &[
        variant("IPAddressExpression", expression![required("ip_addresses", Shape::List(&Shape::Text(100), 1, 4000))]),
        variant("ConjunctionOperator", expression![required("conjunction_operator", Shape::OneOf(&["OR", "AND"]))]),
    ],
);

static KINDS: &[Kind] = &[
    Kind { is_read_only: true, ..kind(&["sites"], &[variant("Site", &[])]) },
    Kind { is_read_only: true, ..kind(&["domains"], &[variant("Domain", &[])]) },
    kind(&["domains", "groups"], &[variant("Group", GROUP)]),
    kind(&["tier-0s"], &[variant("Tier0", GATEWAY)]),
    kind(&["tier-0s", "static-routes"], STATIC_ROUTES),
    kind(&["tier-1s"], &[variant("Tier1", TIER_1)]),
    kind(&["tier-1s", "static-routes"], STATIC_ROUTES),
    kind(&["tier-1s", "locale-services"], &[variant("LocaleServices", LOCALE_SERVICES)]),
    Kind { is_forcible: true, ..kind(&["lb-services"], &[variant("LBService", LB_SERVICE)]) },
    Kind { is_forcible: true, ..kind(&["lb-virtual-servers"], &[variant("LBVirtualServer", LB_VIRTUAL_SERVER)]) },
    Kind { is_forcible: true, ..kind(&["lb-pools"], &[variant("LBPool", LB_POOL)]) },
    Kind { is_forcible: true, is_polymorphic: true, ..kind(&["lb-monitor-profiles"], LB_MONITORS) },
    Kind { is_polymorphic: true, ..kind(&["lb-app-profiles"], LB_APP_PROFILES) },
    Kind { is_polymorphic: true, ..kind(&["lb-persistence-profiles"], LB_PERSISTENCE_PROFILES) },
    kind(&["ip-blocks"], &[variant("IpAddressBlock", IP_BLOCK)]),
    kind(&["ip-pools"], &[variant("IpAddressPool", IP_POOL)]),
    Kind { is_polymorphic: true, ..kind(&["ip-pools", "ip-subnets"], IP_SUBNETS) },
    kind(&["ip-pools", "ip-allocations"], &[variant("IpAddressAllocation", IP_ALLOCATION)]),
];
