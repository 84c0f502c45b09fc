//! Pure: the newest known location of a Node's VM.
//!
//! The newest location is the location that this process observed or the location recorded on the Node. If it is
//! unknown which location is newer, both locations count.

use std::sync::Arc;

use super::location::Location;

/// The last observation of a Node's VM by this process.
#[derive(Clone, Debug, PartialEq)]
pub struct LastObservation {
    /// The VM's location.
    pub location: Arc<Location>,
    /// The location recorded on the Node when this process last saw the VM on a live subscription. `None` if the Node
    /// had no record, or if the VM was never seen on a live subscription.
    pub recorded: Option<Arc<Location>>,
    /// Whether the subscription was live without a gap until the VM left the inventory.
    pub is_watched_to_end: bool,
}

/// The locations from which a VM must be proved gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastPlaces {
    /// The locations; at most two.
    pub locations: Vec<Arc<Location>>,
    /// Whether `locations` includes the VM's last location. False if no location is known, or if the Node has no record
    /// and the VM was not watched on a live subscription until it left.
    pub are_known: bool,
}

/// Decides which location is newer. `recorded` is the present record of the Node.
pub fn last_places(last_observation: Option<&LastObservation>, recorded: Option<Arc<Location>>) -> LastPlaces {
    let known = |places| LastPlaces { locations: places, are_known: true };
    let Some(LastObservation { location, recorded: before, is_watched_to_end }) = last_observation else {
        return recorded.map_or_else(LastPlaces::default, |recorded| known(vec![recorded]));
    };
    let observed = Arc::clone(location);
    let Some(recorded) = recorded else {
        return LastPlaces { locations: vec![observed], are_known: *is_watched_to_end };
    };
    if recorded == observed {
        return known(vec![observed]);
    }
    // The leader writes the record and may have newer data than this replica.
    let is_rewritten = before.as_ref() != Some(&recorded);
    known(match (is_watched_to_end, is_rewritten) {
        // A move is recorded with a delay, so the record may name a host that no longer exists.
        (true, false) => vec![observed],
        (false, true) => vec![recorded],
        (true, true) | (false, false) => vec![observed, recorded],
    })
}

/// Returns the location from which the VM disappeared, to record it on the Node. `None` if the VM was not watched to
/// its end, or if another location was recorded since, because another leader may have seen the VM elsewhere.
pub fn place_to_record<'a>(
    last_observation: Option<&'a LastObservation>,
    recorded: Option<&Arc<Location>>,
) -> Option<&'a Location> {
    let LastObservation { location, recorded: before, is_watched_to_end } = last_observation?;
    (*is_watched_to_end && before.as_ref() == recorded).then_some(location)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::vim::MoRef;

    fn at(host: &str) -> Arc<Location> {
        let host = Some(MoRef::new("HostSystem", host));
        Arc::new(Location { vcenter: "vc-1".into(), vm: "vm-3".into(), host, ..Location::default() })
    }

    #[test]
    fn a1_the_newest_place_counts_and_both_where_nobody_knows() {
        let observed = |before: Option<&str>, is_watched_to_end| {
            Some(LastObservation { location: at("seen"), recorded: before.map(at), is_watched_to_end })
        };
        for (case, last_observation, recorded, places, are_known) in [
            ("nothing", None, None, &[][..], false),
            ("never seen", None, Some("record"), &["record"], true),
            ("watched, the record is old", observed(Some("record"), true), Some("record"), &["seen"], true),
            ("watched, no record", observed(None, true), None, &["seen"], true),
            ("watched, the record was taken away", observed(Some("record"), true), None, &["seen"], true),
            (
                "watched, then recorded by others",
                observed(Some("old"), true),
                Some("record"),
                &["seen", "record"],
                true,
            ),
            ("not watched, recorded since", observed(Some("old"), false), Some("record"), &["record"], true),
            ("not watched, recorded for the first time", observed(None, false), Some("record"), &["record"], true),
            (
                "not watched, the record is old",
                observed(Some("record"), false),
                Some("record"),
                &["seen", "record"],
                true,
            ),
            ("not watched, the record agrees", observed(Some("old"), false), Some("seen"), &["seen"], true),
            ("not watched, no record", observed(None, false), None, &["seen"], false),
            ("not watched, the record was taken away", observed(Some("record"), false), None, &["seen"], false),
        ] {
            let last = last_places(last_observation.as_ref(), recorded.map(at));
            let expected = places.iter().map(|host| at(host)).collect::<Vec<_>>();
            assert_eq!((last.locations, last.are_known), (expected, are_known), "{case}");
            let reported = place_to_record(last_observation.as_ref(), recorded.map(at).as_ref());
            let is_told = ["watched, the record is old", "watched, no record"].contains(&case);
            assert_eq!(reported.is_some(), is_told, "{case}");
        }
    }
}
