package main

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	_ "github.com/vmware/govmomi/ssoadmin/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Vcenter is the simulated inventory with its SOAP and REST handlers.
type Vcenter struct {
	InstanceUUID string
	APIVersion   string
	Handler      http.Handler
	// SharesSessions: see Scenario.
	SharesSessions bool

	service *simulator.Service
	tags    *tagClient
	// One change at a time: changes are few, and each touches several objects.
	mu sync.Mutex

	loginMu        sync.Mutex
	user, password string
}

// NewVcenter builds the scenario's inventory in this process, without a call over the network.
func NewVcenter(wanted *Scenario) (*Vcenter, error) {
	v := &Vcenter{user: wanted.User, password: wanted.Password, InstanceUUID: wanted.InstanceUUID, APIVersion: wanted.APIVersion,
		SharesSessions: wanted.SharesSessions}
	if v.InstanceUUID == "" {
		v.InstanceUUID = uuid.NewString()
	}
	if v.APIVersion == "" {
		v.APIVersion = "8.0.3.0"
	}
	content := vpx.ServiceContent
	content.About.InstanceUuid = v.InstanceUUID
	content.About.ApiVersion = v.APIVersion
	content.About.Version = strings.TrimSuffix(v.APIVersion, ".0")
	v.service = simulator.New(simulator.NewServiceInstance(simulator.NewContext(), content, vpx.RootFolder))
	if err := v.registerHandlers(); err != nil {
		return nil, err
	}
	for i := range wanted.Datacenters {
		if err := v.createDatacenter(&wanted.Datacenters[i]); err != nil {
			return nil, err
		}
	}
	for i := range wanted.VMs {
		if err := v.CreateVM(&wanted.VMs[i]); err != nil {
			return nil, err
		}
	}
	for _, category := range wanted.Categories {
		if err := v.tags.createCategory(category); err != nil {
			return nil, err
		}
	}
	for _, tag := range wanted.Tags {
		if err := v.CreateTag(tag); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// registerHandlers lets the simulator register its endpoints on its mux. It does that only while it opens a
// listener; that one is closed again, because requests arrive through the front.
func (v *Vcenter) registerHandlers() error {
	v.service.RegisterEndpoints = true
	v.service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(v.user, v.password)}
	v.service.NewServer().Close()
	// The simulator of single sign-on has put its own check there, which knows the users that it has created.
	manager := v.context().Map.SessionManager()
	isCreated, first := manager.ValidLogin, v.user
	manager.ValidLogin = func(login *types.Login) bool {
		return v.Accepts(login.UserName, login.Password) || login.UserName != first && isCreated(login)
	}
	v.Handler = v.service.ServeMux
	var err error
	v.tags, err = newTagClient(v.Handler, v.user, v.password)
	return err
}

// Accepts says whether a login with this pair succeeds.
func (v *Vcenter) Accepts(user, password string) bool {
	v.loginMu.Lock()
	defer v.loginMu.Unlock()
	return user == v.user && password == v.password
}

var userAndPassword = regexp.MustCompile(`Username>([^<]*)</[^>]*><[^>]*Password[^>]*>([^<]*)<`)

// acceptsPasswordOf says whether this request for a token has a user name and a password that log in.
func (v *Vcenter) acceptsPasswordOf(request []byte) bool {
	found := userAndPassword.FindSubmatch(request)
	return found != nil && v.Accepts(html.UnescapeString(string(found[1])), html.UnescapeString(string(found[2])))
}

// SetLogin replaces the accepted pair; sessions that exist stay.
func (v *Vcenter) SetLogin(user, password string) {
	v.loginMu.Lock()
	defer v.loginMu.Unlock()
	v.user, v.password = user, password
}

// context is a fresh identity towards the simulator's locks: those are re-entrant per context.
func (v *Vcenter) context() *simulator.Context {
	ctx := *v.service.Context
	return &ctx
}

func (v *Vcenter) createDatacenter(wanted *Datacenter) error {
	ctx := v.context()
	parent, err := v.ensureFolder(ctx, vpx.RootFolder.Self, wanted.Folder)
	if err != nil {
		return err
	}
	made := parent.CreateDatacenter(ctx, &types.CreateDatacenter{This: parent.Self, Name: wanted.Name})
	if fault := made.Fault(); fault != nil {
		return fmt.Errorf("creating datacenter %s: %s", wanted.Name, fault.String)
	}
	dc := ctx.Map.Get(made.(*methods.CreateDatacenterBody).Res.Returnval).(*simulator.Datacenter)
	hosts := ctx.Map.Get(dc.HostFolder).(*simulator.Folder)
	for _, cluster := range wanted.Clusters {
		body, fault := simulator.CreateClusterComputeResource(ctx, hosts, cluster.Name, types.ClusterConfigSpecEx{})
		if fault != nil {
			return fmt.Errorf("creating cluster %s: %T", cluster.Name, fault)
		}
		for _, host := range cluster.Hosts {
			add := body.AddHostTask(ctx, &types.AddHost_Task{This: body.Self, AsConnected: true,
				Spec: types.HostConnectSpec{HostName: host}})
			ctx.Map.Get(add.(*methods.AddHost_TaskBody).Res.Returnval).(*simulator.Task).Wait()
		}
	}
	for _, host := range wanted.Hosts {
		made, fault := simulator.CreateStandaloneHost(ctx, hosts, types.HostConnectSpec{HostName: host})
		if fault != nil {
			return fmt.Errorf("creating host %s: %T", host, fault)
		}
		made.Runtime.ConnectionState = types.HostSystemConnectionStateConnected
	}
	return nil
}

// ensureFolder walks the path below the given folder and creates what is missing.
func (v *Vcenter) ensureFolder(ctx *simulator.Context, from types.ManagedObjectReference, path string) (*simulator.Folder, error) {
	folder := ctx.Map.Get(from).(*simulator.Folder)
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' }) {
		if found, ok := ctx.Map.FindByName(name, folder.ChildEntity).(*simulator.Folder); ok {
			folder = found
			continue
		}
		made := folder.CreateFolder(ctx, &types.CreateFolder{This: folder.Self, Name: name})
		if fault := made.Fault(); fault != nil {
			return nil, fmt.Errorf("creating folder %s: %s", name, fault.String)
		}
		folder = ctx.Map.Get(made.(*methods.CreateFolderBody).Res.Returnval).(*simulator.Folder)
	}
	return folder, nil
}

