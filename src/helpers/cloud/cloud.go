// Package cloud describes what a cloud provider is. Each provider is one package below this one, with a type Provider;
// package providers lists them all.
package cloud

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"

	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// Provider is a cloud that a cluster can be deployed in. What a provider can do beyond that is an interface of its own,
// which it need not implement: Checker, Identifier, Attester, Locator.
type Provider interface {
	// About describes the provider. It returns the same every time.
	About() About
}

// About describes a provider.
type About struct {
	// Name is the property type of the job cloud-provider, and the name of the provider's package.
	Name string
	// Title is the cloud's name for people.
	Title string
	// Project is the upstream project with the cloud controller manager.
	Project string
	// Removed is the version of Kubernetes that removed the provider that was compiled into it; empty if none was.
	Removed string
	// Flag is the value of --cloud-provider; empty if the operator must set it.
	Flag string
	// Job is the job of this release that runs the cloud controller manager; empty if only pods can.
	Job string
	// Manifests are the files with which it runs in pods, YAML documents for package cloud/controller.
	Manifests fs.FS
	// ConfigRequired is true if the cloud controller manager does not start without a configuration file.
	ConfigRequired bool
	// PublicConfig is true if no configuration file has credentials: in pods it is a ConfigMap then, which whoever has
	// the role view can read, and else a Secret.
	PublicConfig bool
	// ConfigKeys are the sections and keys that the file can be written with as a map in the manifest; nil if it can
	// only be written as text.
	ConfigKeys []ConfigKey
	// Driver is the CSI driver of the cloud's volumes that can run in pods, from images of the operator; nil if none
	// can.
	Driver *Driver
	// BOSHNames: Nodes have BOSH's names, although the provider is a Checker.
	BOSHNames bool
	// OpsFile and Page are the names of the ops-file and of the page in docs with which it is deployed.
	OpsFile, Page string
}

// Driver describes a CSI driver that runs in pods.
type Driver struct {
	// Name is the driver's own, such as csi.vsphere.vmware.com.
	Name string
	// Project is the upstream project with the driver.
	Project string
	// Programs are the containers whose images are the project's own; those of all others are sidecars of Kubernetes.
	Programs []string
	// Manifests are the files with which it runs, YAML documents for package cloud/driver.
	Manifests fs.FS
	// Parameters are those of its StorageClasses that operators can set.
	Parameters []string
	// Config returns the files that the driver reads, from the configuration of the cloud controller manager.
	Config func(cloudConfig []byte) (DriverConfig, error)
}

// DriverConfig is the configuration of a CSI driver.
type DriverConfig struct {
	// Files are the driver's files, by name. They can hold passwords.
	Files map[string]string
	// Zones: volumes are in zones, whose names are those of the label topology.kubernetes.io/zone of Nodes.
	Zones bool
}

// ConfigKey is a key of a configuration file. Its kind decides which values templates accept.
type ConfigKey struct {
	Section, Name string
	Kind          ConfigKind
	Required      bool
}

// ConfigKind is the kind of a value.
type ConfigKind string

// Text has one line, List several of them; CA is a file whose content is the property ca of the job cloud-provider.
const (
	Text     ConfigKind = "text"
	List     ConfigKind = "list"
	Number   ConfigKind = "number"
	Boolean  ConfigKind = "boolean"
	Duration ConfigKind = "duration"
	CA       ConfigKind = "ca"
)

// CAFile is where the property ca is, relative to the folder of the job that reads the configuration file: bpm starts
// processes there (workdir in docs/config.md of bpm-release).
const CAFile = "config/cloud_ca.pem"

// Checker is a Provider that identifies machines and checks what a cluster requires.
type Checker interface {
	Provider
	// Checks lists the provider's checks, the most important first.
	Checks() []preflight.Check
	// Preflight determines the identity of this machine and runs the checks that apply to the role. It changes nothing
	// in the cloud. An error means that the checks could not run at all; wrong answers of the cloud are findings.
	Preflight(ctx context.Context, request Request) (*Outcome, error)
}

// Identifier is a Provider that identifies machines and has no checks.
type Identifier interface {
	Provider
	// Identify returns the identity of this machine, which BOSH describes. An error that may end by itself is a
	// metadata.ErrTemporary.
	Identify(ctx context.Context, vm node.VM) (node.Identity, error)
}

// Attester is a Provider whose machines can prove to others which machine they are, so that nodes join without a shared
// secret.
type Attester interface {
	Provider
	// NewProver returns what creates proofs on a machine of the cluster.
	NewProver(cluster string) node.Prover
	// NewAuthority returns what verifies them on another machine of the cluster. The roles are those that nodes can
	// have in the cloud; without any, the provider decides.
	NewAuthority(cluster string, roles []string) node.Authority
}

// Locator is a Provider that control VMs ask which VM is that of an instance of BOSH. If it returns a node.Namer, Nodes
// have the names of their VMs, else BOSH's.
type Locator interface {
	Provider
	// NewLocator returns what asks with the configuration of the cloud controller manager in this file, which it reads
	// when it is asked.
	NewLocator(cloudConfigFile string) node.Locator
}

// Request is one run.
type Request struct {
	Config preflight.Config
	// CloudConfig is the content of the file for the cloud controller manager; nil without one.
	CloudConfig []byte
	Log         *slog.Logger // may be nil
}

// Logger is Log, or discards what it is given.
func (r Request) Logger() *slog.Logger { return cmp.Or(r.Log, slog.New(slog.DiscardHandler)) }

// Outcome is the result of a run.
type Outcome struct {
	Identity     *node.Identity // nil if it could not be determined
	Machine      string         // the cloud's id of this machine
	Results      []preflight.Result
	Explanations []preflight.Explanation
	Calls        []preflight.Calls
	Secrets      []string // must not appear in any report
}
