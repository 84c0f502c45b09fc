package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// CreateVM puts a machine straight into the registry. The simulator's own CreateVM_Task makes datastore files,
// devices and events, which takes 38 ms a machine and gives nothing that this project reads.
func (v *Vcenter) CreateVM(wanted *VM) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx := v.context()
	if wanted.Name == nil || wanted.UUID == nil {
		return fmt.Errorf("a VM needs a name and a uuid")
	}
	host, err := v.host(wanted.Host, wanted.Datacenter)
	if err != nil {
		return fmt.Errorf("creating VM %s: %w", *wanted.Name, err)
	}
	dc := datacenterOf(ctx, host)
	folder, err := v.ensureFolder(ctx, dc.VmFolder, text(wanted.Folder, ""))
	if err != nil {
		return err
	}
	vm := &simulator.VirtualMachine{VirtualMachine: blank(wanted)}
	vm.Parent = &folder.Self
	ctx.Map.NewEntity(vm)
	vm.Summary.Vm = &vm.Self
	v.place(ctx, vm, host)
	changes, err := v.changes(ctx, vm, wanted)
	if err != nil {
		return err
	}
	mo.ApplyPropertyChange(&vm.VirtualMachine, changes)
	vm.Config.Uuid = strings.ToLower(*wanted.UUID)
	vm.Config.InstanceUuid = strings.ToLower(text(wanted.InstanceUUID, uuid.NewSHA1(uuid.NameSpaceOID, []byte(v.InstanceUUID+vm.Self.Value)).String()))
	vm.Summary.Config.Uuid, vm.Summary.Config.InstanceUuid = vm.Config.Uuid, vm.Config.InstanceUuid
	// The folder first, or views do not see the new member.
	ctx.WithLock(folder, func() { folder.ChildEntity = append(folder.ChildEntity, vm.Self) })
	ctx.Map.PutEntity(folder, vm)
	return nil
}

// blank is a machine with the defaults of the scenario format.
func blank(wanted *VM) mo.VirtualMachine {
	vm := mo.VirtualMachine{
		Config: &types.VirtualMachineConfigInfo{
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "govcsim", Value: "TRUE"}},
			Version:     "vmx-19",
			Files:       types.VirtualMachineFileInfo{VmPathName: fmt.Sprintf("[datastore] %s/%s.vmx", *wanted.Name, *wanted.Name)},
		},
		Guest: &types.GuestInfo{ToolsRunningStatus: string(types.VirtualMachineToolsRunningStatusGuestToolsRunning), GuestState: "running"},
	}
	vm.Summary.Guest = &types.VirtualMachineGuestSummary{}
	vm.Summary.OverallStatus = types.ManagedEntityStatusGreen
	vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn
	vm.Runtime.ConnectionState = types.VirtualMachineConnectionStateConnected
	vm.Summary.Runtime = vm.Runtime
	vm.Config.Hardware.NumCPU, vm.Config.Hardware.MemoryMB = 2, 4096
	vm.Summary.Config.NumCpu, vm.Summary.Config.MemorySizeMB = 2, 4096
	vm.Config.GuestId, vm.Summary.Config.GuestId = "ubuntu64Guest", "ubuntu64Guest"
	vm.Summary.Config.VmPathName = vm.Config.Files.VmPathName
	return vm
}

// ChangeVM applies the given fields and lets a pending WaitForUpdatesEx see them.
func (v *Vcenter) ChangeVM(name string, wanted *VM) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx := v.context()
	vm, err := v.machine(name)
	if err != nil {
		return err
	}
	changes, err := v.changes(ctx, vm, wanted)
	if err != nil {
		return err
	}
	if wanted.Host != nil {
		host, err := v.host(wanted.Host, wanted.Datacenter)
		if err != nil {
			return err
		}
		v.remove(ctx, vm)
		v.place(ctx, vm, host)
		changes = append(changes, assign("runtime.host", vm.Runtime.Host), assign("summary.runtime.host", vm.Runtime.Host),
			assign("resourcePool", vm.ResourcePool))
	}
	if wanted.Folder != nil {
		parent, err := v.moveToFolder(ctx, vm, *wanted.Folder)
		if err != nil {
			return err
		}
		changes = append(changes, assign("parent", parent))
	}
	ctx.WithLock(vm, func() { ctx.Update(vm, changes) })
	return nil
}

