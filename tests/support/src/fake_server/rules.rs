//! Rules that inject faults into calls.

/// A fault and the calls that it applies to.
#[derive(Clone, Debug)]
struct Rule<T> {
    operation: String,
    trouble: T,
    /// Number of calls that pass first.
    skip: u32,
    /// Number of calls that it applies to. `None` for all.
    times: Option<u32>,
}

/// The faults that a test requested, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Rules<T>(Vec<Rule<T>>);

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Rules<T> {
    /// Injects a fault into this operation, or `*` for any, after `skip` more calls of it: for this many `times`, or
    /// until [`Self::clear`].
    pub(crate) fn add(&mut self, operation: &str, trouble: T, skip: u32, times: Option<u32>) {
        self.0.push(Rule { operation: operation.to_owned(), trouble, skip, times });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes the fault of this call, among those of one kind.
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
