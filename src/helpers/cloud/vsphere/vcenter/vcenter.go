// Package vcenter asks vCenter for the facts that the checks are based on. It is the only package with VMware's
// library, which is large: only the program vcenter imports it.
//
// Everything that it calls reads. What is asked is what one machine needs, so the number of calls does not depend on
// the size of the cluster or of the inventory.
package vcenter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/preflight"
)

const (
	// callTimeout limits one call.
	callTimeout = 30 * time.Second
	// farewellTimeout limits each of the two calls that may be left when the context has ended: the program is killed
	// soon (endDelay in package vsphere).
	farewellTimeout = 2 * time.Second
)

// Session is a connection to one vCenter, and what was learned by it.
type Session struct {
	facts   *checks.Facts
	log     *slog.Logger
	secrets *preflight.Secrets
	calls   map[string]int
	client  *vim25.Client
	login   *types.UserSession
	vm      types.ManagedObjectReference
	chain   []mo.Reference // the VM's host and all that it is in, the nearest first
}

// New returns a session without a connection. The facts have the request, the machine and the configuration.
func New(facts *checks.Facts, log *slog.Logger, secrets *preflight.Secrets) *Session {
	return &Session{facts: facts, log: log, secrets: secrets, calls: map[string]int{}}
}

// Calls lists the calls so far.
func (s *Session) Calls() []preflight.Calls {
	var calls []preflight.Calls
	for action, count := range s.calls {
		calls = append(calls, preflight.Calls{Service: "vcenter", Action: action, Count: count})
	}
	slices.SortFunc(calls, func(a, b preflight.Calls) int { return strings.Compare(a.Action, b.Action) })
	return calls
}

// call counts a call, and returns the context for it.
func (s *Session) call(ctx context.Context, action string) (context.Context, context.CancelFunc) {
	return s.within(ctx, callTimeout, action)
}

// farewell is call for what frees something in vCenter, also when ctx has ended.
func (s *Session) farewell(ctx context.Context, action string) (context.Context, context.CancelFunc) {
	return s.within(context.WithoutCancel(ctx), farewellTimeout, action)
}

func (s *Session) within(
	ctx context.Context, timeout time.Duration, action string,
) (context.Context, context.CancelFunc) {
	s.calls[action]++
	s.log.Debug("call", "action", action)
	return context.WithTimeout(ctx, timeout)
}

// Gather asks for everything that is not known yet, or may have changed.
func (s *Session) Gather(ctx context.Context, now func() time.Time) {
	f := s.facts
	f.Now = now()
	f.LoginErr, f.TimeErr, f.VMErr = checks.ErrNotAsked, checks.ErrNotAsked, checks.ErrNotAsked
	f.PrivilegesErr, f.TagsErr = checks.ErrNotAsked, checks.ErrNotAsked
	f.StoresErr, f.PoliciesErr = checks.ErrNotAsked, checks.ErrNotAsked
	if f.ConfigErr != nil {
		f.ConnectErr = checks.ErrNotAsked
		return
	}
	if f.ConnectErr = s.connect(ctx); f.ConnectErr != nil {
		return
	}
	if f.LoginErr = s.logIn(ctx); f.LoginErr != nil {
		return
	}
	f.User = s.login.UserName
	s.clock(ctx, now)
	if f.MachineErr != nil {
		return
	}
	if f.VM, f.VMErr = s.findVM(ctx); f.VM == nil {
		return
	}
	if f.Labels != (checks.Labels{}) {
		f.Tags, f.TagsErr = s.tags(ctx)
	}
}

// Close ends the session in vCenter, which has a limit of them.
func (s *Session) Close(ctx context.Context) {
	if s.client == nil {
		return
	}
	if s.login != nil {
		ctx, cancel := s.farewell(ctx, "Logout")
		defer cancel()
		if _, err := methods.Logout(
			ctx,
			s.client,
			&types.Logout{This: *s.client.ServiceContent.SessionManager},
		); err != nil {
			s.log.Debug("log out of vCenter", "error", describe(err))
		}
	}
	s.client.CloseIdleConnections()
}

