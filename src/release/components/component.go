// Package components builds the upstream projects that the release ships, each from the Go module in src/components
// that pins it.
//
// Builds are reproducible: paths are trimmed, versions come from the pins and not from a repository. The other things
// that a binary depends on (the Go version, and for some projects the C compiler and static libraries) are part of a
// component's fingerprint, so that a change builds the component again.
package components

import (
	"slices"
	"strings"
)

// Component is a set of programs that one go build builds from a pin.
type Component struct {
	// Name is the component's name, and its folder in the build output.
	Name string
	// Pin is the folder in src/components whose go.mod has the versions.
	Pin string
	// ModFile, if set, is the file there that has the versions in place of go.mod, as go's -modfile.
	ModFile string `json:",omitempty"`
	// Module is the Go module that the component has its version from.
	Module string
	// Binaries are the programs.
	Binaries []Binary
	// Merged, if set, are the programs that the only binary consists of, whose package is then "."; it runs the one by
	// whose name it is called, see Links.
	Merged []Binary `json:",omitempty"`
	// Tags are Go build tags.
	Tags []string
	// Cgo is true if parts of it are C code, which is linked statically with Libraries.
	Cgo bool
	// PIE links a position-independent executable.
	PIE bool
	// Libraries are the Debian packages of the static C libraries in the binaries.
	Libraries []string
	// Variables are string variables (package path, dot, name) that the linker sets. In values, {version} is replaced
	// with the component's version with its v, {major} and {minor} with its parts.
	Variables map[string]string
	// Links are additional names of the first binary.
	Links []string
	// Manifests are files of modules that the programs require, such as CustomResourceDefinitions. They are copied to
	// manifests/.
	Manifests []Manifests `json:",omitempty"`
	// Replaced are files of required modules that the build replaces.
	Replaced []Replacement `json:",omitempty"`
	// NotInlined are patterns of packages in which the compiler inlines no calls (its flag -l), which makes programs
	// smaller, and those that compute slower.
	NotInlined []string `json:",omitempty"`
	// CSource, if set, is a C file in Module; the only binary is compiled from it, without a Go build.
	CSource string
	// CVersionFile is a Makefile in Module with the line TAG ?= VERSION, the C program's own version.
	CVersionFile string
}

// Manifests are files of a module that the pin requires.
type Manifests struct {
	Module string
	// Files are paths in the module; their base names must differ.
	Files []string
	// Folder is the folder below manifests/ for what not every cluster applies; empty: manifests/ itself.
	Folder string `json:",omitempty"`
}

// Replacement is a file of a module that the build replaces with one of the pin's folder.
type Replacement struct {
	Module string
	// File is the path in the module, With the name in the pin's folder.
	File, With string
}

// Binary is one program of a component.
type Binary struct {
	// Name is the file's name in the component's bin folder.
	Name string
	// Package is its main package; "." is the pin's own.
	Package string
}

// libgcc is the package with what gcc adds to every static program (libgcc, libgcc_eh and its start files).
const libgcc = "libgcc-12-dev"

// kubernetesPrograms are links to one binary, see src/components/kubernetes.
var kubernetesPrograms = []string{
	"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics-server",
}

