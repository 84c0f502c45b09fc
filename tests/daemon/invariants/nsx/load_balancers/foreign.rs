//! No replica changes an object of another cluster or of an administrator, or an object without proof that it belongs
//! to the replica's cluster.

use super::{Change, State};

pub(super) fn check(change: &Change<'_>, state: &State) -> Result<(), String> {
    for (what, object) in [("changed what is not of its cluster", change.before), ("wrote without tags", change.after)]
    {
        if object.is_some_and(|object| !state.cluster.owns(object)) {
            return Err(what.to_owned());
        }
    }
    Ok(())
}

#[test]
fn a_change_of_what_is_not_of_the_cluster_is_reported() {
    use super::fixtures::*;
    let (ours, theirs, untagged) = (server("a", 80, "1", "p"), of_uid("other", server("a", 80, "1", "p")), held("a"));
    for (case, steps, is_kept) in [
        ("created and changed", vec![by_replica(VS, &ours), by_replica(VS, &moved(ours.clone()))], true),
        ("of a former process", vec![by_hand(VS, &ours), deleted(VS)], true),
        ("of another cluster", vec![by_hand(VS, &theirs), deleted(VS)], false),
        ("taken over", vec![by_hand(VS, &theirs), by_replica(VS, &ours)], false),
        ("nothing shows whose it is", vec![by_hand(VS, &untagged), deleted(VS)], false),
        ("written as another's", vec![by_replica(VS, &theirs)], false),
        ("a group of another cluster", vec![by_hand(GROUP, &theirs), deleted(GROUP)], false),
        ("a gateway", vec![by_replica("/infra/tier-1s/t1", &ours)], false),
        ("a route", vec![by_replica("/infra/tier-1s/t1/static-routes/r", &ours)], true),
    ] {
        assert_eq!(broken(no_services(), steps).is_none(), is_kept, "{case}");
    }
}
