//! The objects of the fake's inventory, with the watched properties.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::xml::escape;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ref {
    pub(super) kind: String,
    pub(super) id: String,
}

impl Ref {
    pub(super) fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.to_owned(), id: id.to_owned() }
    }

    /// Returns an element of this name with both types, as real servers write it.
    pub(super) fn element(&self, name: &str) -> String {
        format!("<{name} type=\"{}\" xsi:type=\"ManagedObjectReference\">{}</{name}>", self.kind, escape(&self.id))
    }

    /// Returns true if the object is of this class or of a subclass.
    pub(super) fn is_a(&self, class: &str) -> bool {
        let is_entity = !matches!(self.kind.as_str(), "ListView" | "SessionManager");
        match class {
            "ManagedEntity" => is_entity,
            "ComputeResource" => self.kind.ends_with("ComputeResource"),
            "ResourcePool" => matches!(self.kind.as_str(), "ResourcePool" | "VirtualApp"),
            "View" => self.kind.ends_with("View"),
            class => self.kind == class,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    /// A scalar and its XML type.
    Scalar(&'static str, String),
    Ref(Ref),
    Refs(Vec<Ref>),
    /// `guest.net`: the addresses of each interface.
    Nics(Vec<Vec<String>>),
    OptionValue(String, String),
}

impl Val {
    pub(super) fn text(value: &str) -> Self {
        Val::Scalar("xsd:string", value.to_owned())
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Val::Scalar(_, text) => text,
            _ => "",
        }
    }

    pub(super) fn refs(&self) -> &[Ref] {
        match self {
            Val::Ref(reference) => std::slice::from_ref(reference),
            Val::Refs(references) => references,
            _ => &[],
        }
    }

    pub(super) fn element(&self) -> String {
        match self {
            Val::Scalar(kind, text) => format!("<val xsi:type=\"{kind}\">{}</val>", escape(text)),
            Val::Ref(reference) => reference.element("val"),
            Val::Refs(references) => {
                let items: String = references.iter().map(|item| item.element("ManagedObjectReference")).collect();
                format!("<val xsi:type=\"ArrayOfManagedObjectReference\">{items}</val>")
            }
            Val::Nics(nics) => {
                let items: String = nics.iter().enumerate().map(|(index, nic)| nic_element(index, nic)).collect();
                format!("<val xsi:type=\"ArrayOfGuestNicInfo\">{items}</val>")
            }
            Val::OptionValue(key, value) => format!(
                "<val xsi:type=\"OptionValue\"><key xsi:type=\"xsd:string\">{}</key>\
                 <value xsi:type=\"xsd:string\">{}</value></val>",
                escape(key),
                escape(value)
            ),
        }
    }
}

fn nic_element(index: usize, addresses: &[String]) -> String {
    let flat: String =
        addresses.iter().map(|ip| format!("<ipAddress xsi:type=\"xsd:string\">{ip}</ipAddress>")).collect();
    let configured: String = addresses
        .iter()
        .map(|ip| {
            format!(
                "<ipAddress xsi:type=\"NetIpConfigInfoIpAddress\"><ipAddress>{ip}</ipAddress>\
                 <prefixLength>24</prefixLength><state>preferred</state></ipAddress>"
            )
        })
        .collect();
    format!(
        "<GuestNicInfo xsi:type=\"GuestNicInfo\"><network xsi:type=\"xsd:string\">VM Network</network>{flat}\
         <macAddress xsi:type=\"xsd:string\">00:50:56:00:00:{index:02x}</macAddress>\
         <connected xsi:type=\"xsd:boolean\">true</connected><deviceConfigId xsi:type=\"xsd:int\">{}</deviceConfigId>\
         <ipConfig xsi:type=\"NetIpConfigInfo\">{configured}</ipConfig></GuestNicInfo>",
        4000 + index
    )
}

/// An object. States that were reported to clients share it, so that a change makes a copy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub(super) reference: Ref,
    pub(super) properties: BTreeMap<String, Val>,
    /// Whether the account may read the object.
    pub(super) is_readable: bool,
    /// Property paths that the account may not read.
    pub(super) hidden: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    pub(super) objects: BTreeMap<Ref, Arc<Object>>,
    /// Machines by BIOS or instance UUID. Built at the first use, and dropped at every change.
    by_uuid: OnceCell<HashMap<String, Vec<Ref>>>,
}