// csiPrograms are the EBS CSI driver, and the sidecars: controllers that connect any driver to Kubernetes. They share
// most of their packages, and as one binary take half the space.
var csiPrograms = []Binary{
	{"aws-ebs-csi-driver", "github.com/kubernetes-sigs/aws-ebs-csi-driver/cmd"},
	{"csi-attacher", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"},
	{"csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"},
	{"csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"},
	{"csi-snapshotter", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"},
	{"snapshot-controller", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"},
}

// All lists the components in the order of their builds, first the one that shares the most packages with others.
func All() []Component {
	return []Component{
		{
			Name: "kubernetes", Pin: "kubernetes", Module: "k8s.io/kubernetes",
			Binaries:  []Binary{{"kubernetes", "."}},
			Links:     kubernetesPrograms,
			Variables: kubernetesVersion("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
		},
		{
			Name: "cloud-provider-aws", Pin: "cloud-provider-aws", Module: "k8s.io/cloud-provider-aws",
			Binaries: []Binary{
				{"aws-cloud-controller-manager", "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager"},
			},
			// gRPC's debug pages use templates, which make the linker keep every method, such as all of EC2's actions:
			// 115 MB instead of 51.
			Tags: []string{"grpcnotrace"},
			Variables: map[string]string{
				"k8s.io/component-base/version.gitVersion": "{version}",
			},
		},
		{
			Name: "ecr-credential-provider", Pin: "cloud-provider-aws", Module: "k8s.io/cloud-provider-aws",
			Binaries: []Binary{
				{"ecr-credential-provider", "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider"},
			},
			Variables: map[string]string{"main.gitVersion": "{version}"},
		},
		{
			Name: "cloud-provider-openstack", Pin: "cloud-provider-openstack",
			Module: "k8s.io/cloud-provider-openstack",
			Binaries: []Binary{{
				"openstack-cloud-controller-manager",
				"k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager",
			}},
			Tags: []string{"grpcnotrace"},
			Variables: map[string]string{
				"k8s.io/component-base/version.gitVersion":            "{version}",
				"k8s.io/cloud-provider-openstack/pkg/version.Version": "{version}",
			},
		},
		{
			Name: "cinder-csi-plugin", Pin: "cloud-provider-openstack", Module: "k8s.io/cloud-provider-openstack",
			Binaries: []Binary{{"cinder-csi-plugin", "k8s.io/cloud-provider-openstack/cmd/cinder-csi-plugin"}},
			Tags:     []string{"grpcnotrace"},
			Variables: map[string]string{
				"k8s.io/cloud-provider-openstack/pkg/version.Version": "{version}",
			},
		},
		{
			Name: "csi", Pin: "csi", Module: "github.com/kubernetes-sigs/aws-ebs-csi-driver",
			Binaries: []Binary{{"csi", "."}},
			Merged:   csiPrograms,
			Links:    names(csiPrograms),
			Tags:     []string{"grpcnotrace"},
			Variables: map[string]string{
				"github.com/kubernetes-sigs/aws-ebs-csi-driver/pkg/driver.driverVersion": "{version}",
				"github.com/kubernetes-sigs/aws-ebs-csi-driver/pkg/cloud.driverVersion":  "{version}",
			},
			Manifests: []Manifests{{Module: "github.com/kubernetes-csi/external-snapshotter/client/v8", Files: []string{
				"config/crd/snapshot.storage.k8s.io_volumesnapshotclasses.yaml",
				"config/crd/snapshot.storage.k8s.io_volumesnapshotcontents.yaml",
				"config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml",
			}}},
		},
		{
			Name: "aws-load-balancer-controller", Pin: "aws-load-balancer-controller",
			Module: "sigs.k8s.io/aws-load-balancer-controller",
			// Programs that name methods by reflection have all methods of all types, such as each of EC2's actions.
			// go-cmp does so to write the name of a type into messages: 94 MB with that, 45 without it.
			Replaced: []Replacement{
				{Module: "github.com/google/go-cmp", File: "cmp/internal/value/name.go", With: "typename.go"},
			},
			// 45 MB without this, of which the tarball has 10.1, and 41 MB with it, of which it has 9. The controller
			// waits for AWS. The standard library, such as its cryptography, stays as it is.
			NotInlined: []string{"github.com/...", "k8s.io/...", "sigs.k8s.io/..."},
			Binaries: []Binary{
				{"aws-load-balancer-controller", "sigs.k8s.io/aws-load-balancer-controller"},
			},
			Variables: map[string]string{
				"sigs.k8s.io/aws-load-balancer-controller/pkg/version.GitVersion": "{version}",
			},
			Manifests: []Manifests{
				{Module: "sigs.k8s.io/aws-load-balancer-controller", Files: []string{
					"config/crd/bases/elbv2.k8s.aws_ingressclassparams.yaml",
					"config/crd/bases/elbv2.k8s.aws_targetgroupbindings.yaml",
				}},
				{Module: "sigs.k8s.io/aws-load-balancer-controller", Folder: "gateway", Files: []string{
					"config/crd/gateway/gateway.k8s.aws_listenerruleconfigurations.yaml",
					"config/crd/gateway/gateway.k8s.aws_loadbalancerconfigurations.yaml",
					"config/crd/gateway/gateway.k8s.aws_targetgroupconfigurations.yaml",
				}},
				// What the controller implements of Gateway API (pkg/gateway/crddetect in its source): the standard
				// channel, and of the experimental one only the routes that it lacks.
				{Module: "sigs.k8s.io/gateway-api", Folder: "gateway-api", Files: []string{
					"config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml",
					"config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
					"config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
					"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
					"config/crd/standard/gateway.networking.k8s.io_listenersets.yaml",
					"config/crd/standard/gateway.networking.k8s.io_referencegrants.yaml",
					"config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml",
					"config/crd/experimental/gateway.networking.k8s.io_tcproutes.yaml",
					"config/crd/experimental/gateway.networking.k8s.io_udproutes.yaml",
				}},
			},
		},
		{
			Name: "containerd", Pin: "containerd", Module: "github.com/containerd/containerd/v2",
			Binaries: []Binary{
				{"containerd", "."},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
			},
			Links: []string{"ctr"},
			// The jobs use no other snapshotter than overlayfs.
			Tags:      []string{"no_btrfs", "no_devmapper", "no_zfs", "urfave_cli_no_docs"},
			Variables: map[string]string{"github.com/containerd/containerd/v2/version.Version": "{version}"},
		},
		{
			Name: "cri-tools", Pin: "cri-tools", Module: "sigs.k8s.io/cri-tools",
			Binaries:  []Binary{{"crictl", "sigs.k8s.io/cri-tools/cmd/crictl"}},
			Variables: map[string]string{"sigs.k8s.io/cri-tools/pkg/version.Version": "{version}"},
		},
		{
			Name: "etcd", Pin: "etcd", Module: "go.etcd.io/etcd/server/v3",
			Binaries: []Binary{{"etcd", "."}},
			Links:    []string{"etcdctl", "etcdutl"},
		},
		{
			Name: "coredns", Pin: "coredns", Module: "github.com/coredns/coredns",
			Binaries: []Binary{{"coredns", "."}},
		},
		{
			Name: "flannel", Pin: "flannel", Module: "github.com/flannel-io/flannel",
			Binaries:  []Binary{{"flanneld", "github.com/flannel-io/flannel"}},
			Tags:      []string{"netgo", "osusergo"},
			Cgo:       true, // the udp backend
			Libraries: []string{"libc6-dev", libgcc},
			Variables: map[string]string{"github.com/flannel-io/flannel/pkg/version.Version": "{version}"},
		},
		{
			Name: "network-policy", Pin: "network-policy", Module: "github.com/cloudnativelabs/kube-router/v2",
			Binaries: []Binary{{"network-policy", "."}},
		},
		{
			Name: "cni-plugins", Pin: "cni-plugins", Module: "github.com/containernetworking/plugins",
			Binaries: []Binary{
				{"host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"},
				{"loopback", "github.com/containernetworking/plugins/plugins/main/loopback"},
				{"portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"},
				{"ptp", "github.com/containernetworking/plugins/plugins/main/ptp"},
			},
			Variables: map[string]string{
				"github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion": "{version}",
			},
		},
		{
			Name: "runc", Pin: "runc", Module: "github.com/opencontainers/runc",
			Binaries:  []Binary{{"runc", "github.com/opencontainers/runc"}},
			Tags:      []string{"seccomp", "urfave_cli_no_docs", "netgo", "osusergo"},
			Cgo:       true, // libseccomp, and the C code that enters namespaces
			PIE:       true,
			Libraries: []string{"libc6-dev", libgcc, "libseccomp-dev"},
		},
		{
			Name: "pause", Pin: "kubernetes", Module: "k8s.io/kubernetes",
			Binaries:     []Binary{{"pause", ""}},
			CSource:      "build/pause/linux/pause.c",
			CVersionFile: "build/pause/Makefile",
			Libraries:    []string{"libc6-dev", libgcc},
		},
	}
}

func names(programs []Binary) []string {
	var found []string
	for _, program := range programs {
		found = append(found, program.Name)
	}
	return found
}

// previousKubernetes are versions of Kubernetes that the release does not ship: tests upgrade from the previous minor
// version, and go back to the previous patch release.
func previousKubernetes() []Component {
	all := All()
	kubernetes := all[slices.IndexFunc(all, func(c Component) bool { return c.Name == "kubernetes" })]
	var previous []Component
	for _, what := range []string{"minor", "patch"} {
		c := kubernetes
		c.Name, c.ModFile = "kubernetes-previous-"+what, "previous-"+what+".mod"
		previous = append(previous, c)
	}
	return previous
}

// Names returns the names of all components, and of those that only tests use.
func Names() []string {
	var names []string
	for _, c := range append(All(), previousKubernetes()...) {
		names = append(names, c.Name)
	}
	return names
}

// Named returns the components with these names in the order of Names; without names it returns what the release ships.
func Named(names ...string) []Component {
	if len(names) == 0 {
		return All()
	}
	return slices.DeleteFunc(
		append(All(), previousKubernetes()...), func(c Component) bool { return !slices.Contains(names, c.Name) },
	)
}

// kubernetesVersion sets the version that a Kubernetes program reports. The build date is fixed, because builds must be
// reproducible.
func kubernetesVersion(packages ...string) map[string]string {
	variables := map[string]string{}
	for _, p := range packages {
		variables[p+".gitVersion"] = "{version}"
		variables[p+".gitMajor"] = "{major}"
		variables[p+".gitMinor"] = "{minor}"
		variables[p+".gitTreeState"] = "clean"
		variables[p+".buildDate"] = "1970-01-01T00:00:00Z"
	}
	return variables
}

// expand replaces the placeholders of a variable's value with the parts of a version such as v1.37.0.
func expand(value, version string) string {
	parts := append(strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3), "", "")
	return strings.NewReplacer("{version}", version, "{major}", parts[0], "{minor}", parts[1]).Replace(value)
}
