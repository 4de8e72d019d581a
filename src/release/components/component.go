// Package components builds the upstream projects that the release ships, each from the Go module below
// src/components that pins it.
//
// The same sources give the same bytes wherever they are built: paths are trimmed, nothing is stamped from a
// repository, versions come from the pins. What else goes into a binary (the Go version, and the C compiler and
// static libraries where a project needs them) is part of a component's fingerprint, so that a change of it
// builds the component again.
package components

import (
	"slices"
	"strings"
)

// Component is what is built in one go from one pin.
type Component struct {
	// Name is the component's name, and its folder in the build output.
	Name string
	// Pin is the folder below src/components whose go.mod names the versions.
	Pin string
	// Module is the Go module whose version is the component's.
	Module string
	// Binaries are the programs.
	Binaries []Binary
	// Tags are Go build tags.
	Tags []string
	// Cgo says that parts of it are C; it is then linked statically against Libraries.
	Cgo bool
	// PIE links a position-independent executable.
	PIE bool
	// Libraries are the Debian packages with the static C libraries that end up in the binaries.
	Libraries []string
	// Variables are string variables that the linker sets (path of package, dot, name). In values, {version} stands
	// for the component's version with its v, {major} and {minor} for its parts.
	Variables map[string]string
	// Links are further names of the first binary.
	Links []string
	// CSource, if set, is a C file in Module that makes the one binary, in place of a Go build.
	CSource string
	// CVersionFile is a Makefile in Module that says TAG ?= the C program's own version.
	CVersionFile string
}

// Binary is one program of a component.
type Binary struct {
	// Name is the file's name in the component's bin folder.
	Name string
	// Package is the Go package of its main function; "." is the pin's own.
	Package string
}

// kubernetesPrograms are links to one binary, see src/components/kubernetes.
var kubernetesPrograms = []string{
	"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
}

// All lists the components in the order in which they are built, the one that shares most with others first.
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
				{"ecr-credential-provider", "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider"},
			},
			// gRPC's debug pages bring templates, and these make the linker keep every method, such as all of EC2's actions: 115 MB
			// instead of 51.
			Tags: []string{"grpcnotrace"},
			Variables: map[string]string{
				"k8s.io/component-base/version.gitVersion": "{version}",
				"main.gitVersion":                          "{version}",
			},
		},
		{
			Name: "containerd", Pin: "containerd", Module: "github.com/containerd/containerd/v2",
			Binaries: []Binary{
				{"containerd", "."},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
			},
			Links: []string{"ctr"},
			// Of the snapshotters, overlayfs is the one that the jobs configure.
			Tags:      []string{"no_btrfs", "no_devmapper", "no_zfs", "urfave_cli_no_docs"},
			Variables: map[string]string{"github.com/containerd/containerd/v2/version.Version": "{version}"},
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
			Libraries: []string{"libc6-dev"},
			Variables: map[string]string{"github.com/flannel-io/flannel/pkg/version.Version": "{version}"},
		},
		{
			Name: "cni-plugins", Pin: "cni-plugins", Module: "github.com/containernetworking/plugins",
			Binaries: []Binary{
				{"bridge", "github.com/containernetworking/plugins/plugins/main/bridge"},
				{"host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"},
				{"loopback", "github.com/containernetworking/plugins/plugins/main/loopback"},
				{"portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"},
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
			Libraries: []string{"libc6-dev", "libseccomp-dev"},
		},
		{
			Name: "pause", Pin: "kubernetes", Module: "k8s.io/kubernetes",
			Binaries:     []Binary{{"pause", ""}},
			CSource:      "build/pause/linux/pause.c",
			CVersionFile: "build/pause/Makefile",
			Libraries:    []string{"libc6-dev"},
		},
	}
}

// Names returns the names of all components.
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return names
}

// Named returns the components with these names in the order of All; without names it returns all.
func Named(names ...string) []Component {
	if len(names) == 0 {
		return All()
	}
	return slices.DeleteFunc(All(), func(c Component) bool { return !slices.Contains(names, c.Name) })
}

// kubernetesVersion sets what a Kubernetes program says of itself. The time is fixed, or no two builds would be equal.
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

// expand fills a variable's value in from a version such as v1.37.0.
func expand(value, version string) string {
	parts := append(strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3), "", "")
	return strings.NewReplacer("{version}", version, "{major}", parts[0], "{minor}", parts[1]).Replace(value)
}
