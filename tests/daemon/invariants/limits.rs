//! Limits for the deletions of Nodes by one daemon in a window, as an observer can check them. Each daemon of these
//! tests leads from its start to its end, and counts only its own deletions. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::proofs::Proof;

/// Maximum time between the permit for a deletion and the start of the last proof.
pub const PERMIT: Duration = Duration::from_secs(2);

/// The limits and the deletions so far.
pub struct Limits {
    /// Maximum number of Nodes within the window.
    nodes: usize,
    window: Duration,
    /// Period without deletions.
    hold: Option<(Instant, Instant)>,
    /// By daemon: the proofs in their order, and whether each Node was of the control plane.
    done: HashMap<usize, Vec<(Instant, bool)>>,
}

impl Limits {
    /// Creates the limits without deletions.
    pub fn new(nodes: usize, window: Duration) -> Self {
        Self { nodes, window, hold: None, done: HashMap::new() }
    }

    /// Forbids deletions from `since` on for this time.
    pub fn hold(&mut self, since: Instant, length: Duration) {
        self.hold = Some((since, since + length));
    }

    /// Records the deletion of a Node after this proof. For a Node of the control plane `others` is the number of the
    /// remaining ones.
    pub fn take(&mut self, proof: Proof, others: Option<usize>) -> Result<(), String> {
        let Proof { began, process } = proof;
        if self.hold.is_some_and(|(since, until)| since <= began && began < until) {
            return Err("a node was deleted while many were gone".to_owned());
        }
        let done = self.done.entry(process).or_default();
        // The first permitted deletion may have the last proof.
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

    /// Start of the proof in seconds, number of the daemon, and number of the remaining nodes of the control plane.
    type Deletion = (u64, usize, Option<usize>);
    /// Name, start of the period without deletions, deletions, and the expected result.
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
