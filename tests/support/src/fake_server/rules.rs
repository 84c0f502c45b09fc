//! Rules that inject troubles into calls.

/// A trouble and the calls that it is for.
#[derive(Clone, Debug)]
struct Rule<T> {
    operation: String,
    trouble: T,
    /// Calls that pass before.
    skip: u32,
    /// Calls that it is for; `None` for all.
    times: Option<u32>,
}

/// The troubles that a test ordered, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Rules<T>(Vec<Rule<T>>);

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Rules<T> {
    /// Troubles this operation, or `*` for any, after `skip` more calls of it: so many `times`, or until [`Self::clear`].
    pub(crate) fn add(&mut self, operation: &str, trouble: T, skip: u32, times: Option<u32>) {
        self.0.push(Rule { operation: operation.to_owned(), trouble, skip, times });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The trouble of this call, among those of one kind.
    pub(crate) fn take(&mut self, operation: &str, is_of_kind: impl Fn(&T) -> bool) -> Option<T> {
        for rule in &mut self.0 {
            let is_for_it = rule.operation == operation || rule.operation == "*";
            if !is_for_it || rule.times == Some(0) || !is_of_kind(&rule.trouble) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times = rule.times.map(|times| times - 1);
            return Some(rule.trouble.clone());
        }
        None
    }
}
