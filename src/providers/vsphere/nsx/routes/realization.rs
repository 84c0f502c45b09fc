//! Waits until NSX has put a route into effect.
//!
//! A route that is new is realized when one of its realized entities says so. Of a route that was rewritten NSX may report for
//! seconds what became of the revision before, so that the realized status is read, which names the revision
//! (`intent_version`). Where it names none, the entities are believed once [`SETTLED`] has passed since the rewrite; where it
//! names an older one for [`UNCONFIRMED`], the route is as that is: if it is realized, a warning says that NSX has not confirmed
//! the new one.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{LastWrite, RouterRoutes};
use crate::clients::nsx::realization::{Realization, RevisionStatus, SETTLED};
use crate::cloud::Error;
use crate::providers::vsphere::nsx::failed;
use crate::providers::vsphere::reason;

/// When it is asked for the first time, and how often then.
const FIRST: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_secs(1);

/// How long it is waited for, as in the Go program.
const LIMIT: Duration = Duration::from_secs(10);

/// After this time since a rewrite the state of an older revision decides: NSX may number them otherwise.
const UNCONFIRMED: Duration = Duration::from_secs(30);

impl RouterRoutes {
    /// Completes when the route of this id is realized as `last_write` wrote it, which made this revision of it.
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

    /// The state of this revision. `revision` becomes `None` where NSX does not say of which one its state is.
    async fn realization(
        &self,
        id: &str,
        revision: &mut Option<i64>,
        last_write: LastWrite,
        doing: &str,
    ) -> Result<Realization, Error> {
        let path = self.path(id);
        let asked = last_write.at.elapsed();
        let is_unconfirmed = asked >= UNCONFIRMED;
        // A state that names no revision may be that of the revision before.
        let is_settled = !last_write.is_rewrite || asked >= SETTLED;
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
