//! Words of JSON: the NSX Policy API, and vCenter's tagging.

/// Fields of objects and of envelopes whose values are ids, names, addresses, paths, or nested objects.
const FIELDS: &str = "id path relative_path parent_path remote_path unique_id realization_id owner_id origin_site_id \
     global_id source_site_id display_name description tags tag scope _create_user _last_modified_user _links _schema _self href rel \
     results children \
     connectivity_path ip_address ip_addresses ports pool_path sorry_pool_path lb_service_path application_profile_path \
     lb_persistence_profile_path default_pool_member_ports access_list_control group_path client_ssl_profile_binding \
     server_ssl_profile_binding default_certificate_path client_auth_ca_paths client_certificate_path server_auth_ca_paths \
     ssl_profile_path sni_certificate_paths rules match_conditions actions \
     members port admin_state member_group snat_translation active_monitor_paths passive_monitor_path customized_members \
     request_headers request_url request_body response_body header_name header_value send receive cookie_name \
     http_redirect_to tier0_path edge_cluster_path preferred_edge_paths bfd_profile_path dhcp_config_paths \
     route_advertisement_rules intersite_config subnets network next_hops expression paths values key value \
     allocation_ip allocated_ip allocation_ranges start end cidr gateway_ip dns_nameservers dns_suffix ip_block_path start_ip \
     intent_path intent_paths intent_reference realization_specific_identifier enforcement_point_path site_path \
     alarms source_reference source_site_id extended_attributes related_errors error_data details consolidated_status \
     consolidated_status_per_enforcement_point enforcement_point_id service_path pool_usage \
     site_connection_info fqdn thumbprint username password certificate certificates enforcement_points \
     category_id tag_id tag_ids object_id object_ids object_type name used_by args user roles role permissions";

/// Fields whose values are schema words.
const WORD_FIELDS: &str = "resource_type entity_type type data_type multivalue state publish_status runtime_status \
     consolidated_status realization_api status health admin_state size error_log_level algorithm action snat_translation_type \
     request_method request_version purge ha_mode failover_mode pool_allocation route_advertisement_types _protection \
     ip_address_type ip_revision_filter conjunction_operator group_type member_type operator condition_key httpStatus \
     module_name severity federation_config messages site_type cardinality associable_types error_type x_forwarded_for \
     enabled visibility sort_by ip_protocol key rel service_size";

/// Fields whose values are numbers, also as text.
const NUMBER_FIELDS: &str = "result_count cursor error_code intent_version _revision ports port default_pool_member_ports \
     monitor_port prefix_length page_size";

const MESSAGE_FIELDS: &str = "error_message message details default_message localized";

/// Fields whose values are booleans, numbers, or not needed by a client.
const OTHER_FIELDS: &str = "_create_time _last_modified_time last_update_timestamp _system_owned marked_for_delete overridden \
     enabled access_log_enabled log_significant_event_only relax_scale_validation max_concurrent_connections \
     max_new_connection_rate weight backup_member port_overload min_active_members tcp_multiplexing_enabled \
     tcp_multiplexing_number max_ip_list_size interval timeout fall_count rise_count response_status_codes data_length \
     max_fails idle_timeout close_timeout ha_flow_mirroring_enabled flow_mirroring_enabled persistence_shared \
     ha_persistence_mirroring_enabled request_header_size response_header_size response_timeout response_buffering ntlm \
     server_keep_alive http_redirect_to_https ip_release_delay check_overlap_with_existing_pools sync_realization \
     auto_assign_gateway admin_distance enabled_on_secondary enable_standby_relocation force_whitelisting \
     default_rule_logging disable_firewall extended_validation sort_ascending error_details \
     current_virtual_server_count virtual_server_capacity current_pool_count pool_capacity current_pool_member_count \
     pool_member_capacity current_credit_number credit_capacity usage_percentage \
     allocatable_ips total_ips allocated_ip_allocations available_ips requested_ip_allocations is_federated";