// RemoveVM takes the machine out of the inventory: watchers see it leave, searches find nothing.
func (v *Vcenter) RemoveVM(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx := v.context()
	vm, err := v.machine(name)
	if err != nil {
		return err
	}
	v.remove(ctx, vm)
	folder := ctx.Map.Get(*vm.Parent).(*simulator.Folder)
	ctx.Map.RemoveReference(ctx, folder, &folder.ChildEntity, vm.Self)
	ctx.Map.Remove(ctx, vm.Self)
	return nil
}

func (v *Vcenter) machine(name string) (*simulator.VirtualMachine, error) {
	ref, err := v.Find(Object{Type: "VirtualMachine", Name: name})
	if err != nil {
		return nil, err
	}
	return v.context().Map.Get(ref).(*simulator.VirtualMachine), nil
}

// host finds the named host, or without a name any one (of the datacenter).
func (v *Vcenter) host(name, datacenter *string) (*simulator.HostSystem, error) {
	ctx := v.context()
	if name != nil {
		ref, err := v.Find(Object{Type: "HostSystem", Name: *name, Datacenter: text(datacenter, "")})
		if err != nil {
			return nil, err
		}
		return ctx.Map.Get(ref).(*simulator.HostSystem), nil
	}
	var first *simulator.HostSystem
	for _, entity := range ctx.Map.All("HostSystem") {
		host := entity.(*simulator.HostSystem)
		if datacenter != nil && datacenterOf(ctx, host).Name != *datacenter {
			continue
		}
		// The registry has no order; the lowest name is the same one each time.
		if first == nil || host.Name < first.Name {
			first = host
		}
	}
	if first == nil {
		return nil, fmt.Errorf("there is no host")
	}
	return first, nil
}

// place puts the machine on the host and into the root resource pool of the host's cluster.
func (v *Vcenter) place(ctx *simulator.Context, vm *simulator.VirtualMachine, host *simulator.HostSystem) {
	var pool *types.ManagedObjectReference
	switch owner := ctx.Map.Get(*host.Parent).(type) {
	case *mo.ComputeResource:
		pool = owner.ResourcePool
	case *simulator.ClusterComputeResource:
		pool = owner.ResourcePool
	}
	self := host.Self
	vm.Runtime.Host, vm.Summary.Runtime.Host, vm.ResourcePool = &self, &self, pool
	ctx.Map.AddReference(ctx, host, &host.Vm, vm.Self)
	if resources, ok := ctx.Map.Get(*pool).(*simulator.ResourcePool); ok {
		ctx.Map.AddReference(ctx, resources, &resources.Vm, vm.Self)
	}
}

func (v *Vcenter) remove(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.RemoveReference(ctx, host, &host.Vm, vm.Self)
	}
	if pool, ok := ctx.Map.Get(*vm.ResourcePool).(*simulator.ResourcePool); ok {
		ctx.Map.RemoveReference(ctx, pool, &pool.Vm, vm.Self)
	}
}

func (v *Vcenter) moveToFolder(ctx *simulator.Context, vm *simulator.VirtualMachine, path string) (*types.ManagedObjectReference, error) {
	folder, err := v.ensureFolder(ctx, datacenterOf(ctx, vm).VmFolder, path)
	if err != nil {
		return nil, err
	}
	old := ctx.Map.Get(*vm.Parent).(*simulator.Folder)
	ctx.Map.RemoveReference(ctx, old, &old.ChildEntity, vm.Self)
	ctx.Map.AddReference(ctx, folder, &folder.ChildEntity, vm.Self)
	return &folder.Self, nil
}

func assign(name string, value any) types.PropertyChange {
	return types.PropertyChange{Name: name, Op: types.PropertyChangeOpAssign, Val: value}
}

func text(value *string, otherwise string) string {
	if value == nil {
		return otherwise
	}
	return *value
}

