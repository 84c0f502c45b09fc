//! Every block of commands on the pages, in the order of the book, and the journeys that run it.

/// A page with its sections, and the journeys that run each block of commands below a heading.
pub type Page = (&'static str, &'static [(&'static str, &'static [By])]);

/// The journeys that run a block.
#[derive(Debug)]
pub enum By {
    /// These journeys run the block.
    Journeys(&'static [&'static str]),
    /// No journey runs the block, for this reason.
    Nobody(&'static str),
}

pub const NEW_CLUSTER: &str = "new cluster";
pub const RKE2: &str = "rke2";
pub const K3S: &str = "k3s";
pub const TALOS: &str = "talos";
pub const WORKLOAD_CLUSTER: &str = "new workload cluster";
pub const RANCHER: &str = "rancher";
pub const HELM: &str = "helm";
pub const REPLACE: &str = "replacing upstream";
pub const CLUSTER_API: &str = "cluster api";
pub const ADOPT: &str = "adopting nodes";
pub const WORKSTATION: &str = "workstation";
pub const OPERATE: &str = "operate and uninstall";

const BY_NEW_CLUSTER: By = By::Journeys(&[NEW_CLUSTER]);
const BY_RKE2: By = By::Journeys(&[RKE2]);
const BY_K3S: By = By::Journeys(&[K3S]);
const BY_TALOS: By = By::Journeys(&[TALOS]);
const BY_WORKLOAD_CLUSTER: By = By::Journeys(&[WORKLOAD_CLUSTER]);
const BY_RANCHER: By = By::Journeys(&[RANCHER]);
const BY_HELM: By = By::Journeys(&[HELM]);
const BY_REPLACE: By = By::Journeys(&[REPLACE]);
const BY_CLUSTER_API: By = By::Journeys(&[CLUSTER_API]);
const BY_ADOPT: By = By::Journeys(&[ADOPT]);
const BY_OPERATE: By = By::Journeys(&[OPERATE]);

const NO_REGISTRY: By =
    By::Nobody("builds the release binary and needs a registry; `image` runs the binary from its archive");
const NO_LOGIN: By = By::Nobody("needs a container engine and a registry");
const NO_RUNTIME: By = By::Nobody("needs nodes with a container runtime; `image` reads the archive");
const ON_A_NODE: By = By::Nobody("needs a node: tests/node/journey.rs runs it on a real one");
const NO_KUBELET: By = By::Nobody("waits for pods, and there is no kubelet and no DaemonSet controller");
const NO_SERVER: By = By::Nobody("writes into the folder of a server of the distribution");
const NO_NSX: By = By::Nobody("the site of the journeys has no NSX");
const A_SUITE: By = By::Nobody("runs other suites of this repository");
const WITH_NAMES: By = By::Nobody("a list to choose from, with names that only the reader knows");