// Find gives the reference of a named object. Nothing found, and several found, are errors.
func (v *Vcenter) Find(wanted Object) (types.ManagedObjectReference, error) {
	ctx := v.context()
	var found []types.ManagedObjectReference
	for _, entity := range ctx.Map.All(wanted.Type) {
		if !named(entity, wanted.Name) {
			continue
		}
		if dc := datacenterOf(ctx, entity); wanted.Datacenter != "" && (dc == nil || dc.Name != wanted.Datacenter) {
			continue
		}
		found = append(found, entity.Reference())
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return types.ManagedObjectReference{}, fmt.Errorf("there is no %s %q %s", wanted.Type, wanted.Name, wanted.Datacenter)
	default:
		return types.ManagedObjectReference{}, fmt.Errorf("there are %d of %s %q: name it by UUID or with its datacenter", len(found), wanted.Type, wanted.Name)
	}
}

func named(entity mo.Entity, name string) bool {
	if vm, ok := entity.(*simulator.VirtualMachine); ok {
		return vm.Name == name || vm.Config.Uuid == strings.ToLower(name) || vm.Self.Value == name
	}
	return nameOf(entity) == name
}

// nameOf reads the name where the simulator keeps it; ManagedEntity.Name is the one place for all kinds used here.
func nameOf(entity mo.Entity) string { return entity.Entity().Name }

func datacenterOf(ctx *simulator.Context, entity mo.Entity) *simulator.Datacenter {
	for entity != nil {
		if dc, ok := entity.(*simulator.Datacenter); ok {
			return dc
		}
		parent := entity.Entity().Parent
		if parent == nil {
			return nil
		}
		entity, _ = ctx.Map.Get(*parent).(mo.Entity)
	}
	return nil
}

// CreateTag creates a tag (and its category, if it is new) and attaches it.
func (v *Vcenter) CreateTag(tag Tag) error {
	if err := v.tags.ensureTag(tag.Category, tag.Name); err != nil {
		return err
	}
	var problems []error
	for _, object := range tag.Attached {
		problems = append(problems, v.Attach(tag.Category, tag.Name, object, true))
	}
	return errors.Join(problems...)
}

// Attach attaches the tag to the object, or detaches it.
func (v *Vcenter) Attach(category, tag string, object Object, attached bool) error {
	ref, err := v.Find(object)
	if err != nil {
		return err
	}
	return v.tags.attach(category, tag, ref, attached)
}
