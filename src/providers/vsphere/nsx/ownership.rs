//! Pure: of which cluster an object is by its tag `cluster-uid`. What else shows that differs: see the ownership rules of
//! routes and of load balancers.

/// The tag with the UID of the cluster, which the Go program does not have.
pub const CLUSTER_UID: &str = "cluster-uid";

/// What the tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCluster {
    /// The object is of this cluster.
    This,
    /// The object is of another cluster.
    Another,
    /// Nothing: the object has no such tag, or the UID of this cluster is not known.
    Unknown,
}

/// What the tag of an object says, given the UID of this cluster.
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
