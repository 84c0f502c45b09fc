//! Patches of objects with optimistic locking: each patch names the version that it is based on, and a conflict leads
//! to another attempt.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::call::{CALL_LIMIT, CallError, limited};
use crate::base::error_chain::chain;

/// The field manager of all patches.
pub const FIELD_MANAGER: &str = "vsphere-cloud-controller-manager";

/// Maximum number of attempts. A conflict in the last attempt is an error.
const ATTEMPTS: u32 = 5;

/// Shortest pause between a conflict and the next attempt. The longest pause is twice as long.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// Counts an attempt of a write that failed with `error`. Waits after a conflict. Returns whether another attempt may
/// follow: after a conflict, except after the fifth attempt. Mirrors `RetryOnConflict` of client-go (`util/retry/util.go`). Before the next
/// attempt, the caller reads the object live, because a stale cache may have caused the conflict, and plans again.
pub async fn permits_retry(attempts: &mut u32, error: &CallError) -> bool {
    *attempts += 1;
    if !error.is_conflict() || *attempts == ATTEMPTS {
        return false;
    }
    tracing::debug!(attempts, "{}", chain(error));
    tokio::time::sleep(CONFLICT_PAUSE.mul_f64(1.0 + fastrand::f64())).await;
    true
}

/// Returns the metadata of a patch that fails if the object was changed or replaced: UID and resourceVersion.
pub fn preconditions(metadata: &ObjectMeta) -> Map<String, Value> {
    let mut preconditions = Map::new();
    preconditions.insert("uid".into(), json!(metadata.uid));
    preconditions.insert("resourceVersion".into(), json!(metadata.resource_version));
    preconditions
}

/// Applies a strategic merge patch to the object, except its status. `what` is as in [`limited`]. The metadata of
/// `patch` must contain the [`preconditions`].
pub async fn patch<K>(what: &str, api: &Api<K>, name: &str, patch: Value) -> Result<K, CallError>
where
    K: Clone + DeserializeOwned + Debug,
{
    limited(what, CALL_LIMIT, api.patch(name, &parameters(), &Patch::Strategic(patch))).await
}

/// Does the same as [`patch`] with the status and the metadata of the object.
pub async fn patch_status<K>(what: &str, api: &Api<K>, name: &str, patch: Value) -> Result<K, CallError>
where
    K: Clone + DeserializeOwned + Debug,
{
    limited(what, CALL_LIMIT, api.patch_status(name, &parameters(), &Patch::Strategic(patch))).await
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use tokio::time::Instant;

    fn refused(code: u16) -> CallError {
        let status = Status { code, ..Status::default() };
        CallError::Refused("patch node a".to_owned(), Box::new(status))
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_conflict_is_retried_and_five_attempts_are_made() {
        for (case, answers, expected, attempts) in [
            ("it works", vec![Ok(())], Ok(()), 1),
            ("two conflicts", vec![Err(409), Err(409), Ok(())], Ok(()), 3),
            ("a refusal", vec![Err(403), Ok(())], Err(Some(403)), 1),
            ("a conflict and a refusal", vec![Err(409), Err(404), Ok(())], Err(Some(404)), 2),
            ("conflicts without end", vec![Err(409); 9], Err(Some(409)), 5),
        ] {
            let (began, mut failed, mut made) = (Instant::now(), 0, 0);
            let last = loop {
                let answer = answers[made].map_err(refused);
                made += 1;
                match answer {
                    Err(error) if permits_retry(&mut failed, &error).await => {}
                    answer => break answer,
                }
            };
            assert_eq!((last.map_err(|error| error.code()), made), (expected, attempts), "{case}");
            let shortest = CONFLICT_PAUSE * (made as u32 - 1);
            // The clock of tokio counts whole milliseconds, so each pause may be one longer.
            let longest = shortest * 2 + Duration::from_millis(5);
            assert!((shortest..=longest).contains(&began.elapsed()), "{case}: {:?}", began.elapsed());
        }
    }
}
