//! TWO TABLES: the controllers and the cloud providers of this program.

use super::parts::Parts;
use super::settings::Settings;
use super::stages::Stages;
use super::{Error, node_controller, node_lifecycle_controller, vsphere};
use crate::cloud::CloudProvider;
use std::fmt;
use std::sync::Arc;

/// Starts a controller's tasks.
pub(super) type StartController = fn(&Settings, &Parts, Arc<dyn CloudProvider>, &mut Stages) -> Result<(), Error>;

/// Builds a cloud provider and starts its background work.
pub(super) type BuildProvider = fn(&Settings, &Parts, &mut Stages) -> Result<Arc<dyn CloudProvider>, Error>;

/// A controller of the table.
pub struct Controller {
    /// The name in `--controllers`, in logs and in metrics.
    pub name: &'static str,
    /// The older name, accepted in `--controllers` as well.
    pub alias: &'static str,
    /// Whether `*` includes it.
    pub is_on_by_default: bool,
    /// Nothing while this program only knows the Go program's name for it.
    pub(super) start: Option<StartController>,
}

/// The node controller's name.
pub const NODE: &str = "cloud-node-controller";

/// The node-lifecycle controller's name.
pub const NODE_LIFECYCLE: &str = "cloud-node-lifecycle-controller";

/// All controllers that can be asked for; names as in the Go program.
pub const CONTROLLERS: &[Controller] = &[
    Controller { name: NODE, alias: "cloud-node", is_on_by_default: true, start: Some(node_controller::start) },
    Controller {
        name: NODE_LIFECYCLE,
        alias: "cloud-node-lifecycle",
        is_on_by_default: true,
        start: Some(node_lifecycle_controller::start),
    },
    Controller { name: "node-route-controller", alias: "route", is_on_by_default: true, start: None },
    Controller { name: "service-lb-controller", alias: "service", is_on_by_default: true, start: None },
];

/// A cloud provider of the table.
pub struct Provider {
    /// The name in `--cloud-provider`.
    pub name: &'static str,
    /// Nothing while this program only knows the Go program's name for it.
    pub(super) build: Option<BuildProvider>,
}

/// All cloud providers that can be asked for.
pub const PROVIDERS: &[Provider] =
    &[Provider { name: "vsphere", build: Some(vsphere::build) }, Provider { name: "vsphere-paravirtual", build: None }];

/// The controllers that the list of `--controllers` turns on, in the order of the table.
///
/// The first mention of a name decides; what is not mentioned runs if `*` is in the list and it is on by default.
///
/// # Errors
/// The names, as typed without `-`, that no controller has.
pub fn chosen_controllers(list: &[String]) -> Result<Vec<&'static Controller>, Vec<String>> {
    let names = list.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    let wrong: Vec<_> = names
        .map(|item| item.strip_prefix('-').unwrap_or(item))
        .filter(|name| *name != "*" && !CONTROLLERS.iter().any(|controller| controller.is_called(name)))
        .map(str::to_owned)
        .collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(CONTROLLERS.iter().filter(|controller| controller.is_chosen(list)).collect())
}

/// By its name.
impl fmt::Debug for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// By its name.
impl fmt::Debug for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Controller {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias == name
    }

    fn is_chosen(&self, list: &[String]) -> bool {
        let first_mention = list.iter().map(|item| item.trim()).find_map(|item| match item.strip_prefix('-') {
            Some(name) => self.is_called(name).then_some(false),
            None => self.is_called(item).then_some(true),
        });
        first_mention.unwrap_or(self.is_on_by_default && list.iter().any(|item| item.trim() == "*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_controllers_is_read_as_in_the_go_program() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["*"], &["cloud-node", "cloud-node-lifecycle", "route", "service"]),
            (&["*", "-route", "-service-lb-controller"], &["cloud-node", "cloud-node-lifecycle"]),
            (&["cloud-node-controller"], &["cloud-node"]),
            (&["-cloud-node", "cloud-node-controller", "*", "-route", "-service"], &["cloud-node-lifecycle"]),
            (&["cloud-node", "-cloud-node"], &["cloud-node"]),
            (&["-cloud-node"], &[]),
            (&[""], &[]),
            (&[], &[]),
        ];
        for (list, expected) in cases {
            let list: Vec<_> = list.iter().map(|&name| name.to_owned()).collect();
            let chosen: Vec<_> = chosen_controllers(&list).unwrap().iter().map(|controller| controller.alias).collect();
            assert_eq!(chosen, *expected, "{list:?}");
        }
    }

    #[test]
    fn all_unknown_names_are_told_without_their_sign() {
        let list = ["*", "-nodes", "cloud-node", "ipam"].map(str::to_owned);
        assert_eq!(chosen_controllers(&list).unwrap_err(), ["nodes".to_owned(), "ipam".to_owned()]);
    }

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut names: Vec<_> = CONTROLLERS.iter().flat_map(|controller| [controller.name, controller.alias]).collect();
        assert!(CONTROLLERS.iter().all(|controller| controller.name.ends_with("-controller")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * CONTROLLERS.len());
    }
}