func (s *Session) connect(ctx context.Context) error {
	if s.client != nil {
		return nil
	}
	v := s.facts.VCenter
	s.secrets.Add(v.Password)
	connection := soap.NewClient(&url.URL{Scheme: "https", Host: v.Address(), Path: vim25.Path}, v.Insecure)
	connection.UserAgent = "kubernetes-bosh-preflight"
	if v.CAFile != "" {
		if err := connection.SetRootCAs(v.CAFile); err != nil {
			return fmt.Errorf("read the CA of vCenter: %w", err)
		}
	}
	connection.SetThumbprint(v.Address(), v.Thumbprint)
	// Called after the verification.
	connection.DefaultTransport().TLSClientConfig.VerifyConnection = func(state tls.ConnectionState) error {
		s.facts.Certificate = state.PeerCertificates[0]
		return nil
	}
	ctx, cancel := s.call(ctx, "RetrieveServiceContent")
	defer cancel()
	client, err := vim25.NewClient(ctx, connection)
	if s.facts.Certificate == nil && (isCertificate(err) || v.Thumbprint != "") {
		s.facts.Certificate = presented(ctx, v.Address())
	}
	if err != nil {
		connection.CloseIdleConnections()
		return err
	}
	s.client = client
	return nil
}

// isCertificate reports whether a connection failed because of the server's certificate.
func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || err != nil && soap.IsCertificateUntrusted(err)
}

