//! Reads the objects of one Service again, for the command `explain --fresh`. The cache stays as it is, so that the
//! load balancers decide with the same data as without the command.

use std::net::IpAddr;

use super::NsxLoadBalancers;
use super::resource::{Resource, ServiceResources};
use crate::base::error_chain::chain;

/// Maximum number of objects that are read. Each is a call.
const MAX_OBJECTS: usize = 40;

/// The objects of one Service, read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReading {
    /// The objects that the cache has.
    pub objects: Vec<ObjectReading>,
    /// The number of objects that were not read, because the Service has too many.
    pub left_out: usize,
}

/// One object, read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReading {
    /// The kind, such as `virtual server`.
    pub kind: &'static str,
    /// The path.
    pub path: String,
    /// What differs from the cache.
    ///
    /// # Errors
    /// The reason why the object was not read.
    pub result: Result<Vec<ResourceDifference>, String>,
}

/// A property that NSX has otherwise than the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDifference {
    /// The property, such as `address`.
    pub property: &'static str,
    /// The cached value.
    pub cached: String,
    /// The value in NSX.
    pub read: String,
}

impl NsxLoadBalancers {
    /// Reads the objects again that the cache has of this Service (`namespace/name`), one after the other. Makes a call
    /// for each; the caller limits the time.
    pub async fn read_objects_of(&self, service: &str) -> ServiceReading {
        let before = self.resources.of_service(service);
        let mut objects = Vec::new();
        for resource in before.iter().take(MAX_OBJECTS) {
            let path = resource.tags.path.to_string();
            let read = self.backend.read_object(resource.kind, &path).await;
            // A write or a list may have changed the cache during the call.
            let after = self.resources.of_service(service);
            let result = read.map_err(|error| chain(&error)).map(|object| {
                let layout = self.layout(None);
                let read = object.and_then(|object| Resource::read(resource.kind, &object, &layout));
                changes(resource, &after, read.as_ref())
            });
            objects.push(ObjectReading { kind: resource.kind.name(), path, result });
        }
        ServiceReading { left_out: before.0.len() - objects.len(), objects }
    }
}

/// Compares a read with the cached object before and after the read. An object that is as one of them has no change.
fn changes(before: &Resource, after: &ServiceResources, read: Option<&Resource>) -> Vec<ResourceDifference> {
    let first = differences(Some(before), read);
    if first.is_empty() || differences(after.at(&before.tags.path), read).is_empty() {
        return Vec::new();
    }
    first
}

/// Compares the properties that explanations show, and those that show the owner.
fn differences(cached: Option<&Resource>, read: Option<&Resource>) -> Vec<ResourceDifference> {
    let (Some(cached), Some(read)) = (cached, read) else {
        let text = |resource: Option<&Resource>| if resource.is_some() { "exists" } else { "does not exist" };
        let existence =
            ResourceDifference { property: "object", cached: text(cached).to_owned(), read: text(read).to_owned() };
        return (cached.is_some() != read.is_some()).then_some(existence).into_iter().collect();
    };
    let mut differences = Vec::new();
    let mut compare = |property: &'static str, cached: String, read: String| {
        if cached != read {
            differences.push(ResourceDifference { property, cached, read });
        }
    };
    // The address of an allocation is cached from another read.
    if cached.address.is_some() && read.address.is_some() {
        compare("address", shown(cached.address), shown(read.address));
    }
    compare("port", shown(cached.spec.number), shown(read.spec.number));
    compare("node port", shown(cached.spec.node_port), shown(read.spec.node_port));
    let members = |resource: &Resource| {
        let members: Vec<String> = resource.spec.members.iter().map(IpAddr::to_string).collect();
        if members.is_empty() { "none".to_owned() } else { members.join(" ") }
    };
    compare("members", members(cached), members(read));
    compare("Service", cached.tags.service.to_string(), read.tags.service.to_string());
    compare("UID of the Service", shown(cached.tags.service_uid.as_ref()), shown(read.tags.service_uid.as_ref()));
    compare("UID of the cluster", shown(cached.tags.cluster_uid.as_ref()), shown(read.tags.cluster_uid.as_ref()));
    differences
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::layout::ObjectKind;
    use super::super::resource::{OwnerTags, ResourceSpec};
    use super::*;

    fn pool(members: &[&str], uid: Option<&str>) -> Resource {
        let tags = OwnerTags { path: "/p".into(), service_uid: uid.map(Into::into), ..OwnerTags::default() };
        let members = members.iter().map(|address| address.parse().unwrap()).collect();
        Resource {
            kind: ObjectKind::Pool,
            tags,
            address: None,
            address_pool: Box::default(),
            references: Vec::new(),
            spec: ResourceSpec { members, ..ResourceSpec::default() },
        }
    }

    fn text(differences: &[ResourceDifference]) -> Vec<String> {
        let text = |one: &ResourceDifference| format!("{}: {} -> {}", one.property, one.cached, one.read);
        differences.iter().map(text).collect()
    }

    #[test]
    fn an_object_differs_in_its_existence_its_members_and_its_owner() {
        let cached = pool(&["10.0.0.1"], Some("u"));
        for (read, expected) in [
            (Some(cached.clone()), &[][..]),
            (None, &["object: exists -> does not exist"]),
            (Some(pool(&["10.0.0.1", "10.0.0.2"], Some("u"))), &["members: 10.0.0.1 -> 10.0.0.1 10.0.0.2"]),
            (Some(pool(&[], None)), &["members: 10.0.0.1 -> none", "UID of the Service: u -> none"]),
        ] {
            let unchanged = ServiceResources(vec![cached.clone()]);
            assert_eq!(text(&changes(&cached, &unchanged, read.as_ref())), expected, "{read:?}");
        }
    }

    #[test]
    fn what_the_cache_has_learnt_during_the_read_is_no_difference() {
        let before = pool(&["10.0.0.1"], None);
        let written = pool(&["10.0.0.2"], None);
        let after = ServiceResources(vec![written.clone()]);
        assert_eq!(changes(&before, &after, Some(&written)), []);
        assert_eq!(changes(&before, &ServiceResources::default(), None), [], "it was deleted during the read");
        assert_eq!(changes(&before, &after, None).len(), 1);
    }

    #[test]
    fn an_address_that_a_read_does_not_have_is_not_compared() {
        let mut allocation = pool(&[], None);
        allocation.address = Some("192.0.2.5".parse().unwrap());
        let mut read = pool(&[], None);
        assert_eq!(differences(Some(&allocation), Some(&read)), []);
        read.address = Some("192.0.2.6".parse().unwrap());
        assert_eq!(text(&differences(Some(&allocation), Some(&read))), ["address: 192.0.2.5 -> 192.0.2.6"]);
    }
}