/// The pages with blocks of commands.
pub const PAGES: &[Page] = &[
    (
        "README.md",
        &[(
            "Install",
            &[By::Nobody("the journeys run these commands on the pages of Install"), By::Journeys(&[WORKSTATION])],
        )],
    ),
    // Start
    ("docs/start/demo.md", &[("Run it", &[By::Nobody("the demo runs the suites' components for minutes")])]),
    // Install
    (
        "docs/install/image.md",
        &[
            ("Build the image", &[NO_REGISTRY]),
            ("Name the image", &[BY_REPLACE]),
            ("Private registry", &[NO_LOGIN, BY_HELM]),
            ("Without a registry", &[NO_RUNTIME]),
        ],
    ),
    ("docs/install/vsphere.md", &[("Prepare vSphere", &[BY_NEW_CLUSTER; 3])]),
    (
        "docs/install/kubeadm.md",
        &[
            (
                "Steps with kubeadm",
                &[BY_NEW_CLUSTER, ON_A_NODE, BY_NEW_CLUSTER, BY_NEW_CLUSTER, BY_NEW_CLUSTER, ON_A_NODE],
            ),
            ("Add components", &[BY_NEW_CLUSTER]),
        ],
    ),
    (
        "docs/install/rke2.md",
        &[
            ("Steps on RKE2", &[BY_RKE2, BY_RKE2, BY_RKE2, BY_RKE2, NO_KUBELET]),
            ("Start with RKE2", &[BY_RKE2, NO_SERVER]),
        ],
    ),
    (
        "docs/install/k3s.md",
        &[("Steps on K3s", &[BY_K3S, BY_K3S, BY_K3S, BY_K3S, NO_KUBELET]), ("Start with K3s", &[BY_K3S, NO_SERVER])],
    ),
    (
        "docs/install/talos.md",
        &[("Steps on Talos", &[BY_TALOS, BY_TALOS, BY_TALOS, BY_TALOS, NO_KUBELET]), ("Start with Talos", &[BY_TALOS])],
    ),
    ("docs/install/helm.md", &[("Steps with Helm", &[BY_HELM; 2])]),
    (
        "docs/install/cluster-api.md",
        &[("Steps with Cluster API", &[BY_WORKLOAD_CLUSTER, BY_WORKLOAD_CLUSTER, BY_WORKLOAD_CLUSTER, NO_KUBELET])],
    ),
    ("docs/install/rancher.md", &[("Steps with Rancher", &[BY_RANCHER, BY_RANCHER, BY_RANCHER, NO_KUBELET])]),
    ("docs/install/verify.md", &[("Verify", &[ON_A_NODE, BY_NEW_CLUSTER, ON_A_NODE])]),
    // Migrate
    (
        "docs/migrate/upstream.md",
        &[
            (
                "Replacing upstream",
                &[BY_REPLACE, NO_KUBELET, BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE],
            ),
            ("Replacing upstream with Helm", &[BY_HELM; 2]),
        ],
    ),
    ("docs/migrate/cluster-api.md", &[("A workload cluster", &[BY_CLUSTER_API; 4])]),
    ("docs/migrate/adopt.md", &[("Nodes without provider ID", &[BY_ADOPT; 3])]),
    (
        "docs/migrate/load-balancers.md",
        &[
            ("Adopt the features", &[NO_NSX]),
            ("Remove leftovers of the Go program", &[NO_NSX]),
            ("Going back to the Go program", &[NO_NSX]),
        ],
    ),
    (
        "docs/migrate/going-back.md",
        &[
            ("Going back", &[BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE, BY_REPLACE]),
            ("Going back with Helm", &[BY_HELM; 2]),
            ("Objects that stay", &[BY_REPLACE]),
        ],
    ),
    // NSX
    ("docs/nsx/use.md", &[("Set up NSX", &[NO_NSX])]),
    (
        "docs/nsx/operate.md",
        &[("Check the load balancers", &[NO_NSX]), ("Events", &[NO_NSX]), ("Held objects", &[NO_NSX, NO_NSX])],
    ),
    (
        "docs/nsx/restored-clusters.md",
        &[
            ("Restored and copied clusters", &[NO_NSX]),
            ("A cluster that was restored in place, or whose NSX was restored", &[NO_NSX]),
        ],
    ),
    // Operate
    (
        "docs/operate/troubleshooting.md",
        &[
            ("The first five minutes", &[WITH_NAMES]),
            ("Before the Node has an address", &[ON_THE_FIRST_NODE]),
            ("Deletion must stop", &[BY_OPERATE]),
        ],
    ),
    ("docs/operate/credentials.md", &[("Change the password of vCenter", &[BY_OPERATE])]),
    (
        "docs/operate/uninstall.md",
        &[
            ("Remove load balancers", &[BY_OPERATE; 2]),
            ("Remove routes", &[NO_NSX]),
            ("Remove the program", &[BY_OPERATE, BY_HELM, BY_OPERATE, BY_OPERATE]),
            ("Remove Leases and configuration", &[BY_OPERATE; 3]),
            ("Clean up Nodes", &[BY_OPERATE; 7]),
            ("Remove the accounts", &[BY_OPERATE]),
        ],
    ),
    ("docs/operate/logs.md", &[("The log", &[WITH_NAMES])]),
    ("docs/reasons.md", &[("Nodes", &[WITH_NAMES]), ("Services", &[WITH_NAMES]), ("Routes", &[WITH_NAMES])]),
    // Contribute
    (
        "docs/field-test.md",
        &[
            ("Run it", &[NO_VCENTER]),
            ("Write to NSX", &[NO_VCENTER]),
            ("Record it", &[By::Nobody("reads a recording of a real site"), A_SUITE]),
        ],
    ),
    ("docs/testing.md", &[("The suite with a real node", &[A_SUITE, A_SUITE])]),
    ("docs/chaos.md", &[("The fault campaign", &[A_SUITE])]),
    (
        "docs/contribute/measurements.md",
        &[("Comparing with another program", &[By::Nobody("measures for more than an hour")])],
    ),
    // Outside of the book
    ("SECURITY.md", &[("Security advisories", &[By::Nobody("needs a container engine and the network")])]),
    (
        "manifests/helm/vsphere-cpi/README.md",
        &[(
            "vsphere-cpi",
            &[By::Nobody("a journey runs the command of docs/install/helm.md, which differs in its values only")],
        )],
    ),
];

