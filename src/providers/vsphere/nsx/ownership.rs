//! Pure: the tags with the owner of an object, and which cluster owns it by the tag `cluster-uid`. Routes and load
//! balancers add other criteria.

/// The name of this program in descriptions and, unless configured otherwise, in the owner tag.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// Tag scope of the owner. The Go program does not write this tag for routes.
pub const OWNER: &str = "owner";

/// Scope of the tag with the UID of the cluster. The Go program does not write this tag.
pub const CLUSTER_UID: &str = "cluster-uid";

/// Result of `by_cluster_uid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCluster {
    /// This cluster owns the object.
    This,
    /// Another cluster owns the object.
    Another,
    /// Undecided: the object has no tag `cluster-uid`, or the UID of this cluster is unknown.
    Unknown,
}

/// Compares the tag of an object with the UID of this cluster.
pub fn by_cluster_uid(own: Option<&str>, tagged: Option<&str>) -> OfCluster {
    match own.zip(tagged) {
        Some((own, tagged)) if own == tagged => OfCluster::This,
        Some(_) => OfCluster::Another,
        None => OfCluster::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_known_uids_say_something() {
        for (own, tagged, expected) in [
            (Some("a"), Some("a"), OfCluster::This),
            (Some("a"), Some("b"), OfCluster::Another),
            (Some("a"), None, OfCluster::Unknown),
            (None, Some("a"), OfCluster::Unknown),
            (None, None, OfCluster::Unknown),
        ] {
            assert_eq!(by_cluster_uid(own, tagged), expected, "{own:?} {tagged:?}");
        }
    }
}
