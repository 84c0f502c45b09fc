package main

// Scenario is what a test asks for. Its Rust twin is tests/support/src/vcenter/scenario.rs.
type Scenario struct {
	User         string `json:"user"`
	Password     string `json:"password"`
	InstanceUUID string `json:"instanceUuid"`
	APIVersion   string `json:"apiVersion"`
	Certificate  string `json:"certificate"`
	Key          string `json:"key"`
	// SharesSessions lets REST take a SOAP session's secret as a session id, as vCenter 8.0 Update 3 does.
	SharesSessions bool `json:"sharesSessions"`
	// SolutionUsers are certificates (PEM) that may ask for a token.
	SolutionUsers []string     `json:"solutionUsers"`
	Datacenters   []Datacenter `json:"datacenters"`
	VMs           []VM         `json:"vms"`
	Categories    []Category   `json:"categories"`
	Tags          []Tag        `json:"tags"`
}

// Datacenter has its clusters and its stand-alone hosts. Folder is a path below the root folder.
type Datacenter struct {
	Name     string    `json:"name"`
	Folder   string    `json:"folder"`
	Clusters []Cluster `json:"clusters"`
	Hosts    []string  `json:"hosts"`
}

// Cluster of hosts.
type Cluster struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
}

// VM as created, and, with only some fields given, as changed.
type VM struct {
	Name            *string           `json:"name,omitempty"`
	UUID            *string           `json:"uuid,omitempty"`
	InstanceUUID    *string           `json:"instanceUuid,omitempty"`
	GuestHostName   *string           `json:"guestHostName,omitempty"`
	NICs            *[]NIC            `json:"nics,omitempty"`
	Power           *string           `json:"power,omitempty"`
	ConnectionState *string           `json:"connectionState,omitempty"`
	Template        *bool             `json:"template,omitempty"`
	Host            *string           `json:"host,omitempty"`
	Datacenter      *string           `json:"datacenter,omitempty"`
	Folder          *string           `json:"folder,omitempty"`
	CPUs            *int32            `json:"cpus,omitempty"`
	MemoryMB        *int32            `json:"memoryMB,omitempty"`
	GuestID         *string           `json:"guestId,omitempty"`
	ExtraConfig     map[string]string `json:"extraConfig,omitempty"`
}

// NIC as VMware Tools reports it.
type NIC struct {
	Network        string   `json:"network"`
	MAC            string   `json:"mac"`
	Addresses      []string `json:"addresses"`
	DeviceConfigID *int32   `json:"deviceConfigId"`
}

// Category of tags.
type Category struct {
	Name        string   `json:"name"`
	Cardinality string   `json:"cardinality"`
	Types       []string `json:"types"`
}

// Object names something in the inventory: its managed-object type and its name (a VM also by BIOS UUID),
// within Datacenter if given.
type Object struct {
	Type       string `json:"type"`
	Name       string `json:"name"`
	Datacenter string `json:"datacenter"`
}

// Tag of a category, and the objects it is attached to.
type Tag struct {
	Category string   `json:"category"`
	Name     string   `json:"name"`
	Attached []Object `json:"attached"`
}
