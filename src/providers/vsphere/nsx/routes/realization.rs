//! Waits until NSX has realized a route.
//!
//! A new route is realized when one of its realized entities says so. For a rewritten route NSX may report the previous
//! revision for seconds, so the realized status is read, which names the revision (`intent_version`). If it names none,
//! the entities are trusted once [`SETTLED`] has passed since the rewrite. If it names an older revision for
//! [`UNCONFIRMED`], the state of that revision decides: if it is realized, a warning says that NSX has not confirmed
//! the new one.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{LastWrite, RouterRoutes};
use crate::clients::nsx::realization::{REVISION_LAG, Realization, RevisionStatus};
use crate::cloud::Error;
use crate::providers::vsphere::nsx::failed;
use crate::providers::vsphere::reason;

/// Delay of the first status read, then the interval.
const FIRST: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait, as in the Go program.
const LIMIT: Duration = Duration::from_secs(10);

/// Time since a rewrite after which the state of an older revision decides: NSX may number revisions differently.
const UNCONFIRMED: Duration = Duration::from_secs(30);

impl RouterRoutes {
    /// Completes when the route is realized as `last_write` wrote it, which created `revision`.
    pub(super) async fn wait_until_realized(
        &self,
        id: &str,
        revision: Option<i64>,
        last_write: LastWrite,
    ) -> Result<(), Error> {
        let (began, doing) = (Instant::now(), format!("wait for the route {id}"));
        let not_realized = |what: String| Error::Failed {
            reason: reason::RouteNotRealized,
            message: format!("{doing}: {what}"),
            after: None,
        };
        let mut revision = revision.filter(|_| last_write.is_rewrite);
        let mut next = began + FIRST;
        while next <= began + LIMIT {
            sleep_until(next).await;
            let realization = self.realization(id, &mut revision, last_write, &doing).await?;
            match realization {
                Realization::Realized => return Ok(()),
                Realization::Failed(alarm) => {
                    return Err(not_realized(format!("NSX could not put it into effect: {alarm}")));
                }
                Realization::Pending => next = Instant::now() + INTERVAL,
            }
        }
        Err(not_realized(format!("NSX has not put it into effect within {} s", LIMIT.as_secs())))
    }

    /// Reads the realized state of `revision`. Sets `revision` to `None` if NSX names no revision with its state.
    async fn realization(
        &self,
        id: &str,
        revision: &mut Option<i64>,
        last_write: LastWrite,
        doing: &str,
    ) -> Result<Realization, Error> {
        let path = self.path(id);
        let asked = last_write.written_at.elapsed();
        let is_unconfirmed = asked >= UNCONFIRMED;
        // If NSX names no revision, the state may be that of the previous revision.
        let is_settled = !last_write.is_rewrite || asked >= REVISION_LAG;
        let settled = |realization| if is_settled { realization } else { Realization::Pending };
        if let Some(wanted) = *revision {
            let status = self.client.revision_status(&path, wanted, "realized-status.get").await;
            match status.map_err(|error| failed(doing, None, &error))? {
                RevisionStatus::Known(realization) => return Ok(realization),
                RevisionStatus::Older(_, failure @ Realization::Failed(_)) if is_unconfirmed => return Ok(failure),
                RevisionStatus::Older(older, _) if is_unconfirmed => {
                    let waited = UNCONFIRMED.as_secs();
                    warn!(
                        route = id,
                        "NSX has not confirmed revision {wanted} of the route {id} within {waited} s: it reports revision \
                         {older} as realized"
                    );
                    return Ok(Realization::Realized);
                }
                RevisionStatus::Older(..) => return Ok(Realization::Pending),
                RevisionStatus::Unversioned(realization) => {
                    *revision = None;
                    return Ok(settled(realization));
                }
            }
        }
        let realization = self.client.realization(&path, "realized-entities.list").await;
        let realization = realization.map_err(|error| failed(doing, None, &error))?;
        Ok(settled(realization))
    }
}