// presented returns the certificate of a server, whoever signed it, to name it. Nothing is sent.
func presented(ctx context.Context, address string) *x509.Certificate {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent or believed
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

func (s *Session) logIn(ctx context.Context) error {
	if s.login != nil {
		return nil
	}
	ctx, cancel := s.call(ctx, "Login")
	defer cancel()
	answer, err := methods.Login(ctx, s.client, &types.Login{
		This:     *s.client.ServiceContent.SessionManager,
		UserName: s.facts.VCenter.User, Password: s.facts.VCenter.Password, Locale: "en_US",
	})
	if err != nil {
		var login *types.InvalidLogin
		var denied *types.NoPermission
		_, invalid := fault.As(err, &login)
		_, forbidden := fault.As(err, &denied)
		s.facts.LoginRefused = invalid || forbidden
		return errors.New(describe(err))
	}
	s.login = &answer.Returnval
	return nil
}

func (s *Session) clock(ctx context.Context, now func() time.Time) {
	ctx, cancel := s.call(ctx, "CurrentTime")
	defer cancel()
	before := now()
	answer, err := methods.CurrentTime(ctx, s.client, &types.CurrentTime{This: vim25.ServiceInstance})
	if err != nil {
		s.facts.TimeErr = errors.New(describe(err))
		return
	}
	s.facts.Now = before.Add(now().Sub(before) / 2)
	s.facts.Time, s.facts.TimeErr = answer.Returnval, nil
}

// findVM looks for the VM as the cloud controller does (FindVMByUUID in pkg/common/connectionmanager/search.go of
// cloud-provider-vsphere), reads it with what it is in, and asks what the user may do there.
func (s *Session) findVM(ctx context.Context) (*checks.VM, error) {
	search, cancel := s.call(ctx, "FindByUuid")
	defer cancel()
	found, err := methods.FindByUuid(search, s.client, &types.FindByUuid{
		This: *s.client.ServiceContent.SearchIndex, Uuid: s.facts.Machine.UUID, VmSearch: true,
		InstanceUuid: types.NewBool(false),
	})
	if err != nil {
		return nil, errors.New(describe(err))
	}
	if found.Returnval == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	s.vm = *found.Returnval
	objects, err := s.read(ctx)
	if err != nil {
		return nil, errors.New(describe(err))
	}
	s.facts.Privileges, s.facts.PrivilegesErr = s.privileges(ctx, s.storage(ctx, objects))
	return s.describeVM(objects), nil
}

// inventory are the properties of an object, by name.
type inventory map[types.ManagedObjectReference]map[string]any

// read reads the VM, its host and datastores, and all that these are in, with one call.
func (s *Session) read(ctx context.Context) (inventory, error) {
	up := &types.TraversalSpec{
		SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}},
	}
	again := []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}}
	properties := func(kind string, paths ...string) types.PropertySpec {
		return types.PropertySpec{Type: kind, PathSet: append([]string{"name", "parent"}, paths...)}
	}
	ctx, cancel := s.call(ctx, "RetrieveProperties")
	defer cancel()
	answer, err := methods.RetrieveProperties(ctx, s.client, &types.RetrieveProperties{
		This: s.client.ServiceContent.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{
			ObjectSet: []types.ObjectSpec{{
				Obj: s.vm,
				SelectSet: []types.BaseSelectionSpec{
					up,
					&types.TraversalSpec{Type: "VirtualMachine", Path: "runtime.host", SelectSet: again},
					&types.TraversalSpec{Type: "VirtualMachine", Path: "datastore", SelectSet: again},
				},
			}},
			PropSet: []types.PropertySpec{
				properties(
					"VirtualMachine", "config.version", "config.flags.diskUuidEnabled", "config.extraConfig",
					"runtime.host", "datastore", "guest.hostName", "guest.net",
				),
				properties("HostSystem", "runtime.connectionState"),
				properties("Datastore", "summary.accessible", "host"),
				properties("Folder"), properties("Datacenter"), properties("ComputeResource"),
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	objects := inventory{}
	for _, content := range answer.Returnval {
		values := map[string]any{}
		for _, p := range content.PropSet {
			values[p.Name] = p.Val
		}
		objects[content.Obj] = values
	}
	return objects, nil
}

func get[T any](values map[string]any, name string) T {
	value, _ := values[name].(T)
	return value
}

// path returns an object's path, and the references on it, from the object up. vCenter's root folder is the path's "/".
func (s *Session) path(objects inventory, of types.ManagedObjectReference) (string, []mo.Reference) {
	var names []string
	var chain []mo.Reference
	top := s.client.ServiceContent.RootFolder
	for ref := of; ref != top && objects[ref] != nil && len(chain) < len(objects); {
		// In names, vCenter writes / as %2f.
		names, chain = append(names, get[string](objects[ref], "name")), append(chain, ref)
		ref = get[types.ManagedObjectReference](objects[ref], "parent")
	}
	slices.Reverse(names)
	return "/" + path.Join(names...), chain
}

func (s *Session) describeVM(objects inventory) *checks.VM {
	own := objects[s.vm]
	vm := &checks.VM{
		Name:     get[string](own, "name"),
		Version:  get[string](own, "config.version"),
		DiskUUID: get[bool](own, "config.flags.diskUuidEnabled"),
		HostName: get[string](own, "guest.hostName"),
	}
	for _, option := range get[types.ArrayOfOptionValue](own, "config.extraConfig").OptionValue {
		if o := option.GetOptionValue(); strings.EqualFold(o.Key, "disk.EnableUUID") {
			text := strings.ToLower(fmt.Sprint(o.Value))
			vm.DiskUUID = vm.DiskUUID || text == "true" || text == "1"
		}
	}
	var chain []mo.Reference
	vm.Path, chain = s.path(objects, s.vm)
	for _, ref := range chain {
		if ref.Reference().Type == "Datacenter" {
			vm.Datacenter, _ = s.path(objects, ref.Reference())
		}
	}
	for _, nic := range get[types.ArrayOfGuestNicInfo](own, "guest.net").GuestNicInfo {
		if nic.DeviceConfigId == -1 { // of no network adapter, such as a bridge; the controller ignores it too
			continue
		}
		for _, text := range nic.IpAddress {
			if address, err := netip.ParseAddr(text); err == nil {
				vm.Addresses = append(vm.Addresses, address)
			}
		}
	}
	host := get[types.ManagedObjectReference](own, "runtime.host")
	vm.Host = checks.Host{
		Name:  get[string](objects[host], "name"),
		State: string(get[types.HostSystemConnectionState](objects[host], "runtime.connectionState")),
	}
	_, s.chain = s.path(objects, host)
	for _, ref := range get[types.ArrayOfManagedObjectReference](own, "datastore").ManagedObjectReference {
		vm.Datastores = append(vm.Datastores, datastore(objects[ref], host))
	}
	return vm
}

// datastore says whether a host reaches a datastore.
func datastore(values map[string]any, host types.ManagedObjectReference) checks.Datastore {
	d := checks.Datastore{Name: get[string](values, "name"), Accessible: get[bool](values, "summary.accessible")}
	if !d.Accessible {
		d.Reason = "no host reaches it"
		return d
	}
	for _, mount := range get[types.ArrayOfDatastoreHostMount](values, "host").DatastoreHostMount {
		if accessible := mount.MountInfo.Accessible; mount.Key == host && accessible != nil && !*accessible {
			d.Accessible, d.Reason = false, "the host does not reach it: "+mount.MountInfo.InaccessibleReason
		}
	}
	return d
}

// privileges asks, with one call, which privileges the session has on each object.
func (s *Session) privileges(ctx context.Context, objects inventory) (map[string]map[string]bool, error) {
	if s.client.ServiceContent.AuthorizationManager == nil {
		return nil, errors.New("this server has no permissions: it is not a vCenter")
	}
	names := map[types.ManagedObjectReference]string{s.client.ServiceContent.RootFolder: checks.KindRoot}
	refs := []types.ManagedObjectReference{s.client.ServiceContent.RootFolder}
	for ref := range objects {
		if names[ref] == "" {
			place, _ := s.path(objects, ref)
			names[ref] = ref.Type + " " + place
			refs = append(refs, ref)
		}
	}
	ctx, cancel := s.call(ctx, "HasPrivilegeOnEntities")
	defer cancel()
	answer, err := methods.HasPrivilegeOnEntities(ctx, s.client, &types.HasPrivilegeOnEntities{
		This: *s.client.ServiceContent.AuthorizationManager, Entity: refs, SessionId: s.login.Key,
		PrivId: checks.AllPrivileges(),
	})
	if err != nil {
		return nil, errors.New(describe(err))
	}
	granted := map[string]map[string]bool{}
	for _, entity := range answer.Returnval {
		of := map[string]bool{}
		for _, p := range entity.PrivAvailability {
			of[p.PrivId] = p.IsGranted
		}
		granted[names[entity.Entity]] = of
	}
	return granted, nil
}

// tags returns the names of the nearest tags of the host by category, as the cloud controller finds them
// (LookupZoneByMoref in pkg/common/connectionmanager/zones.go). Tags have an API and a session of their own.
func (s *Session) tags(ctx context.Context) (map[string]string, error) {
	client := rest.NewClient(s.client)
	login, cancel := s.call(ctx, "CreateSession")
	defer cancel()
	if err := client.Login(login, url.UserPassword(s.facts.VCenter.User, s.facts.VCenter.Password)); err != nil {
		return nil, fmt.Errorf("log in to the API of tags: %w", err)
	}
	defer func() {
		logout, cancel := s.farewell(ctx, "DeleteSession")
		defer cancel()
		if err := client.Logout(logout); err != nil {
			s.log.Debug("log out of the API of tags", "error", err.Error())
		}
	}()
	manager := tags.NewManager(client)
	attached, cancel := s.call(ctx, "ListAttachedTagsOnObjects")
	defer cancel()
	lists, err := manager.ListAttachedTagsOnObjects(attached, s.chain)
	if err != nil {
		return nil, fmt.Errorf("list the tags of the host: %w", err)
	}
	// The answer has only objects with tags, in any order.
	byObject := map[types.ManagedObjectReference][]string{}
	for _, l := range lists {
		byObject[l.ObjectID.Reference()] = l.TagIDs
	}
	found, categories := map[string]string{}, map[string]string{}
	for _, ref := range s.chain {
		for _, id := range byObject[ref.Reference()] {
			one, cancel := s.call(ctx, "GetTag")
			tag, err := manager.GetTag(one, id)
			cancel()
			if err != nil {
				return nil, fmt.Errorf("read the tag %s: %w", id, err)
			}
			if categories[tag.CategoryID] == "" {
				one, cancel := s.call(ctx, "GetCategory")
				category, err := manager.GetCategory(one, tag.CategoryID)
				cancel()
				if err != nil {
					return nil, fmt.Errorf("read the category of the tag %s: %w", tag.Name, err)
				}
				categories[tag.CategoryID] = category.Name
			}
			if name := categories[tag.CategoryID]; found[name] == "" {
				found[name] = tag.Name
			}
		}
	}
	return found, nil
}

// describe names a fault of vCenter, and the privilege that was missing.
func describe(err error) string {
	text := err.Error()
	var login *types.InvalidLogin
	if _, ok := fault.As(err, &login); ok {
		return "vCenter refuses the user or the password (InvalidLogin)"
	}
	var denied *types.NoPermission
	if _, ok := fault.As(err, &denied); ok {
		text = "permission denied"
		if denied.PrivilegeId != "" {
			text += ": " + denied.PrivilegeId
		}
		if denied.Object != nil {
			text += " on " + denied.Object.String()
		}
	}
	return strings.TrimPrefix(text, "ServerFaultCode: ")
}

// ReadConfig reads the configuration into the facts.
func ReadConfig(file string, facts *checks.Facts) {
	content, err := os.ReadFile(file)
	if err != nil {
		facts.ConfigErr = err
		return
	}
	facts.Connection, facts.ConfigErr = checks.ParseConfig(content)
	if facts.ConfigErr != nil {
		facts.ConfigErr = fmt.Errorf("%s: %w", file, facts.ConfigErr)
	}
}
