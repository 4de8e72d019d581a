// Package bench measures the release against the upstream programs that it consists of, and prints ratios.
package bench

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/release/boshrelease"
	"kubernetes-release/release/components"
	"kubernetes-release/release/progress"
)

// upstreamPrograms are the programs of upstream's own builds, by the pin that builds them. CoreDNS is built as we ship
// it: the modules of its full plugin list are not pinned here.
var upstreamPrograms = []struct {
	pin      string
	packages []string
	cgo      bool
	tags     string
}{
	{pin: "kubernetes", packages: []string{
		"k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager",
		"k8s.io/kubernetes/cmd/kube-proxy", "k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes/cmd/kubectl",
		"k8s.io/kubernetes/cmd/kubelet",
	}},
	{pin: "cloud-provider-aws", packages: []string{
		"k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager",
		"k8s.io/cloud-provider-aws/cmd/ecr-credential-provider",
	}},
	{pin: "containerd", packages: []string{
		"github.com/containerd/containerd/v2/cmd/containerd",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		"github.com/containerd/containerd/v2/cmd/ctr",
	}},
	{pin: "cri-tools", packages: []string{"sigs.k8s.io/cri-tools/cmd/crictl"}},
	{pin: "runc", packages: []string{"github.com/opencontainers/runc"}, cgo: true, tags: "seccomp"},
	{
		pin:      "etcd",
		packages: []string{"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"},
	},
	{pin: "flannel", packages: []string{"github.com/flannel-io/flannel"}, cgo: true},
	{pin: "cni-plugins", packages: []string{
		"github.com/containernetworking/plugins/plugins/main/ptp",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/plugins/plugins/main/loopback",
		"github.com/containernetworking/plugins/plugins/meta/portmap",
	}},
	{pin: "coredns", packages: []string{"."}},
}

// SizeAim is the maximum size of the tarball, relative to the bare programs.
const SizeAim = 0.5

// FeatureSizeAim is the maximum size of the tarball, relative to the same without an optional feature.
const FeatureSizeAim = 1.05

// Size builds the upstream programs with go build's defaults and -trimpath, gzips each, and returns the size of the
// release tarball against their sum in bytes, once with symbol tables, as go build leaves them, and once stripped, as
// ours are.
func Size(ctx context.Context, root string, release boshrelease.Result, out io.Writer) ([]Figure, error) {
	work, err := os.MkdirTemp("", "bench-size-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var figures []Figure
	kinds := []struct{ figure, name, link string }{
		{"size", "go build's defaults", ""}, {"size-stripped", "stripped", "-s -w"},
	}
	step := progress.NewStep(out, "size")
	defer step.Close()
	step.Parts(len(kinds)*len(upstreamPrograms), 0)
	for _, kind := range kinds {
		var total int64
		for _, upstream := range upstreamPrograms {
			part := step.Part(upstream.pin+", "+kind.name, 0)
			dir := filepath.Join(work, kind.name, upstream.pin)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			cgo := "CGO_ENABLED=0"
			if upstream.cgo {
				cgo = "CGO_ENABLED=1"
			}
			arguments := []string{
				"build", "-trimpath", "-buildvcs=false", "-tags", upstream.tags, "-ldflags", kind.link, "-o", dir + "/",
			}
			command := exec.CommandContext(ctx, "go", append(arguments, upstream.packages...)...)
			command.Dir = filepath.Join(root, "src", "components", upstream.pin)
			command.Env = append(os.Environ(), cgo, "GOFLAGS=-mod=readonly", "GOWORK=off")
			if text, err := command.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, text)
			}
			size, err := gzipped(dir)
			if err != nil {
				return nil, err
			}
			total += size
			part.Done("%d programs, %s gzipped", len(upstream.packages), components.Size(size))
			if err := os.RemoveAll(dir); err != nil {
				return nil, err
			}
		}
		figures = append(figures, Figure{
			Name: kind.figure,
			What: "size of the release tarball, which also holds the images and everything else that the release " +
				"ships",
			Unit:    Bytes,
			Aim:     SizeAim,
			Subject: "release tarball",
			Ours:    float64(release.Size),
			Against: "bare upstream programs, " + kind.name + ", each gzipped",
			Base:    float64(total),
		})
	}
	step.Finish("built the upstream programs")
	balancers, err := addedSize(root, release.Size, Figure{
		Name: "size-load-balancers", What: "size that the AWS Load Balancer Controller adds to the release tarball",
		Aim: FeatureSizeAim,
		Note: "Roles for pods, encryption with KMS, notices of EC2 and DNS on each node are parts of programs that " +
			"are shipped in any case.",
	}, "aws-load-balancer-controller")
	return append(figures, balancers), err
}

// addedSize compares the tarball with the same without packages, of one blob each. Of several, the figure has parts.
func addedSize(root string, tarball int64, f Figure, packages ...string) (Figure, error) {
	var added int64
	for _, name := range packages {
		blob, err := os.Stat(filepath.Join(root, ".build", "blobs", name, name+".tar.xz"))
		if err != nil {
			return Figure{}, fmt.Errorf("%w; `make release` builds it", err)
		}
		added += blob.Size()
		if len(packages) > 1 {
			f.Parts = append(f.Parts, Part{Name: name, Value: float64(blob.Size())})
		}
	}
	f.Unit, f.Subject, f.Ours = Bytes, "release tarball", float64(tarball)
	f.Against, f.Base = "without "+components.Size(added), float64(tarball-added)
	return f, nil
}

// gzipped is the total size of a folder's files, each gzipped separately.
func gzipped(dir string) (int64, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	sizes := make([]int64, len(files))
	var group errgroup.Group
	group.SetLimit(2)
	for i, file := range files {
		group.Go(func() error {
			var count counter
			compressed, err := gzip.NewWriterLevel(&count, gzip.BestCompression)
			if err != nil {
				return err
			}
			source, err := os.Open(filepath.Join(dir, file.Name()))
			if err != nil {
				return err
			}
			_, err = io.Copy(compressed, source)
			err = errors.Join(err, compressed.Close(), source.Close())
			sizes[i] = int64(count)
			return err
		})
	}
	err = group.Wait()
	var total int64
	for _, size := range sizes {
		total += size
	}
	return total, err
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}
