//! Reads the Lease without competing for it, for commands.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};

use super::LeaseStatus;
use super::record::holder;
use crate::base::error_chain::chain;
use crate::kubernetes::call::get_opt;

/// Time limit of the read.
const LIMIT: Duration = Duration::from_secs(5);

/// The Lease at the moment of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionReading {
    /// The holder.
    pub status: LeaseStatus,
    /// Time at which the Lease ends unless its holder renews it, by the clock of the holder; `None` without a holder,
    /// or if the record has no such time.
    pub expiry: Option<Timestamp>,
}

/// Reads the Lease; `None` if it does not exist.
///
/// # Errors
/// The API server did not return it, for this reason.
pub async fn read_lease(client: &Client, namespace: &str, name: &str) -> Result<Option<ElectionReading>, String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let what = format!("read lease {namespace}/{name}");
    let lease = get_opt(&what, LIMIT, &api, name).await.map_err(|error| chain(&error))?;
    Ok(lease.map(|lease| reading_of(&lease.spec.unwrap_or_default())))
}

fn reading_of(spec: &LeaseSpec) -> ElectionReading {
    let holder = holder(spec).map(str::to_owned);
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let lasting = spec.lease_duration_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
    let expiry = renewed.zip(lasting).and_then(|(renewed, lasting)| renewed.checked_add(lasting).ok());
    let acquired = spec.acquire_time.as_ref().map(|time| time.0);
    let status = LeaseStatus { holder, acquired, ..LeaseStatus::default() };
    ElectionReading { expiry: expiry.filter(|_| status.holder.is_some()), status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    #[test]
    fn a_lease_ends_its_duration_after_its_renewal_and_one_without_holder_has_no_end() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let spec = LeaseSpec {
            holder_identity: Some("cp-1_8a7e".to_owned()),
            renew_time: Some(MicroTime(time("2026-11-24T03:12:40Z"))),
            acquire_time: Some(MicroTime(time("2026-11-24T01:00:00Z"))),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        let reading = reading_of(&spec);
        assert_eq!(reading.status.holder.as_deref(), Some("cp-1_8a7e"));
        assert_eq!(reading.status.acquired, Some(time("2026-11-24T01:00:00Z")));
        assert_eq!(reading.expiry, Some(time("2026-11-24T03:12:55Z")));
        let released = LeaseSpec { holder_identity: Some(String::new()), ..spec.clone() };
        assert_eq!((reading_of(&released).status.holder, reading_of(&released).expiry), (None, None));
        let endless = LeaseSpec { lease_duration_seconds: None, ..spec };
        assert_eq!(reading_of(&endless).expiry, None);
    }
}
