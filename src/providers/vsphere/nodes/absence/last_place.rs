//! Pure: the newest place at which a node's machine is known to have been.
//!
//! That is where this process saw it, or where the Node says it was, or both, if it is unknown which one is newer.

use std::sync::Arc;

use super::location::Location;

/// Where this process saw a node's machine last.
#[derive(Clone, Debug, PartialEq)]
pub struct LastObservation {
    /// Where it was.
    pub location: Arc<Location>,
    /// What the Node recorded while the machine was seen there on a live subscription; none if it recorded nothing, or
    /// the machine was never seen on one.
    pub recorded: Option<Arc<Location>>,
    /// Whether the subscription was live without a gap from then until the VM left the inventory.
    pub is_watched_to_end: bool,
}

/// The places at which a machine has to be proved gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastPlaces {
    /// At most two.
    pub places: Vec<Arc<Location>>,
    /// Whether these are all locations known since.
    pub are_known: bool,
}

/// Decides which of the two is newer. `recorded` is what the Node records now.
pub fn last_places(last_observation: Option<&LastObservation>, recorded: Option<Arc<Location>>) -> LastPlaces {
    let known = |places| LastPlaces { places, are_known: true };
    let Some(LastObservation { location, recorded: before, is_watched_to_end }) = last_observation else {
        return recorded.map_or_else(LastPlaces::default, |recorded| known(vec![recorded]));
    };
    let seen = Arc::clone(location);
    let Some(recorded) = recorded else {
        return LastPlaces { places: vec![seen], are_known: *is_watched_to_end };
    };
    if recorded == seen {
        return known(vec![seen]);
    }
    // Whoever leads writes the record, and may see what this process does not.
    let is_rewritten = before.as_ref() != Some(&recorded);
    known(match (is_watched_to_end, is_rewritten) {
        // The record may name a host that is no more: a machine that moves is recorded with a delay.
        (true, false) => vec![seen],
        (false, true) => vec![recorded],
        (true, true) | (false, false) => vec![seen, recorded],
    })
}

/// The place that the machine was seen to leave, for the record of the Node, which records `recorded` now. None if another one
/// was recorded since: another leader may have seen the machine elsewhere.
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
        let seen = |before: Option<&str>, is_watched_to_end| {
            Some(LastObservation { location: at("seen"), recorded: before.map(at), is_watched_to_end })
        };
        for (case, last_observation, recorded, places, are_known) in [
            ("nothing", None, None, &[][..], false),
            ("never seen", None, Some("record"), &["record"], true),
            ("watched, the record is old", seen(Some("record"), true), Some("record"), &["seen"], true),
            ("watched, no record", seen(None, true), None, &["seen"], true),
            ("watched, the record was taken away", seen(Some("record"), true), None, &["seen"], true),
            ("watched, then recorded by others", seen(Some("old"), true), Some("record"), &["seen", "record"], true),
            ("not watched, recorded since", seen(Some("old"), false), Some("record"), &["record"], true),
            ("not watched, recorded for the first time", seen(None, false), Some("record"), &["record"], true),
            ("not watched, the record is old", seen(Some("record"), false), Some("record"), &["seen", "record"], true),
            ("not watched, the record agrees", seen(Some("old"), false), Some("seen"), &["seen"], true),
            ("not watched, no record", seen(None, false), None, &["seen"], false),
            ("not watched, the record was taken away", seen(Some("record"), false), None, &["seen"], false),
        ] {
            let last = last_places(last_observation.as_ref(), recorded.map(at));
            let expected = places.iter().map(|host| at(host)).collect::<Vec<_>>();
            assert_eq!((last.places, last.are_known), (expected, are_known), "{case}");
            let told = place_to_record(last_observation.as_ref(), recorded.map(at).as_ref());
            let is_told = ["watched, the record is old", "watched, no record"].contains(&case);
            assert_eq!(told.is_some(), is_told, "{case}");
        }
    }
}
