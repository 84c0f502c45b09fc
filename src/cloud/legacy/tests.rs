//! Tests of the adapter with a scripted provider of the older contract. The ids are those of the upstream test vectors.

use super::*;
use crate::cloud::presence::Presence;
use crate::cloud::reason;
use k8s_openapi::api::core::v1::NodeAddress;
use k8s_openapi::api::core::v1::NodeSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::Duration;

/// A scripted answer. The errors of the contract cannot be cloned, so each call builds its own from this type.
#[derive(Clone)]
enum Answer<T> {
    Ok(T),
    InstanceNotFound,
    NotImplemented,
    RetryAfter(u64),
    Failed(&'static str),
}

impl<T: Clone> Answer<T> {
    fn give(&self) -> Result<T, Error> {
        match self {
            Answer::Ok(value) => Ok(value.clone()),
            Answer::InstanceNotFound => Err(Error::InstanceNotFound),
            Answer::NotImplemented => Err(Error::NotImplemented),
            Answer::RetryAfter(seconds) => {
                Err(Error::RetryAfter { message: "busy".into(), after: Duration::from_secs(*seconds) })
            }
            Answer::Failed(message) => {
                Err(Error::Unavailable { message: (*message).into(), source: Some("the cable is cut".into()) })
            }
        }
    }
}

#[derive(Clone)]
struct Old {
    id: Answer<String>,
    addresses_by_id: Answer<Vec<NodeAddress>>,
    addresses_by_name: Answer<Vec<NodeAddress>>,
    type_by_id: Answer<String>,
    type_by_name: Answer<String>,
    exists: Answer<bool>,
    shutdown: Answer<bool>,
    zone_by_id: Answer<Zone>,
    zone_by_name: Answer<Zone>,
}

#[async_trait]
impl Instances for Old {
    async fn node_addresses(&self, _: &str) -> Result<Vec<NodeAddress>, Error> {
        self.addresses_by_name.give()
    }
    async fn node_addresses_by_provider_id(&self, _: &str) -> Result<Vec<NodeAddress>, Error> {
        self.addresses_by_id.give()
    }
    async fn instance_id(&self, _: &str) -> Result<String, Error> {
        self.id.give()
    }
    async fn instance_type(&self, _: &str) -> Result<String, Error> {
        self.type_by_name.give()
    }
    async fn instance_type_by_provider_id(&self, _: &str) -> Result<String, Error> {
        self.type_by_id.give()
    }
    async fn instance_exists_by_provider_id(&self, _: &str) -> Result<bool, Error> {
        self.exists.give()
    }
    async fn instance_shutdown_by_provider_id(&self, _: &str) -> Result<bool, Error> {
        self.shutdown.give()
    }
}

#[async_trait]
impl Zones for Old {
    async fn zone_by_provider_id(&self, _: &str) -> Result<Zone, Error> {
        self.zone_by_id.give()
    }
    async fn zone_by_node_name(&self, _: &str) -> Result<Zone, Error> {
        self.zone_by_name.give()
    }
}

fn a3() -> Vec<NodeAddress> {
    [("Hostname", "node0.cloud.internal"), ("InternalIP", "10.0.0.1"), ("ExternalIP", "132.143.154.163")]
        .map(|(type_, address)| NodeAddress { type_: type_.into(), address: address.into() })
        .to_vec()
}

fn good() -> Old {
    let zone = Zone { failure_domain: "us-west-1a".into(), region: "us-west".into() };
    Old {
        id: Answer::Ok("12345".into()),
        addresses_by_id: Answer::Ok(a3()),
        addresses_by_name: Answer::Failed("by name"),
        type_by_id: Answer::Ok("t1.micro".into()),
        type_by_name: Answer::Failed("by name"),
        exists: Answer::Ok(true),
        shutdown: Answer::Ok(false),
        zone_by_id: Answer::Ok(zone),
        zone_by_name: Answer::Failed("by name"),
    }
}

fn adapt(old: Old, with_zones: bool) -> FromInstances {
    let zones = with_zones.then(|| Arc::new(old.clone()) as Arc<dyn Zones>);
    FromInstances { provider_name: "fake", instances: Arc::new(old), zones }
}

fn node0(provider_id: &str) -> Node {
    Node {
        metadata: ObjectMeta { name: Some("node0".into()), ..ObjectMeta::default() },
        spec: Some(NodeSpec { provider_id: Some(provider_id.into()), ..NodeSpec::default() }),
        status: None,
    }
}

// vectors: N-11, N-60–N-62
#[tokio::test]
async fn metadata_is_gathered_from_both_older_traits() {
    let without_ids = Old { id: Answer::NotImplemented, ..good() };
    let not_there = Old { id: Answer::InstanceNotFound, exists: Answer::Ok(false), ..good() };
    for (id, old, node, expected) in [
        ("N-60", good(), node0(""), "fake://12345"),
        ("N-61", without_ids.clone(), node0(""), ""),
        ("N-62", without_ids, node0("fake://asdasd"), "fake://asdasd"),
        ("N-11: whether it exists is not asked", not_there, node0("test-provider-id"), "test-provider-id"),
    ] {
        let metadata = adapt(old, true).instance_metadata(&node).await.found().expect(id);
        assert_eq!((metadata.provider_id.as_str(), &metadata.node_addresses), (expected, &a3()), "{id}");
        assert_eq!((metadata.instance_type.as_str(), metadata.zone.as_str()), ("t1.micro", "us-west-1a"), "{id}");
    }
    let without_zones = adapt(good(), false).instance_metadata(&node0("")).await.found().unwrap();
    assert_eq!((without_zones.zone, without_zones.region), (String::new(), String::new()));
}

#[tokio::test]
async fn what_fails_by_provider_id_is_asked_by_name() {
    let zone = Zone { failure_domain: "z".into(), region: "r".into() };
    let old = Old {
        addresses_by_id: Answer::InstanceNotFound,
        addresses_by_name: Answer::Ok(a3()),
        type_by_id: Answer::Failed("by id"),
        type_by_name: Answer::Ok("big".into()),
        zone_by_id: Answer::Failed("by id"),
        zone_by_name: Answer::Ok(zone),
        ..good()
    };
    let metadata = adapt(old, true).instance_metadata(&node0("")).await.found().unwrap();
    assert_eq!((metadata.instance_type.as_str(), metadata.zone.as_str(), metadata.region.as_str()), ("big", "z", "r"));
    assert_eq!(metadata.node_addresses, a3());
}

#[tokio::test]
async fn no_error_becomes_absent() {
    let failed = || Answer::Failed("asking the cloud");
    for (case, old, reason) in [
        ("id not found", Old { id: Answer::InstanceNotFound, ..good() }, "InstanceNotFound"),
        ("id not implemented", Old { id: Answer::NotImplemented, ..good() }, "NotImplemented"),
        ("id empty", Old { id: Answer::Ok(String::new()), ..good() }, "CloudError"),
        ("id failed", Old { id: Answer::Failed("asking the cloud"), ..good() }, "CloudUnavailable"),
        ("exists not found", Old { exists: Answer::InstanceNotFound, ..good() }, "InstanceNotFound"),
        ("exists failed", Old { exists: failed(), ..good() }, "CloudUnavailable"),
        ("exists later", Old { exists: Answer::RetryAfter(7), ..good() }, "CloudUnavailable"),
    ] {
        let Presence::Unknown(unknown) = adapt(old, false).instance_exists(&node0("")).await else {
            panic!("{case} is not unknown")
        };
        assert_eq!(unknown.reason, reason, "{case}");
        assert_eq!(unknown.retry_after, (case == "exists later").then_some(Duration::from_secs(7)), "{case}");
    }
}

#[tokio::test]
async fn only_the_answer_no_is_a_proof_of_absence_and_names_what_is_gone() {
    let gone = Old { exists: Answer::Ok(false), ..good() };
    let Presence::Absent(proof) = adapt(gone, false).instance_exists(&node0("")).await else { panic!() };
    assert!(proof.to_string().contains("fake://12345"), "{proof}");
    assert_eq!(adapt(good(), false).instance_exists(&node0("")).await, Presence::Exists(()));
}

#[tokio::test]
async fn shutdown_that_is_not_implemented_is_unknown() {
    for (answer, expected) in [
        (Answer::NotImplemented, None),
        (Answer::Ok(false), Some(false)),
        (Answer::Ok(true), Some(true)),
        (Answer::InstanceNotFound, None),
    ] {
        let old = Old { shutdown: answer, ..good() };
        assert_eq!(adapt(old, false).instance_shutdown(&node0("")).await.found(), expected);
    }
}

#[tokio::test]
async fn two_failures_name_both_causes() {
    let old = Old { addresses_by_id: Answer::Failed("first"), addresses_by_name: Answer::Failed("second"), ..good() };
    let Presence::Unknown(unknown) = adapt(old, false).instance_metadata(&node0("")).await else { panic!() };
    for part in ["node0", "first", "second", "the cable is cut"] {
        assert!(unknown.message.contains(part), "{part} is missing: {}", unknown.message);
    }
}

// vectors: L-40, L-42, L-45, L-46
#[tokio::test]
async fn the_provider_id_is_the_nodes_else_made_of_the_instances_id() {
    let failing = |id: Answer<String>| Old { id, ..good() };
    for (id, old, present, expected) in [
        ("L-40", good(), "fake://12345", Ok("fake://12345")),
        ("L-40", failing(Answer::Failed("not asked")), "fake://12345", Ok("fake://12345")),
        ("L-42", good(), "", Ok("fake://12345")),
        ("L-45", failing(Answer::InstanceNotFound), "", Err("instance not found")),
        ("L-46 differs: without a prefix", failing(Answer::Failed("unknown error")), "", Err("unknown error")),
    ] {
        let given = adapt(old, true).provider_id(&node0(present)).await.map_err(|error| error.to_string());
        assert_eq!(given.as_deref().map_err(String::as_str), expected, "{id}");
    }
}

#[tokio::test]
async fn an_error_of_both_reads_is_of_the_kind_of_the_second() {
    let (message, after) = (|| "no".to_owned(), Duration::from_secs(7));
    let kinds: [fn(String, Duration) -> Error; 8] = [
        |_, _| Error::InstanceNotFound,
        |message, after| Error::RetryAfter { message, after },
        |message, after| Error::Pending { message, after },
        |message, after| Error::Exhausted { reason: reason::NoPermission, message, after },
        |message, _| Error::Invalid { reason: reason::NoPermission, message },
        |message, _| Error::Denied { message },
        |message, _| Error::Unavailable { message, source: None },
        |message, _| Error::Other { message, source: None },
    ];
    for kind in kinds {
        let second = kind(message(), after);
        let expected = (second.reason(), second.retry_after());
        let first = std::future::ready(Err::<(), _>(Error::other("first")));
        let error = either("x", "n", first, std::future::ready(Err(second))).await.unwrap_err();
        assert_eq!((error.reason(), error.retry_after()), expected, "{error:?}");
        assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&kind(message(), after)), "{error:?}");
    }
}
