//! Pure: decides which of two Nodes owns a VM whose UUID both Nodes claim. Data that a kubelet may write (record,
//! `systemUUID`, addresses) does not count.

use super::facts::NodeFacts;
use crate::providers::vsphere::vcenter::snapshot::VmRecord;

/// If the VM belongs to `other` and not to `node`, returns a clause about `other` with the reason. The first difference
/// decides: the guest's host name is the name of the owner, only the owner is initialized (or only the owner has the
/// taint and waits to be initialized), the owner is older.
pub fn owner_clause(node: &NodeFacts, other: &NodeFacts, vm: &VmRecord) -> Option<String> {
    let by_name = name_rank(other, &vm.host_name).cmp(&name_rank(node, &vm.host_name));
    let by_initialization = initialization_rank(other).cmp(&initialization_rank(node));
    let (order, reason) = if by_name.is_ne() {
        (by_name, ", which has the name of its guest")
    } else if by_initialization.is_ne() {
        (by_initialization, "")
    } else {
        (age(node).cmp(&age(other)), ", which is older")
    };
    order.is_gt().then(|| format!("already backs Node {}{reason}", other.name))
}

/// Whether the guest's host name speaks for `other` and against `node`.
pub fn is_called_rather(other: &NodeFacts, node: &NodeFacts, host_name: &str) -> bool {
    name_rank(other, host_name) > name_rank(node, host_name)
}

/// Ranks the match of the name: 2 for the whole name, 1 for the first label only. The name of a Node without a domain
/// counts as a whole match, whatever the guest's domain is.
fn name_rank(node: &NodeFacts, host_name: &str) -> u8 {
    let is_whole = !node.name.contains('.') || node.name.eq_ignore_ascii_case(host_name);
    match node.is_called(host_name) {
        true => 1 + u8::from(is_whole),
        false => 0,
    }
}

/// Ranks the state of initialization. An adoptable Node (no provider ID, no taint) is never initialized, so it ranks
/// behind a Node that waits to be initialized.
fn initialization_rank(node: &NodeFacts) -> u8 {
    match node {
        _ if node.is_initialized => 2,
        _ if node.is_adoptable => 0,
        _ => 1,
    }
}

/// Returns the sort key by age, then UID and name. A Node without a creation time comes after all Nodes with one.
fn age(node: &NodeFacts) -> (bool, Option<jiff::Timestamp>, &str, &str) {
    (node.created.is_none(), node.created, &node.uid, &node.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_NAME: &str = ", which has the name of its guest";
    const INITIALIZED: &str = "";
    const OLDER: &str = ", which is older";

    fn node(name: &str, created: i64) -> NodeFacts {
        let created = jiff::Timestamp::from_second(created).ok();
        NodeFacts { name: name.to_owned(), uid: name.into(), created, ..NodeFacts::default() }
    }

    #[test]
    fn guest_host_name_then_initialization_then_age_decide() {
        let initialized = |node| NodeFacts { is_initialized: true, ..node };
        let adoptable = |node| NodeFacts { is_adoptable: true, ..node };
        let timeless = |node| NodeFacts { created: None, ..node };
        let uid = |node, uid: &str| NodeFacts { uid: uid.into(), ..node };
        for (host_name, winner, loser, grounds) in [
            ("a", node("a", 9), initialized(node("b", 1)), HOST_NAME),
            ("a.example.com", node("a", 9), initialized(node("b", 1)), HOST_NAME),
            ("a", node("a", 9), initialized(node("a.other.domain", 1)), HOST_NAME),
            ("A.example.com", node("a.example.com", 9), initialized(node("a.other.domain", 1)), HOST_NAME),
            ("a.example.com", node("a", 9), initialized(node("a.other.domain", 1)), HOST_NAME),
            // The names of both Nodes match.
            ("A.example.com", initialized(node("a", 9)), node("a.example.com", 1), INITIALIZED),
            ("A.example.com", initialized(node("a.example.com", 9)), node("a", 1), INITIALIZED),
            ("a.example.com", node("a", 1), node("a.example.com", 9), OLDER),
            ("", initialized(node("a", 9)), node("b", 1), INITIALIZED),
            ("c", initialized(node("a", 9)), node("b", 1), INITIALIZED),
            ("c", node("a", 9), adoptable(node("b", 1)), INITIALIZED),
            ("c", initialized(node("a", 1)), initialized(node("b", 2)), OLDER),
            ("c", node("b", 1), node("a", 2), OLDER),
            ("c", node("b", 1), timeless(node("a", 0)), OLDER),
            ("c", uid(node("b", 1), "u1"), uid(node("a", 1), "u2"), OLDER),
            // Both names have the same first label.
            ("a", node("a.two", 1), node("a.one", 2), OLDER),
        ] {
            let vm = VmRecord { host_name: host_name.into(), ..VmRecord::default() };
            let clause = format!("already backs Node {}{grounds}", winner.name);
            assert_eq!(is_called_rather(&winner, &loser, host_name), grounds == HOST_NAME, "{host_name} {winner:?}");
            assert!(!is_called_rather(&loser, &winner, host_name), "{host_name} {winner:?} {loser:?}");
            assert_eq!(owner_clause(&loser, &winner, &vm), Some(clause), "{host_name} {winner:?} {loser:?}");
            assert_eq!(owner_clause(&winner, &loser, &vm), None, "{host_name} {winner:?} {loser:?}");
        }
    }

    /// A kubelet may write these fields on its Node, so they must not decide.
    #[test]
    fn record_system_uuid_and_addresses_decide_nothing() {
        let own = NodeFacts { created: jiff::Timestamp::from_second(1).ok(), ..node("a", 1) };
        let location = crate::providers::vsphere::nodes::absence::location::Location::default();
        let forged = NodeFacts {
            recorded: Some(std::sync::Arc::new(location)),
            system_uuid: "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().ok(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            provided: vec!["192.0.2.1".parse().unwrap()],
            ..node("b", 2)
        };
        let vm = VmRecord::default();
        assert_eq!(owner_clause(&forged, &own, &vm), Some("already backs Node a, which is older".to_owned()));
        assert_eq!(owner_clause(&own, &forged, &vm), None);
    }
}
