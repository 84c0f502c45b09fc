//! The objects that a filter selects: start objects, traversals, property paths.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::fault::Fault;
use super::inventory::{Inventory, Object, Ref, Val};
use super::session::View;
use super::xml::Element;

/// The selected objects in the state of the selection.
pub(super) type Selected = BTreeMap<Ref, Arc<Object>>;

#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// Property paths by class.
    paths: Vec<(String, Vec<String>)>,
    starts: Vec<Start>,
}

#[derive(Clone, Debug)]
struct Start {
    object: Ref,
    skip: bool,
    select: Vec<usize>,
    /// Every traversal of this start object. Traversals refer to each other by index.
    traversals: Vec<Traversal>,
}

#[derive(Clone, Debug)]
struct Traversal {
    class: String,
    path: String,
    skip: bool,
    select: Vec<usize>,
}

/// Property paths of virtual machines that this fake supports.
const MACHINE_PATHS: [&str; 19] = [
    "name",
    "parent",
    "parentVApp",
    "resourcePool",
    "runtime.host",
    "runtime.powerState",
    "runtime.connectionState",
    "config.uuid",
    "config.instanceUuid",
    "summary.config.uuid",
    "summary.config.instanceUuid",
    "summary.config.template",
    "summary.config.numCpu",
    "summary.config.memorySizeMB",
    "summary.config.guestId",
    "summary.config.vmPathName",
    "guest.hostName",
    "guest.net",
    "guest.toolsRunningStatus",
];

fn is_known(class: &str, path: &str) -> bool {
    match class {
        "VirtualMachine" => MACHINE_PATHS.contains(&path) || path.starts_with("config.extraConfig[\""),
        "HostSystem" => ["name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode"].contains(&path),
        "VirtualApp" => ["name", "parent", "parentFolder"].contains(&path),
        "SessionManager" => path == "currentSession",
        "Folder" => ["name", "parent", "childEntity"].contains(&path),
        _ => ["name", "parent"].contains(&path),
    }
}

impl Spec {
    /// Parses a specification. Like real servers, it rejects unknown paths.
    pub(super) fn read(spec: &Element) -> Result<Self, Fault> {
        let mut paths = Vec::new();
        for set in spec.all("propSet") {
            let class = set.text_of("type").to_owned();
            let of_class: Vec<String> = set.all("pathSet").map(|path| path.text.clone()).collect();
            if let Some(unknown) = of_class.iter().find(|path| !is_known(&class, path)) {
                return Err(Fault::new("InvalidProperty").field("name", unknown));
            }
            paths.push((class, of_class));
        }
        let starts = spec.all("objectSet").map(Start::read).collect::<Result<_, _>>()?;
        Ok(Self { paths, starts })
    }

    /// Returns the first start object that does not exist.
    pub(super) fn missing_start(&self, inventory: &Inventory, views: &BTreeMap<Ref, View>) -> Option<&Ref> {
        let is_there = |start: &Ref| {
            start.kind == "SessionManager" || views.contains_key(start) || inventory.objects.contains_key(start)
        };
        self.starts.iter().map(|start| &start.object).find(|start| !is_there(start))
    }

    /// Returns the start objects that are not in the inventory, such as the session manager.
    pub(super) fn starts(&self) -> impl Iterator<Item = &Ref> {
        self.starts.iter().map(|start| &start.object)
    }

    /// Returns the paths to read of an object of this class.
    pub(super) fn paths_of(&self, reference: &Ref) -> Vec<&str> {
        let mut paths: Vec<&str> = Vec::new();
        for (_, of_class) in self.paths.iter().filter(|(class, _)| reference.is_a(class)) {
            paths.extend(of_class.iter().map(String::as_str));
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Returns the currently selected objects. Objects that the account may not read are left out, and so are the
    /// objects behind them.
    pub(super) fn select(&self, inventory: &Inventory, views: &BTreeMap<Ref, View>) -> Selected {
        let mut selected = Selected::new();
        for start in &self.starts {
            let mut walk = Walk { start, inventory, views, seen: HashSet::new(), selected: &mut selected };
            if !start.skip {
                walk.take(&start.object);
            }
            walk.follow(&start.object, &start.select);
        }
        selected.retain(|reference, _| !self.paths_of(reference).is_empty());
        selected
    }
}

impl Start {
    fn read(set: &Element) -> Result<Self, Fault> {
        let object = set.child("obj").map(Element::reference).unwrap_or_default();
        let mut start = Self { object, skip: set.is_true("skip"), select: Vec::new(), traversals: Vec::new() };
        let mut names = BTreeMap::new();
        let mut to_link = Vec::new();
        for select in set.all("selectSet") {
            start.declare(select, None, &mut names, &mut to_link);
        }
        for (from, name) in to_link {
            let to = *names.get(&name).ok_or_else(|| Fault::new("InvalidArgument").field("invalidProperty", &name))?;
            match from {
                Some(from) => start.traversals[from].select.push(to),
                None => start.select.push(to),
            }
        }
        Ok(start)
    }

    /// Adds a traversal and its followers. References by name are resolved when all traversals are known.
    fn declare(
        &mut self,
        select: &Element,
        from: Option<usize>,
        names: &mut BTreeMap<String, usize>,
        to_link: &mut Vec<(Option<usize>, String)>,
    ) {
        let name = select.text_of("name").to_owned();
        if select.child("path").is_none() {
            to_link.push((from, name));
            return;
        }
        let own = self.traversals.len();
        self.traversals.push(Traversal {
            class: select.text_of("type").to_owned(),
            path: select.text_of("path").to_owned(),
            skip: select.is_true("skip"),
            select: Vec::new(),
        });
        match from {
            Some(from) => self.traversals[from].select.push(own),
            None => self.select.push(own),
        }
        names.insert(name, own);
        for inner in select.all("selectSet") {
            self.declare(inner, Some(own), names, to_link);
        }
    }
}

struct Walk<'a> {
    start: &'a Start,
    inventory: &'a Inventory,
    views: &'a BTreeMap<Ref, View>,
    /// Visited steps: an object and a traversal from it.
    seen: HashSet<(Ref, usize)>,
    selected: &'a mut Selected,
}

impl Walk<'_> {
    fn take(&mut self, reference: &Ref) -> bool {
        match self.inventory.objects.get(reference) {
            Some(object) if object.is_readable => {
                self.selected.entry(reference.clone()).or_insert_with(|| Arc::clone(object));
                true
            }
            _ => false,
        }
    }

    fn follow(&mut self, from: &Ref, select: &[usize]) {
        let traversals = &self.start.traversals;
        for place in select {
            let traversal = &traversals[*place];
            if !from.is_a(&traversal.class) || !self.seen.insert((from.clone(), *place)) {
                continue;
            }
            for target in self.targets(from, &traversal.path) {
                let is_readable = self.inventory.objects.get(&target).is_some_and(|object| object.is_readable);
                if is_readable && (traversal.skip || self.take(&target)) {
                    self.follow(&target, &traversal.select);
                }
            }
        }
    }

    fn targets(&self, from: &Ref, path: &str) -> Vec<Ref> {
        if let Some(view) = self.views.get(from).filter(|_| path == "view") {
            return view.members(self.inventory);
        }
        match self.inventory.objects.get(from) {
            Some(object) if !object.hidden.contains(path) => {
                object.properties.get(path).map_or(Vec::new(), |value: &Val| value.refs().to_vec())
            }
            _ => Vec::new(),
        }
    }
}
