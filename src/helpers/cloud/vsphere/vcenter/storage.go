package vcenter

import (
	"context"
	"errors"
	"maps"

	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"kubernetes-release/cloud/vsphere/checks"
)

// storage asks for what StorageClasses name, and returns the objects whose privileges are asked for: those of the VM,
// and the datastores that classes name. If all name one, volumes are not on those of the VM.
func (s *Session) storage(ctx context.Context, objects inventory) inventory {
	f := s.facts
	objects = maps.Clone(objects)
	if f.NamesDatastores() {
		var named inventory
		f.Stores, named, f.StoresErr = s.stores(ctx)
		if f.NamesAllDatastores() && f.StoresErr == nil {
			maps.DeleteFunc(objects, func(ref types.ManagedObjectReference, _ map[string]any) bool {
				return ref.Type == "Datastore"
			})
		}
		maps.Copy(objects, named)
	}
	if f.NamesPolicies() {
		f.Policies, f.PoliciesErr = s.policies(ctx)
	}
	return objects
}

// stores lists the datastores of all datacenters with one call. Named are those that a StorageClass names.
func (s *Session) stores(ctx context.Context) (stores []checks.Store, named inventory, err error) {
	again := []types.BaseSelectionSpec{
		&types.SelectionSpec{Name: "down"}, &types.SelectionSpec{Name: "datastores"},
	}
	ctx, cancel := s.call(ctx, "RetrieveProperties")
	defer cancel()
	answer, err := methods.RetrieveProperties(ctx, s.client, &types.RetrieveProperties{
		This: s.client.ServiceContent.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{
			ObjectSet: []types.ObjectSpec{{
				Obj: s.client.ServiceContent.RootFolder,
				SelectSet: []types.BaseSelectionSpec{
					&types.TraversalSpec{
						SelectionSpec: types.SelectionSpec{Name: "down"}, Type: "Folder", Path: "childEntity",
						SelectSet: again,
					},
					&types.TraversalSpec{
						SelectionSpec: types.SelectionSpec{Name: "datastores"}, Type: "Datacenter", Path: "datastore",
					},
				},
			}},
			PropSet: []types.PropertySpec{
				{Type: "Datacenter", PathSet: []string{"name", "datastore"}},
				{Type: "Datastore", PathSet: []string{"name", "parent", "summary.accessible", "summary.url"}},
			},
		}},
	})
	if err != nil {
		return nil, nil, errors.New(describe(err))
	}
	datacenters, found := map[types.ManagedObjectReference]string{}, inventory{}
	for _, content := range answer.Returnval {
		values := map[string]any{}
		for _, p := range content.PropSet {
			values[p.Name] = p.Val
		}
		if content.Obj.Type == "Datastore" {
			found[content.Obj] = values
			continue
		}
		for _, ref := range get[types.ArrayOfManagedObjectReference](values, "datastore").ManagedObjectReference {
			datacenters[ref] = get[string](values, "name")
		}
	}
	named = inventory{}
	for ref, values := range found {
		store := checks.Store{
			Name: get[string](values, "name"), Datacenter: datacenters[ref], URL: get[string](values, "summary.url"),
			Accessible: get[bool](values, "summary.accessible"),
		}
		stores = append(stores, store)
		if s.facts.IsNamedStore(store.URL) {
			named[ref] = values
		}
	}
	return stores, named, nil
}

// policies lists the names of storage policies, with three calls of an API of their own, to which the session of
// vCenter gives access.
func (s *Session) policies(ctx context.Context) ([]string, error) {
	connect, cancel := s.call(ctx, "PbmRetrieveServiceContent")
	defer cancel()
	client, err := pbm.NewClient(connect, s.client)
	if err != nil {
		return nil, errors.New(describe(err))
	}
	defer client.CloseIdleConnections()
	query, cancel := s.call(ctx, "PbmQueryProfile")
	defer cancel()
	ids, err := client.QueryProfile(query, pbmtypes.PbmProfileResourceType{
		ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE),
	}, string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	read, cancel := s.call(ctx, "PbmRetrieveContent")
	defer cancel()
	profiles, err := client.RetrieveContent(read, ids)
	if err != nil {
		return nil, errors.New(describe(err))
	}
	var names []string
	for _, profile := range profiles {
		names = append(names, profile.GetPbmProfile().Name)
	}
	return names, nil
}
