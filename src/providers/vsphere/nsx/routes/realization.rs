//! Waits until NSX has realized a route.
//!
//! The realized entities of a new route show whether NSX has realized the route. For a rewritten route, the entities
//! may show the previous revision for seconds. Therefore, the realized status is read, which names the revision
//! (`intent_version`). If the status names no revision, the entities are trusted after [`REVISION_LAG`]. If the status
//! still names an older revision after [`UNCONFIRMED`], the state of that revision decides; if NSX has realized that
//! revision, a warning is logged.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{LastWrite, RouterRoutes};
use crate::clients::nsx::realization::{REVISION_LAG, Realization, RevisionStatus};
use crate::cloud::Error;
use crate::providers::vsphere::nsx::failed;
use crate::providers::vsphere::reason;

/// Delay of the first read.
const FIRST: Duration = Duration::from_millis(250);
/// Interval of the later reads.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum wait, as in the Go program.
const LIMIT: Duration = Duration::from_secs(10);

/// Time since a rewrite after which the state of an older revision decides: NSX may number revisions differently.
const UNCONFIRMED: Duration = Duration::from_secs(30);

impl RouterRoutes {
    /// Waits at most 10 s until NSX has realized the route. `revision` is the expected revision; `None` for a new
    /// route.
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

    /// Reads the realized state of `revision`, or of the route if `revision` is `None`. Sets `revision` to `None` if
    /// NSX returns the state without a revision.
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
        // If NSX names no revision, the state may belong to the previous revision.
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
