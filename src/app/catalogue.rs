//! Names of the controllers and cloud providers, used to check flags before `app` builds any part.

use super::selection;

/// Name of the cloud provider for vCenter.
pub const VSPHERE: &str = "vsphere";

/// Name of the Go program's cloud provider for a Supervisor. This program lacks that provider.
pub const VSPHERE_PARAVIRTUAL: &str = "vsphere-paravirtual";

/// The controllers of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// Initializes Nodes and keeps them up to date.
    Node,
    /// Deletes and taints Nodes.
    NodeLifecycle,
    /// Creates routes to the Pods of Nodes.
    Route,
    /// Creates load balancers for Services.
    Service,
}

/// An entry of [`CONTROLLERS`].
#[derive(Debug)]
pub struct Controller {
    /// The name in `--controllers`, in logs and in metrics.
    pub name: &'static str,
    /// The older name, which `--controllers` accepts too. The label in `running_managed_controllers` is this name.
    pub alias: &'static str,
    /// The name of the service account with `--use-service-account-credentials`, and a part of the user agent.
    pub client_name: &'static str,
    /// The kind of controller to build.
    pub kind: ControllerKind,
}

/// The node controller's name.
pub const NODE: &str = "cloud-node-controller";

/// The node-lifecycle controller's name.
pub const NODE_LIFECYCLE: &str = "cloud-node-lifecycle-controller";

/// The service controller's name.
pub const SERVICE: &str = "service-lb-controller";

/// The route controller's name.
pub const ROUTE: &str = "node-route-controller";

/// All controllers that can be selected, with the names of the Go program.
pub const CONTROLLERS: &[Controller] = &[
    Controller { name: NODE, alias: "cloud-node", client_name: "node-controller", kind: ControllerKind::Node },
    Controller {
        name: NODE_LIFECYCLE,
        alias: "cloud-node-lifecycle",
        client_name: "node-controller",
        kind: ControllerKind::NodeLifecycle,
    },
    Controller { name: ROUTE, alias: "route", client_name: "route-controller", kind: ControllerKind::Route },
    Controller { name: SERVICE, alias: "service", client_name: "service-controller", kind: ControllerKind::Service },
];

/// Returns the controllers that `--controllers` turns on, in the order of [`CONTROLLERS`].
///
/// The first mention of a name decides. A controller that the list omits runs if the list has `*`, since all
/// controllers are on by default.
///
/// # Errors
/// The unknown names, without `-`.
pub fn chosen_controllers(list: &[String]) -> Result<Vec<&'static Controller>, Vec<String>> {
    let aliases: Vec<_> = CONTROLLERS.iter().map(|controller| (controller.alias, controller.name)).collect();
    let known: Vec<_> = CONTROLLERS.iter().map(|controller| controller.name).collect();
    let list = selection::resolved(list, &aliases);
    let unknown = selection::unknown(&list, &known);
    if !unknown.is_empty() {
        return Err(unknown.into_iter().map(str::to_owned).collect());
    }
    let is_on = |controller: &&Controller| selection::is_selected(controller.name, &list, true);
    Ok(CONTROLLERS.iter().filter(is_on).collect())
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

    // vectors: O-27
    #[test]
    fn o_27_names_are_unique_and_well_formed() {
        let is_letter = |char: char| char.is_ascii_lowercase();
        let is_word = |name: &str| {
            name.starts_with(is_letter)
                && name.ends_with(is_letter)
                && name.chars().all(|char| is_letter(char) || char == '-')
        };
        for controller in CONTROLLERS {
            assert!(is_word(controller.name) && controller.name.ends_with("-controller"), "{controller:?}");
            assert!(is_word(controller.alias) && is_word(controller.client_name), "{controller:?}");
        }
        let mut names: Vec<_> = CONTROLLERS.iter().flat_map(|controller| [controller.name, controller.alias]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * CONTROLLERS.len());
    }
}
