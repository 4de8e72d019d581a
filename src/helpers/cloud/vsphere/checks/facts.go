package checks

import (
	"crypto/x509"
	"net/netip"
	"time"

	"kubernetes-release/cloud/vsphere/dmi"
	"kubernetes-release/preflight"
)

// Facts are what is known of a machine, its vCenter and the user there. An error says why the facts beside it are
// missing; they are asked for in the order of the fields, and what cannot be asked because of an earlier error has
// ErrNotAsked.
type Facts struct {
	Request  preflight.Config
	Settings Settings
	Now      time.Time

	Machine    dmi.Machine
	MachineErr error

	Connection
	ConfigErr error

	// Certificate is what the server presents; nil if there was no TLS connection.
	Certificate *x509.Certificate
	ConnectErr  error

	User     string
	LoginErr error
	// LoginRefused is whether vCenter has refused the login, and not failed. Repeated refusals lock the account.
	LoginRefused bool

	// Time is the clock of vCenter when Now was ours.
	Time    time.Time
	TimeErr error

	VM    *VM
	VMErr error

	// Privileges are those of the user, by the name of the object.
	Privileges    map[string]map[string]bool
	PrivilegesErr error

	// Stores are the datastores, and Policies the names of storage policies, if StorageClasses name any.
	Stores      []Store
	StoresErr   error
	Policies    []string
	PoliciesErr error

	// Tags are the names of the nearest tags by category, which the controller finds from the host up.
	Tags    map[string]string
	TagsErr error
}

// Settings are the section cloud of the preflight's configuration.
type Settings struct {
	// Storage: the CSI driver creates and attaches volumes with the user of control machines.
	Storage bool `json:"storage"`
	// StorageParameters are the parameters of each StorageClass, by its name.
	StorageParameters map[string]map[string]string `json:"storage_parameters"`
}

// VM is this machine in vCenter's inventory.
type VM struct {
	// Path is its place in the inventory, such as /DC/vm/FOLDER/NAME.
	Path, Name string
	Datacenter string
	// Version is its hardware version, such as vmx-19.
	Version    string
	DiskUUID   bool
	HostName   string
	Addresses  []netip.Addr
	Host       Host
	Datastores []Datastore
}

// Host is the ESXi host that runs the VM.
type Host struct{ Name, State string }

// Datastore has files of the VM.
type Datastore struct {
	Name string
	// Accessible says whether the VM's host reaches it; Reason why not.
	Accessible bool
	Reason     string
}

// IsControl reports whether the machine runs the cloud controller manager.
func (f *Facts) IsControl() bool { return f.Request.Role == preflight.Control }
