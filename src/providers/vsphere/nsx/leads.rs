//! Whether this process may use NSX: while one of the controllers that need it works here.

use tokio::sync::watch;

/// The leadership of several controllers, which may work under different Leases. Cheap to clone.
#[derive(Clone)]
pub struct Leads(Vec<watch::Receiver<bool>>);

impl Leads {
    /// From the leadership of each controller; without one it is never so.
    pub fn new(of: Vec<watch::Receiver<bool>>) -> Self {
        Self(of)
    }

    /// Whether one of them works now.
    pub fn is_so(&self) -> bool {
        self.0.iter().any(|leads| *leads.borrow())
    }

    /// Completes with the next change of any of them.
    pub async fn changed(&mut self) {
        let changes = self.0.iter_mut().map(|leads| {
            Box::pin(async {
                // A vanished elector has ended its term before.
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
