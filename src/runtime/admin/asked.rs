//! Requests that others than this process have to decide about: how many at once, and how many of one address.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Of all addresses together.
const MOST: usize = 128;

/// Of one address: whoever has many under way must not keep the others out.
const MOST_OF_ONE: usize = 32;

/// Those under way. Addresses without any are forgotten.
#[derive(Default)]
pub(super) struct Asked(Mutex<HashMap<IpAddr, usize>>);

/// One under way, until it is dropped.
pub(super) struct Turn<'a> {
    asked: &'a Asked,
    address: IpAddr,
}

impl Asked {
    /// One more of this address, if there may be.
    pub(super) fn turn(&self, address: IpAddr) -> Option<Turn<'_>> {
        let address = address.to_canonical();
        let mut of = self.0.lock();
        let own = of.get(&address).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || of.values().sum::<usize>() >= MOST {
            return None;
        }
        of.insert(address, own + 1);
        Some(Turn { asked: self, address })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut of = self.asked.0.lock();
        match of.get_mut(&self.address) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(of.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_quarter_of_all() {
        let asked = Asked::default();
        let take =
            |last: u8| -> Vec<_> { std::iter::from_fn(|| asked.turn([192, 0, 2, last].into())).take(1_000).collect() };
        let mut turns: Vec<_> = (1..=5).map(take).collect();
        assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 32, 32, 0]);
        assert!(asked.turn("::ffff:192.0.2.1".parse().unwrap()).is_none(), "the same address in another form");
        turns[1].pop();
        assert_eq!((take(1).len(), take(5).len()), (0, 1), "what is free is for the others");
        drop(turns);
        assert!(asked.0.lock().is_empty());
    }
}
