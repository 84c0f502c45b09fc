//! Waits until NSX has put a route into effect.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Routes;
use crate::clients::nsx::realization::Realization;
use crate::cloud::Error;
use crate::providers::vsphere::nsx::failed;
use crate::providers::vsphere::reason;

/// When it is asked for the first time, and how often then.
const FIRST: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_secs(1);

/// How long it is waited for, as in the Go program.
const LIMIT: Duration = Duration::from_secs(10);

impl Routes {
    /// Completes when the route of this id is realized.
    pub(super) async fn wait_until_realized(&self, id: &str) -> Result<(), Error> {
        let (began, path, doing) = (Instant::now(), self.path(id), format!("wait for the route {id}"));
        let not_realized = |what: String| Error::Failed {
            reason: reason::RouteNotRealized,
            message: format!("{doing}: {what}"),
            after: None,
        };
        let mut next = began + FIRST;
        while next <= began + LIMIT {
            sleep_until(next).await;
            let realization = self.client.realization(&path, "realized-entities.list").await;
            match realization.map_err(|error| failed(&doing, None, &error))? {
                Realization::Realized => return Ok(()),
                Realization::Failed(alarm) => {
                    return Err(not_realized(format!("NSX could not put it into effect: {alarm}")));
                }
                Realization::Pending => next = Instant::now() + INTERVAL,
            }
        }
        Err(not_realized(format!("NSX has not put it into effect within {} s", LIMIT.as_secs())))
    }
}
