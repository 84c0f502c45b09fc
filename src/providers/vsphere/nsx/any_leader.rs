//! Decides whether this process may use NSX: only while it is the leader for at least one controller that needs NSX.

use tokio::sync::watch;

/// Leadership of several controllers, which may use different Leases. Cheap to clone.
#[derive(Clone, Default)]
pub struct AnyLeader(Vec<watch::Receiver<bool>>);

impl AnyLeader {
    /// Combines the leadership of the controllers. Without controllers, this process is never the leader.
    pub fn new(of: Vec<watch::Receiver<bool>>) -> Self {
        Self(of)
    }

    /// Returns a leadership that never ends, for a process without controllers that only reads.
    pub fn always() -> Self {
        Self(vec![watch::channel(true).1])
    }

    /// Whether this process is the leader for at least one of the controllers.
    pub fn is_leader(&self) -> bool {
        self.0.iter().any(|leads| *leads.borrow())
    }

    /// Whether the leadership of any controller changed since the last call.
    pub fn has_changed(&mut self) -> bool {
        let is_new = |leads: &mut watch::Receiver<bool>| {
            let has_changed = leads.has_changed().unwrap_or_default();
            leads.mark_unchanged();
            has_changed
        };
        self.0.iter_mut().map(is_new).fold(false, |any, one| any | one)
    }

    /// Waits until the leadership of any controller changes.
    pub async fn changed(&mut self) {
        let changes = self.0.iter_mut().map(|leads| {
            Box::pin(async {
                // A closed channel delivers no further change: the elector ends the term before it closes the channel.
                if leads.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        if changes.len() == 0 {
            std::future::pending::<()>().await;
        }
        futures::future::select_all(changes).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::watch;

    use super::AnyLeader;

    #[test]
    fn one_lead_of_two_is_enough_until_the_last_one_ends() {
        let leads = [(); 2].map(|()| watch::Sender::new(false));
        let mut both = AnyLeader::new(leads.iter().map(watch::Sender::subscribe).collect());
        assert!(!both.is_leader());
        for (controller, leading, expected) in [
            (0, true, true),
            (1, true, true),
            (0, false, true),
            (1, false, false),
            (1, true, true),
            (0, true, true),
            (1, false, true),
            (0, false, false),
        ] {
            leads[controller].send_replace(leading);
            both.changed().now_or_never().expect("the change of either is seen");
            assert_eq!(both.is_leader(), expected, "{controller} {leading}");
            assert!(both.changed().now_or_never().is_none(), "it is seen once");
        }
    }

    #[test]
    fn a_change_that_was_taken_back_is_a_change() {
        let leads = [(); 2].map(|()| watch::Sender::new(true));
        let mut both = AnyLeader::new(leads.iter().map(watch::Sender::subscribe).collect());
        assert!(!both.has_changed());
        for controller in [0, 1] {
            leads[controller].send_replace(false);
            leads[controller].send_replace(true);
            assert!(both.is_leader() && both.has_changed() && !both.has_changed());
        }
    }

    #[test]
    fn without_controllers_nothing_leads() {
        assert!(!AnyLeader::new(Vec::new()).is_leader());
    }

    #[test]
    fn a_reader_leads_without_an_end() {
        let mut always = AnyLeader::always();
        assert!(always.is_leader() && !always.has_changed() && always.changed().now_or_never().is_none());
    }
}