const ON_THE_FIRST_NODE: By = By::Nobody("needs a node: tests/node/first_pod.rs runs it on a real one");
const NO_VCENTER: By = By::Nobody("the field test needs a real vCenter or NSX");

const BY_COMMANDS: &str =
    "commands of the plugin: tests/cli/kubectl_plugin.rs checks that each exists, tests/daemon/commands.rs runs them";
const ON_THE_SITE: &str = "shows a state that a journey does not have, or names that only the reader knows";

/// The pages with screens, which have commands with `$ ` before them: how many, and the reason why no journey runs them.
pub const SCREENS: &[(&str, usize, &str)] = &[
    ("README.md", 1, BY_COMMANDS),
    ("docs/cli.md", 8, "tests/daemon/commands.rs and tests/daemon/manifests/plugin.rs make these screens"),
    ("docs/fuzzing.md", 1, "needs nightly Rust and cargo-fuzz"),
    ("docs/install/no-kube-proxy.md", 1, ON_THE_SITE),
    ("docs/install/talos.md", 3, "needs talosctl and nodes of Talos"),
    ("docs/migrate/adopt.md", 2, BY_COMMANDS),
    ("docs/migrate/rancher.md", 2, BY_COMMANDS),
    ("docs/migrate/rke2-k3s.md", 3, "needs nodes of RKE2 or K3s"),
    ("docs/migrate/upstream.md", 3, BY_COMMANDS),
    ("docs/node-lifecycle.md", 1, BY_COMMANDS),
    ("docs/operate/credentials.md", 1, ON_THE_SITE),
    ("docs/operate/maintenance.md", 3, BY_COMMANDS),
    ("docs/operate/troubleshooting.md", 3, ON_THE_SITE),
    ("docs/start/first-cluster.md", 2, ON_THE_SITE),
];

/// Returns the blocks that a journey has to run.
pub fn blocks_of(journey: &str) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for (heading, blocks) in PAGES.iter().flat_map(|(_, sections)| *sections) {
        for (number, by) in blocks.iter().enumerate() {
            if matches!(by, By::Journeys(journeys) if journeys.contains(&journey)) {
                found.push((*heading, number));
            }
        }
    }
    found
}

/// Returns the pages below `docs` with blocks that journeys run.
pub fn pages_of_journeys() -> Vec<&'static str> {
    let is_run = |(_, blocks): &(_, &[By])| blocks.iter().any(|by| matches!(by, By::Journeys(_)));
    let pages = PAGES.iter().filter(|(page, sections)| page.starts_with("docs/") && sections.iter().any(is_run));
    pages.map(|(page, _)| *page).collect()
}