/// Resource types, states and other enumerations.
const WORDS: &str = "Site Domain Group Tier0 Tier1 LocaleServices StaticRoutes LBService LBVirtualServer LBPool LBFastTcpProfile \
     LBFastUdpProfile LBHttpProfile LBTcpMonitorProfile LBUdpMonitorProfile LBHttpMonitorProfile LBHttpsMonitorProfile \
     LBIcmpMonitorProfile LBPassiveMonitorProfile LBSourceIpPersistenceProfile LBCookiePersistenceProfile \
     LBGenericPersistenceProfile LBServiceUsage LBSnatAutoMap LBSnatDisabled LBSnatIpPool IpAddressBlock IpAddressPool \
     IpAddressPoolStaticSubnet IpAddressPoolBlockSubnet IpAddressAllocation IPAddressExpression Condition \
     ConjunctionOperator NestedExpression PathExpression GenericPolicyRealizedResource RealizedLbPool \
     RealizedLbVirtualServer RealizedLbService RealizedStaticRoute RealizedLogicalRouter AllocationIpAddress PolicyAlarmResource \
     Infra ChildLBPool ChildLBVirtualServer ChildLBService ConsolidatedRealizedStatus \
     UNAVAILABLE UNREALIZED REALIZED ERROR UNINITIALIZED SUCCESS IN_PROGRESS FAILED UNKNOWN DOWN UP DEGRADED NO_ALARM GREEN ORANGE RED DISABLED \
     ENABLED GRACEFUL_DISABLED SMALL MEDIUM LARGE XLARGE DLB DEBUG INFO WARNING CRITICAL ALERT EMERGENCY ALLOW DROP \
     ROUND_ROBIN WEIGHTED_ROUND_ROBIN LEAST_CONNECTION WEIGHTED_LEAST_CONNECTION IP_HASH IPV4 IPV6 IPV4_IPV6 \
     GET OPTIONS POST HEAD PUT HTTP_VERSION_1_0 HTTP_VERSION_1_1 FULL NO_PURGE OR AND IPAddress \
     ACTIVE_STANDBY ACTIVE_ACTIVE PREEMPTIVE NON_PREEMPTIVE ROUTING LB_SMALL LB_MEDIUM LB_LARGE LB_XLARGE ROUTED ISOLATED \
     TIER1_STATIC_ROUTES TIER1_CONNECTED TIER1_NAT TIER1_LB_VIP TIER1_LB_SNAT TIER1_DNS_FORWARDER_IP \
     TIER1_IPSEC_LOCAL_ENDPOINT NOT_PROTECTED PROTECTED REQUIRE_OVERRIDE STRING PRIVATE EXTERNAL INSERT REPLACE \
     allocation_ip logical-router-id \
     BAD_REQUEST UNAUTHORIZED FORBIDDEN NOT_FOUND METHOD_NOT_ALLOWED CONFLICT PRECONDITION_FAILED TOO_MANY_REQUESTS \
     INTERNAL_SERVER_ERROR SERVICE_UNAVAILABLE BAD_GATEWAY GATEWAY_TIMEOUT UNSUPPORTED_MEDIA_TYPE \
     policy common-services PolicyTransport cm-inventory id-allocation nsx-search internal-framework aaa proton \
     SINGLE MULTIPLE display_name self \
     com.vmware.vapi.std.errors.not_found com.vmware.vapi.std.errors.unauthenticated \
     com.vmware.vapi.std.errors.unauthorized com.vmware.vapi.std.errors.invalid_argument \
     com.vmware.vapi.std.errors.service_unavailable com.vmware.vapi.std.errors.error \
     com.vmware.vapi.std.errors.internal_server_error com.vmware.vapi.std.errors.operation_not_found \
     NOT_FOUND UNAUTHENTICATED INVALID_ARGUMENT ERROR OPERATION_NOT_FOUND \
     com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached com.vmware.vapi.endpoint.method.authentication.required \
     vapi.security.authentication.invalid vapi.security.authorization.invalid vapi.security.authentication.required \
     cis.tagging.objectNotFound.error com.vmware.vdcs.vmtag-service.not_found";

fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == word)
}

/// Returns true if a field for schema words may have this word.
pub(super) fn is_word(word: &str) -> bool {
    has(WORDS, word)
}

/// The kind of a field's value, which decides whether it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recording) enum Field {
    /// A schema word.
    Word,
    /// A number, or a number as text.
    Number,
    Message,
    /// Any other value: an id, a name, an address, a path.
    Value,
    /// A field that is in no list.
    Unknown,
}

pub(in crate::recording) fn field(name: &str) -> Field {
    if has(MESSAGE_FIELDS, name) {
        Field::Message
    } else if has(WORD_FIELDS, name) {
        Field::Word
    } else if has(NUMBER_FIELDS, name) {
        Field::Number
    } else if has(FIELDS, name) || has(OTHER_FIELDS, name) || is_word(name) {
        // In a hierarchical call an object is a field with the name of its type.
        Field::Value
    } else {
        Field::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, field, is_word};

    #[test]
    fn each_field_is_what_a_client_reads_in_it() {
        for (name, expected) in [
            ("state", Field::Word),
            ("cursor", Field::Number),
            ("error_message", Field::Message),
            ("display_name", Field::Value),
            ("virtual_server_capacity", Field::Value),
            ("LBPool", Field::Value),
            ("secret", Field::Unknown),
            ("", Field::Unknown),
        ] {
            assert_eq!(field(name), expected, "{name}");
        }
        assert!(is_word("TIER1_LB_VIP") && !is_word("secret"));
    }
}
