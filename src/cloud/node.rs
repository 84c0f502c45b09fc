//! Pure facts about nodes that both sides of the contract need: names of taints, labels and annotations.

/// The taint a kubelet with `--cloud-provider=external` registers its node with.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The kubelet's `--node-ip`, as an annotation.
pub const ANNOTATION_PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Records which virtual machine backs the node.
pub const ANNOTATION_VM: &str = "vsphere-ccm.dev/vm";