// changes translates the given fields to property changes, in both places where vCenter shows them.
func (v *Vcenter) changes(ctx *simulator.Context, vm *simulator.VirtualMachine, wanted *VM) ([]types.PropertyChange, error) {
	var changes []types.PropertyChange
	add := func(value any, paths ...string) {
		for _, path := range paths {
			changes = append(changes, assign(path, value))
		}
	}
	if wanted.Name != nil {
		add(*wanted.Name, "name", "config.name", "summary.config.name")
	}
	if wanted.UUID != nil {
		add(strings.ToLower(*wanted.UUID), "config.uuid", "summary.config.uuid")
	}
	if wanted.InstanceUUID != nil {
		add(strings.ToLower(*wanted.InstanceUUID), "config.instanceUuid", "summary.config.instanceUuid")
	}
	if wanted.GuestHostName != nil {
		add(*wanted.GuestHostName, "guest.hostName", "summary.guest.hostName")
	}
	if wanted.Template != nil {
		add(*wanted.Template, "config.template", "summary.config.template")
	}
	if wanted.CPUs != nil {
		add(*wanted.CPUs, "config.hardware.numCPU", "summary.config.numCpu")
	}
	if wanted.MemoryMB != nil {
		add(*wanted.MemoryMB, "config.hardware.memoryMB", "summary.config.memorySizeMB")
	}
	if wanted.GuestID != nil {
		add(*wanted.GuestID, "config.guestId", "summary.config.guestId")
	}
	if wanted.NICs != nil {
		nics, first := guestNICs(*wanted.NICs)
		add(nics, "guest.net")
		add(first, "guest.ipAddress", "summary.guest.ipAddress")
	}
	if wanted.Power != nil {
		state := types.VirtualMachinePowerState(*wanted.Power)
		switch state {
		case types.VirtualMachinePowerStatePoweredOn, types.VirtualMachinePowerStatePoweredOff, types.VirtualMachinePowerStateSuspended:
			add(state, "runtime.powerState", "summary.runtime.powerState")
		default:
			return nil, fmt.Errorf("unknown power state %q", *wanted.Power)
		}
	}
	if wanted.ConnectionState != nil {
		state := types.VirtualMachineConnectionState(*wanted.ConnectionState)
		add(state, "runtime.connectionState", "summary.runtime.connectionState")
	}
	if len(wanted.ExtraConfig) > 0 {
		changes = append(changes, extraConfig(vm, wanted.ExtraConfig)...)
	}
	return changes, nil
}

func guestNICs(wanted []NIC) ([]types.GuestNicInfo, string) {
	nics := make([]types.GuestNicInfo, 0, len(wanted))
	first := ""
	for i, nic := range wanted {
		info := types.GuestNicInfo{Network: nic.Network, MacAddress: nic.MAC, IpAddress: nic.Addresses, Connected: true, DeviceConfigId: int32(4000 + i)}
		if info.MacAddress == "" {
			info.MacAddress = fmt.Sprintf("00:50:56:00:00:%02x", i)
		}
		if nic.DeviceConfigID != nil {
			info.DeviceConfigId = *nic.DeviceConfigID
		}
		if first == "" && len(nic.Addresses) > 0 {
			first = nic.Addresses[0]
		}
		nics = append(nics, info)
	}
	return nics, first
}

// extraConfig merges the given keys; an empty value removes its key. Filters may name one key, so each key is
// announced by itself and the list as a whole.
func extraConfig(vm *simulator.VirtualMachine, wanted map[string]string) []types.PropertyChange {
	var changes []types.PropertyChange
	var list []types.BaseOptionValue
	for _, option := range vm.Config.ExtraConfig {
		if _, replaced := wanted[option.GetOptionValue().Key]; !replaced {
			list = append(list, option)
		}
	}
	for key, value := range wanted {
		field := mo.Field{Path: "config.extraConfig", Key: key}
		if value == "" {
			changes = append(changes, types.PropertyChange{Name: field.String(), Op: types.PropertyChangeOpRemove})
			continue
		}
		option := &types.OptionValue{Key: key, Value: value}
		list = append(list, option)
		changes = append(changes, assign(field.String(), *option))
	}
	return append(changes, assign("config.extraConfig", list))
}
