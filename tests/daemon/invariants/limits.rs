//! How many Nodes one daemon may delete in a while, as far as it shows from outside. Each daemon of these tests leads from
//! its start to its end, and counts only what it did itself. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::proofs::Proof;

/// What is read before the last proof takes less: the deletion was permitted at most so long before the proof began.
pub const PERMIT: Duration = Duration::from_secs(2);

/// What must not be exceeded, and what was done.
pub struct Limits {
    /// So many Nodes within the window.
    nodes: usize,
    window: Duration,
    /// Nothing is deleted between these moments.
    hold: Option<(Instant, Instant)>,
    /// By daemon, in the order of their proofs; whether each was of the control plane.
    done: HashMap<usize, Vec<(Instant, bool)>>,
}

impl Limits {
    /// Nothing was deleted.
    pub fn new(nodes: usize, window: Duration) -> Self {
        Self { nodes, window, hold: None, done: HashMap::new() }
    }

    /// Nothing may be deleted from now on for so long.
    pub fn hold(&mut self, since: Instant, length: Duration) {
        self.hold = Some((since, since + length));
    }

    /// A Node was deleted after this proof; `others` are the Nodes of the control plane that are left, if it was one.
    pub fn take(&mut self, proof: Proof, others: Option<usize>) -> Result<(), String> {
        let Proof { began, process } = proof;
        if self.hold.is_some_and(|(since, until)| since <= began && began < until) {
            return Err("a node was deleted while many were gone".to_owned());
        }
        let done = self.done.entry(process).or_default();
        // The one that was permitted first may have been proved last.
        let window = self.window - PERMIT;
        if let Some(others) = others {
            let is_lately = |before: Instant| before <= began && began - before < window;
            let lost = 1 + done.iter().filter(|(before, is_of_it)| *is_of_it && is_lately(*before)).count();
            if lost * 2 > lost + others {
                return Err(format!("{lost} of {} nodes of the control plane were deleted", lost + others));
            }
        }
        done.push((began, others.is_some()));
        done.sort_by_key(|(began, _)| *began);
        match done.windows(self.nodes + 1).find(|many| many[self.nodes].0 - many[0].0 < window) {
            Some(many) => Err(format!("{} nodes were deleted within {:?}", many.len(), many[self.nodes].0 - many[0].0)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the proof began, in seconds; by which daemon; how many others of the control plane there are.
    type Deletion = (u64, usize, Option<usize>);
    /// Its name; when a hold begins; what is deleted, and what is told of it.
    type Case<'a> = (&'a str, Option<u64>, &'a [Deletion], Result<(), String>);

    fn judge(hold: Option<u64>, deletions: &[Deletion]) -> Result<(), String> {
        let start = Instant::now();
        let second = |seconds| start + Duration::from_secs(seconds);
        let mut limits = Limits::new(2, Duration::from_secs(10));
        if let Some(since) = hold {
            limits.hold(second(since), Duration::from_secs(10));
        }
        deletions
            .iter()
            .try_for_each(|&(began, process, others)| limits.take(Proof { began: second(began), process }, others))
    }

    #[test]
    fn what_is_allowed_passes_and_what_is_not_is_told() {
        let mass = Err("a node was deleted while many were gone".to_owned());
        let three = Err("3 nodes were deleted within 7s".to_owned());
        let majority = |lost, all| Err(format!("{lost} of {all} nodes of the control plane were deleted"));
        let cases: [Case<'_>; 13] = [
            ("two in a window", None, &[(0, 0, None), (1, 0, None), (10, 0, None), (11, 0, None)], Ok(())),
            ("three in a window", None, &[(0, 0, None), (1, 0, None), (7, 0, None)], three.clone()),
            ("heard of in another order", None, &[(7, 0, None), (1, 0, None), (0, 0, None)], three),
            ("two daemons", None, &[(0, 0, None), (1, 0, None), (2, 1, None), (3, 1, None)], Ok(())),
            ("before the hold", Some(5), &[(4, 0, None)], Ok(())),
            ("in the hold", Some(5), &[(14, 0, None)], mass.clone()),
            ("as it begins", Some(5), &[(5, 0, None)], mass),
            ("after the hold", Some(5), &[(15, 0, None)], Ok(())),
            ("two of four", None, &[(0, 0, Some(3)), (1, 0, Some(2))], Ok(())),
            ("two of three", None, &[(0, 0, Some(2)), (1, 0, Some(1))], majority(2, 3)),
            ("the last one", None, &[(0, 0, Some(0))], majority(1, 1)),
            ("one of two, later", None, &[(0, 0, Some(2)), (8, 0, Some(1))], Ok(())),
            ("others do not count", None, &[(0, 0, None), (1, 0, Some(1))], Ok(())),
        ];
        for (case, hold, deletions, expected) in cases {
            assert_eq!(judge(hold, deletions), expected, "{case}");
        }
    }
}
