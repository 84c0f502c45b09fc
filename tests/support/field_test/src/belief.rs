//! Pure: beliefs, and the sheet that collects the outcomes of the checks of one server.

/// An assumption of the product about the behaviour of a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Belief {
    /// Its name in tables: `V` for vCenter or `N` for NSX, and a number.
    pub id: &'static str,
    /// The assumption in one sentence.
    pub statement: &'static str,
    /// Its source: a page of documentation, source code or a report.
    pub rests_on: &'static str,
}

/// The outcome of a check. The texts contain counts, states, codes and times, and no name or text of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server behaves as assumed; the text has the observation.
    Holds(String),
    /// The server behaves differently; the text has the observation.
    Differs(String),
    /// The belief was not checked; the text has the reason.
    NotTried(String),
}

impl Outcome {
    /// The word in the table.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holds(_) => "holds",
            Self::Differs(_) => "DIFFERS",
            Self::NotTried(_) => "not tried",
        }
    }

    /// The observation, or the reason why nothing was checked.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Holds(text) | Self::Differs(text) | Self::NotTried(text) => text,
        }
    }
}

/// A belief and its outcome.
#[derive(Debug)]
pub struct Finding {
    /// The belief.
    pub belief: &'static Belief,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The beliefs about one server, and the outcomes so far.
pub struct Sheet {
    beliefs: &'static [&'static Belief],
    outcomes: Vec<Option<Outcome>>,
}

impl Sheet {
    /// Makes a sheet without outcomes.
    #[must_use]
    pub fn new(beliefs: &'static [&'static Belief]) -> Self {
        Self { beliefs, outcomes: beliefs.iter().map(|_| None).collect() }
    }

    /// Enters an outcome. If there are several for one belief, the first that differs is kept, otherwise the first that
    /// holds.
    pub fn enter(&mut self, belief: &Belief, outcome: Outcome) {
        let Some(at) = self.beliefs.iter().position(|known| known.id == belief.id) else { return };
        let Some(slot) = self.outcomes.get_mut(at) else { return };
        let replaces = match (&slot, &outcome) {
            (None | Some(Outcome::NotTried(_)), _) => true,
            (Some(Outcome::Holds(_)), Outcome::Differs(_)) => true,
            (Some(Outcome::Holds(_) | Outcome::Differs(_)), _) => false,
        };
        if replaces {
            *slot = Some(outcome);
        }
    }

    /// Enters that the belief holds if `is_so` is true, and otherwise that it differs.
    pub fn judge(&mut self, belief: &Belief, is_so: bool, seen: impl Into<String>) {
        let seen = seen.into();
        self.enter(belief, if is_so { Outcome::Holds(seen) } else { Outcome::Differs(seen) });
    }

    /// Enters that the belief was not checked.
    pub fn skip(&mut self, belief: &Belief, why: impl Into<String>) {
        self.enter(belief, Outcome::NotTried(why.into()));
    }

    /// Returns all beliefs with their outcomes. Beliefs without an outcome were not reached, for this reason.
    #[must_use]
    pub fn findings(self, not_reached: &str) -> Vec<Finding> {
        let all = self.beliefs.iter().zip(self.outcomes);
        all.map(|(belief, outcome)| {
            let outcome = outcome.unwrap_or_else(|| Outcome::NotTried(not_reached.to_owned()));
            Finding { belief, outcome }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Belief, Outcome, Sheet};

    static ONE: Belief = Belief { id: "X1", statement: "one", rests_on: "a page" };
    static TWO: Belief = Belief { id: "X2", statement: "two", rests_on: "a page" };

    #[test]
    fn the_first_difference_stays_and_what_is_not_reached_is_not_tried() {
        static BOTH: &[&Belief] = &[&ONE, &TWO];
        let mut sheet = Sheet::new(BOTH);
        sheet.skip(&ONE, "no VM");
        sheet.judge(&ONE, true, "a");
        sheet.judge(&ONE, false, "b");
        sheet.judge(&ONE, false, "c");
        sheet.judge(&ONE, true, "d");
        sheet.skip(&ONE, "e");
        let outcomes: Vec<_> = sheet.findings("the login was rejected").into_iter().map(|one| one.outcome).collect();
        assert_eq!(
            outcomes,
            [Outcome::Differs("b".to_owned()), Outcome::NotTried("the login was rejected".to_owned())]
        );
    }
}
