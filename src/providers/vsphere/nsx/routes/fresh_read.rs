//! Reads the route of one Node again, for the command `explain --fresh`. What is known of the routes stays as it is.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::RouterRoutes;
use super::static_route::ListedRoute;
use crate::base::addresses::parse_network_sloppy;
use crate::base::error_chain::chain;
use crate::clients::nsx::Kind;

/// One route, read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReading {
    /// The path of the route.
    pub path: String,
    /// What NSX has.
    ///
    /// # Errors
    /// The reason why the route was not read.
    pub result: Result<FoundRouteState, String>,
}

/// What NSX has of a route that this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRouteState {
    /// The route leads the network to the address of the Node.
    AsKnown,
    /// There is no such route, or it is being deleted.
    Gone,
    /// The route leads elsewhere.
    LeadsElsewhere {
        /// The wanted network and address.
        wanted: String,
        /// The network and the addresses in NSX.
        read: String,
    },
}

impl RouterRoutes {
    /// Reads the known route of this Node to this network again. Makes one call; `None`, without a call, if no route is
    /// known.
    pub async fn read_known_route(&self, node: &Node, network: &IpNet) -> Option<RouteReading> {
        let known = self.known_route(node, network);
        let path = self.path(&known.id?);
        let result = match self.client.get(&path, "static-routes.get").await {
            Ok(object) if object.is_marked_for_delete() => Ok(FoundRouteState::Gone),
            Ok(object) => Ok(state_of(network, known.next_hop.as_ref().ok(), ListedRoute::read(&object).as_ref())),
            Err(error) if error.kind == Kind::NotFound => Ok(FoundRouteState::Gone),
            Err(error) => Err(chain(&error)),
        };
        Some(RouteReading { path, result })
    }
}

/// Compares a route with the wanted one. Without a next hop, only the network is compared.
fn state_of(network: &IpNet, next_hop: Option<&IpAddr>, read: Option<&ListedRoute>) -> FoundRouteState {
    let Some(read) = read else { return FoundRouteState::Gone };
    let is_same_network = parse_network_sloppy(&read.network) == Some(*network);
    let is_same_hop = next_hop.is_none_or(|hop| read.next_hops == [*hop]);
    if is_same_network && is_same_hop {
        return FoundRouteState::AsKnown;
    }
    let hops: Vec<String> = read.next_hops.iter().map(IpAddr::to_string).collect();
    let wanted = next_hop.map_or_else(|| "no address".to_owned(), IpAddr::to_string);
    FoundRouteState::LeadsElsewhere {
        wanted: format!("{network} by {wanted}"),
        read: format!("{} by {}", read.network, hops.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_as_known_if_it_leads_the_network_to_the_next_hop() {
        let network: IpNet = "10.244.0.0/24".parse().unwrap();
        let hop: IpAddr = "10.1.0.1".parse().unwrap();
        let route = |network: &str, hops: &[&str]| ListedRoute {
            id: "r".to_owned(),
            node: "n".to_owned(),
            network: network.to_owned(),
            next_hops: hops.iter().map(|hop| hop.parse().unwrap()).collect(),
        };
        let elsewhere = |read: &str| FoundRouteState::LeadsElsewhere {
            wanted: "10.244.0.0/24 by 10.1.0.1".to_owned(),
            read: read.to_owned(),
        };
        for (read, expected) in [
            (Some(route("10.244.0.0/24", &["10.1.0.1"])), FoundRouteState::AsKnown),
            (Some(route("10.244.0.0/24", &["10.1.0.2"])), elsewhere("10.244.0.0/24 by 10.1.0.2")),
            (Some(route("10.244.0.0/24", &["10.1.0.1", "10.1.0.2"])), elsewhere("10.244.0.0/24 by 10.1.0.1 10.1.0.2")),
            (Some(route("10.245.0.0/24", &["10.1.0.1"])), elsewhere("10.245.0.0/24 by 10.1.0.1")),
            (None, FoundRouteState::Gone),
        ] {
            assert_eq!(state_of(&network, Some(&hop), read.as_ref()), expected);
        }
        let read = route("10.244.0.0/24", &["10.1.0.2"]);
        assert_eq!(state_of(&network, None, Some(&read)), FoundRouteState::AsKnown, "nothing is wanted");
    }
}
