//! Changes without a request, as other programs and administrators make them.
//!
//! Each is one version in the history, in the name of the user in the argument, and happens between two requests, never
//! within one.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::FakeNsx;
use super::kinds::Kind;
use super::schema::take;
use super::store::{Author, ObjectContent};
use super::world::World;

impl FakeNsx {
    /// Creates or replaces an object in the name of a user, without a request and without checks: objects of other
    /// programs can be invalid, too.
    ///
    /// # Panics
    ///
    /// If the path is of an unknown type, or the body is not an object.
    pub fn put_by_hand(&self, user: &str, path: &str, body: Value) {
        self.shared.world().put_by_hand(user, path, &body);
    }

    /// Creates an allocation with this address of its pool, even if the address is reserved after a release. The object
    /// does not contain the address, as if a request had not asked for one.
    ///
    /// # Panics
    ///
    /// If the pool does not contain the address, or another allocation has it.
    pub fn put_allocation_by_hand(&self, user: &str, path: &str, body: Value, address: IpAddr) {
        let mut world = self.shared.world();
        let World { store, pools, .. } = &mut *world;
        if let Err(reason) = pools.assign_by_hand(store, path, address) {
            drop(world);
            panic!("{path} cannot have {address}: {reason}");
        }
        world.put_by_hand(user, path, &body);
    }

    /// Changes an object in the name of a user, without a request. No request comes between the read and the write.
    /// `change` must not use the fake.
    ///
    /// # Panics
    ///
    /// If the object does not exist.
    pub fn change_by_hand(&self, user: &str, path: &str, change: impl FnOnce(&mut Value)) {
        let is_changed = self.change_if(user, path, |_| true, change);
        assert!(is_changed, "{path} is not there");
    }

    /// Deletes an object in the name of a user, without a request, and even if other objects refer to it. Returns true
    /// if it existed.
    pub fn delete_by_hand(&self, user: &str, path: &str) -> bool {
        let mut world = self.shared.world();
        let removed = world.store.remove(path, Author { user, is_principal: false, request: None });
        let World { store, pools, over_capacity, .. } = &mut *world;
        over_capacity.remove(path);
        pools.release(store, path);
        removed.is_some()
    }

    /// Deletes an object like a DELETE with `force=true`: objects that refer to it keep their reference, and it is
    /// marked first if [`super::Deletion`] says so. Returns true if it existed.
    pub fn force_delete_by_hand(&self, user: &str, path: &str) -> bool {
        let mut world = self.shared.world();
        world.purge();
        let is_there = world.store.get(path).is_some();
        if is_there {
            world.end(path, Author { user, is_principal: false, request: None });
        }
        is_there
    }

    /// Removes the members with this address from a pool. Returns true if there was one.
    pub fn remove_member_by_hand(&self, user: &str, pool: &str, address: IpAddr) -> bool {
        let is_it = |member: &Value| member["ip_address"].as_str().and_then(|text| text.parse().ok()) == Some(address);
        let has_member = |object: &Value| object["members"].as_array().is_some_and(|members| members.iter().any(is_it));
        self.change_if(user, pool, has_member, |object| {
            if let Some(members) = object["members"].as_array_mut() {
                members.retain(|member| !is_it(member));
            }
        })
    }

    /// Sets `enabled` of a virtual server or of a load balancer service. Returns true if that changed it.
    pub fn enable_by_hand(&self, user: &str, path: &str, is_enabled: bool) -> bool {
        self.change_if(
            user,
            path,
            |object| object["enabled"] != is_enabled,
            |object| {
                object["enabled"] = json!(is_enabled);
            },
        )
    }

    /// Changes an object if it exists and `applies` is true for it. Returns true if it did.
    fn change_if(
        &self,
        user: &str,
        path: &str,
        applies: impl FnOnce(&Value) -> bool,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let mut world = self.shared.world();
        world.purge();
        let object = world.store.get(path).map(|stored| world.read(stored, ""));
        let Some(mut object) = object.filter(applies) else { return false };
        change(&mut object);
        world.put_by_hand(user, path, &object);
        true
    }
}

impl World {
    fn put_by_hand(&mut self, user: &str, path: &str, body: &Value) {
        let kind = Kind::of_path(path).unwrap_or_else(|| panic!("{path} is of no known type"));
        let Value::Object(body) = body else { panic!("{body} is no object") };
        let mut checked = take(kind, body);
        self.place(path, &mut checked.body);
        let wish = checked.body.get("allocation_ip").and_then(Value::as_str).and_then(|text| text.parse().ok());
        self.purge();
        let is_principal = self.access.principals.values().any(|principal| principal == user);
        let content = ObjectContent {
            kind,
            resource_type: checked.variant.name,
            body: checked.body,
            references: checked.references,
        };
        self.store.write(path, content, Author { user, is_principal, request: None });
        self.allocate(kind, path, wish);
    }
}
