package checks

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"kubernetes-release/internal/spelling"
	"kubernetes-release/preflight"
)

// Store is a datastore that the CSI driver can create volumes on.
type Store struct {
	Name, Datacenter string
	// URL is how StorageClasses name it, such as ds:///vmfs/volumes/5c9bb20e-009c1e46/.
	URL        string
	Accessible bool
}

// NamesDatastores and NamesPolicies report whether a StorageClass names one, so that vCenter must be asked.
func (f *Facts) NamesDatastores() bool { return f.names(DatastoreParameter) }

// NamesPolicies reports whether a StorageClass names a storage policy.
func (f *Facts) NamesPolicies() bool { return f.names(PolicyParameter) }

func (f *Facts) names(parameter string) bool {
	for _, parameters := range f.Settings.StorageParameters {
		if parameters[parameter] != "" {
			return true
		}
	}
	return false
}

// NamesAllDatastores reports whether each StorageClass names one, so that volumes are on no others.
func (f *Facts) NamesAllDatastores() bool {
	for _, parameters := range f.Settings.StorageParameters {
		if parameters[DatastoreParameter] == "" {
			return false
		}
	}
	return len(f.Settings.StorageParameters) > 0
}

// IsNamedStore reports whether a StorageClass names the datastore with this URL.
func (f *Facts) IsNamedStore(url string) bool {
	for _, parameters := range f.Settings.StorageParameters {
		if parameters[DatastoreParameter] == url {
			return url != ""
		}
	}
	return false
}

// checkStorageClasses looks for what StorageClasses name: the driver would refuse each claim.
func checkStorageClasses(f *Facts) preflight.Outcome {
	if !f.Settings.Storage {
		return passed("no CSI driver is deployed")
	}
	var findings []preflight.Finding
	var unknown []string
	for _, class := range slices.Sorted(maps.Keys(f.Settings.StorageParameters)) {
		parameters := f.Settings.StorageParameters[class]
		if url := parameters[DatastoreParameter]; url != "" {
			if f.StoresErr != nil {
				unknown = append(unknown, "the datastores: "+skipped(f.StoresErr).Skip)
			} else if finding := f.checkStore(class, url); finding != nil {
				findings = append(findings, *finding)
			}
		}
		if policy := parameters[PolicyParameter]; policy != "" {
			if f.PoliciesErr != nil {
				unknown = append(unknown, "the storage policies: "+skipped(f.PoliciesErr).Skip)
			} else if !slices.Contains(f.Policies, policy) {
				findings = append(findings, f.noPolicy(class, policy))
			}
		}
	}
	switch {
	case len(findings) > 0:
		return found(findings...)
	case len(unknown) > 0:
		return preflight.Outcome{Skip: list(slices.Compact(unknown))}
	}
	return passed("%s", list(slices.Sorted(maps.Keys(f.Settings.StorageParameters))))
}

// checkStore returns what is wrong with the datastore that a class names; nil if nothing is. Datastores of several
// datacenters can have one URL.
func (f *Facts) checkStore(class, url string) *preflight.Finding {
	finding := &preflight.Finding{
		Resource: "StorageClass " + class,
		Wanted:   "a datastore with the URL " + url + f.inDatacenters(),
		Why:      "The CSI driver refuses each claim of the class.",
	}
	var urls []string
	for _, store := range f.Stores {
		urls = append(urls, store.URL)
		switch {
		case store.URL != url:
		case !f.isConfigured(store.Datacenter):
			finding.Found = store.Name + " is in " + store.Datacenter
			finding.Fix = []preflight.Fix{byHand(
				"add " + store.Datacenter + " to datacenters in config of the job cloud-provider, or name another " +
					"datastore",
			)}
		case !store.Accessible:
			finding.Found = "no host reaches " + store.Name
			finding.Eventual = true
			finding.Fix = []preflight.Fix{byHand("connect the datastore again, or name another one")}
		default:
			return nil
		}
	}
	if finding.Found == "" {
		finding.Found = fmt.Sprintf("none of the %d datastores that %s may read has it", len(urls), f.User)
		if near := spelling.Nearest(url, urls); near != "" {
			finding.Found += "; did you mean " + near + "?"
		}
		finding.Fix = []preflight.Fix{byCommand(
			"set parameters."+DatastoreParameter+" of the class in storage_classes of job csi-driver-image to one of "+
				"these URLs",
			"govc datastore.info",
		)}
	}
	return finding
}

func (f *Facts) inDatacenters() string {
	if len(f.VCenter.Datacenters) == 0 {
		return ""
	}
	return " in one of the datacenters " + list(f.VCenter.Datacenters)
}

// isConfigured reports whether the driver looks in a datacenter.
func (f *Facts) isConfigured(name string) bool {
	return len(f.VCenter.Datacenters) == 0 || slices.ContainsFunc(f.VCenter.Datacenters, func(configured string) bool {
		return path.Base(strings.TrimRight(configured, "/")) == name
	})
}

func (f *Facts) noPolicy(class, policy string) preflight.Finding {
	found := "there are " + list(f.Policies)
	if near := spelling.Nearest(policy, f.Policies); near != "" {
		found = "there is none; did you mean " + near + "?"
	}
	return preflight.Finding{
		Resource: "StorageClass " + class,
		Wanted:   "a storage policy " + policy + " in vCenter, which " + f.User + " may see",
		Found:    found,
		Why:      "The CSI driver refuses each claim of the class.",
		Fix: []preflight.Fix{byCommand(
			"set parameters."+PolicyParameter+" of the class in storage_classes of job csi-driver-image to one of "+
				"these, or create it",
			"govc storage.policy.ls",
		)},
	}
}