impl Inventory {
    pub(super) fn insert(&mut self, reference: Ref, properties: BTreeMap<String, Val>) {
        self.by_uuid.take();
        let object = Object { reference: reference.clone(), properties, is_readable: true, hidden: BTreeSet::new() };
        self.objects.insert(reference, Arc::new(object));
    }

    /// Adds a new object with a name below `parent`.
    pub(super) fn add(&mut self, kind: &str, id: &str, name: &str, parent: Option<&Ref>) -> Ref {
        let mut properties = BTreeMap::from([("name".to_owned(), Val::text(name))]);
        properties.extend(parent.map(|parent| ("parent".to_owned(), Val::Ref(parent.clone()))));
        let reference = Ref::new(kind, id);
        self.insert(reference.clone(), properties);
        if let Some(folder) = parent.filter(|parent| parent.kind == "Folder") {
            let object = self.change(folder);
            let mut children = object.properties.get("childEntity").map_or(Vec::new(), |held| held.refs().to_vec());
            children.push(reference.clone());
            object.properties.insert("childEntity".to_owned(), Val::Refs(children));
        }
        reference
    }

    pub(super) fn change(&mut self, reference: &Ref) -> &mut Object {
        self.by_uuid.take();
        let object = self.objects.get_mut(reference).unwrap_or_else(|| panic!("the fake has no {reference:?}"));
        Arc::make_mut(object)
    }

    pub(super) fn property(&self, reference: &Ref, path: &str) -> Option<&Val> {
        self.objects.get(reference)?.properties.get(path)
    }

    /// Returns the object of this class with this name.
    pub(super) fn named(&self, kind: &str, name: &str) -> Ref {
        let has_name = |object: &&Arc<Object>| {
            object.reference.kind == kind && object.properties.get("name").is_some_and(|held| held.as_text() == name)
        };
        let found = self.objects.values().find(has_name);
        found.unwrap_or_else(|| panic!("the fake has no {kind} named {name}")).reference.clone()
    }

    /// Returns the machines with this BIOS or instance UUID, including removed ones.
    pub(super) fn with_uuid(&self, uuid: &str) -> &[Ref] {
        let by_uuid = self.by_uuid.get_or_init(|| {
            let mut found: HashMap<String, Vec<Ref>> = HashMap::new();
            for object in self.objects.values().filter(|object| object.reference.kind == "VirtualMachine") {
                for path in ["config.uuid", "config.instanceUuid"] {
                    if let Some(uuid) = object.properties.get(path) {
                        let machines = found.entry(uuid.as_text().to_ascii_lowercase()).or_default();
                        if !machines.contains(&object.reference) {
                            machines.push(object.reference.clone());
                        }
                    }
                }
            }
            found
        });
        by_uuid.get(&uuid.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_below(&self, reference: &Ref, above: &Ref) -> bool {
        let mut at = reference;
        // A test may have made a cycle, so the number of steps is limited.
        for _ in 0..self.objects.len() {
            let Some(Val::Ref(parent)) = self.property(at, "parent") else { return false };
            if parent == above {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Gives every object another id, as in a newly installed vCenter. No later object gets one of these ids.
    pub(super) fn renumber(&mut self) {
        let renamed = |reference: &Ref| Ref { id: format!("{}-9", reference.id), ..reference.clone() };
        self.by_uuid.take();
        let objects = std::mem::take(&mut self.objects);
        for object in objects.into_values() {
            let mut object = Object::clone(&object);
            if object.reference.id != "group-d1" {
                object.reference = renamed(&object.reference);
            }
            for value in object.properties.values_mut() {
                match value {
                    Val::Ref(reference) if reference.id != "group-d1" => *reference = renamed(reference),
                    Val::Refs(references) => references.iter_mut().for_each(|one| *one = renamed(one)),
                    _ => {}
                }
            }
            self.objects.insert(object.reference.clone(), Arc::new(object));
        }
    }
}
