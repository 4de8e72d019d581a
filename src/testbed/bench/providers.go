package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"kubernetes-release/release/progress"
)

const (
	// ProvidersSizeAim is the maximum size of the tarball, relative to the same without the programs of OpenStack and
	// vSphere. VMs on AWS do not unpack them (TestPackagesOfEachCloud).
	ProvidersSizeAim = 1.15
	// ProvidersBuildAim is the maximum time to build what a provider adds, relative to what AWS has.
	ProvidersBuildAim = 1.5
)

// providerPrograms are what each provider adds to the release: its packages, and what go build is asked for, by module.
// The pattern "tool" is what a module pins.
var providerPrograms = []struct {
	provider string
	packages []string
	builds   map[string]string
}{
	{"aws", nil, map[string]string{"src/components/cloud-provider-aws": "tool", "src/components/csi": "tool"}},
	{
		"openstack", []string{"cloud-provider-openstack", "cinder-csi-plugin"},
		map[string]string{"src/components/cloud-provider-openstack": "tool"},
	},
	{"vsphere", []string{"vcenter"}, map[string]string{"src/helpers": "./cmd/vcenter"}},
}

// Providers measures what the providers of other clouds than AWS add to the release.
type Providers struct {
	// Root is the repository.
	Root string
	// ReleaseSize is the size of the release tarball.
	ReleaseSize int64
	Out         io.Writer
}

// Measure returns the figures: the size of the tarball, and the time to build the programs with an empty cache.
func (p Providers) Measure(ctx context.Context) ([]Figure, error) {
	size, err := p.size()
	if err != nil {
		return nil, err
	}
	times, err := p.times(ctx)
	if err != nil {
		return nil, err
	}
	figures := []Figure{size}
	for i, added := range providerPrograms[1:] {
		figures = append(figures, Figure{
			Name:    "build-" + added.provider,
			What:    "processor time to build the programs of a provider with an empty cache of go build",
			Unit:    Seconds,
			Aim:     ProvidersBuildAim,
			Subject: added.provider,
			Ours:    times[i+1],
			Against: "aws, with its volumes and the sidecars",
			Base:    times[0],
		})
	}
	return figures, nil
}

func (p Providers) size() (Figure, error) {
	var packages []string
	for _, provider := range providerPrograms {
		packages = append(packages, provider.packages...)
	}
	return addedSize(p.Root, p.ReleaseSize, Figure{
		Name: "providers-size", What: "size that the programs of OpenStack and vSphere add to the release tarball",
		Aim: ProvidersSizeAim,
	}, packages...)
}

// times returns how long processors take to build each provider's programs.
func (p Providers) times(ctx context.Context) ([]float64, error) {
	step := progress.NewStep(p.Out, "providers")
	defer step.Close()
	step.Parts(len(providerPrograms), 0)
	var times []float64
	for _, provider := range providerPrograms {
		part := step.Part(provider.provider, 0)
		took, err := p.build(ctx, provider.builds)
		if err != nil {
			return nil, err
		}
		part.Done("built in %.1f s of a processor", took.Seconds())
		times = append(times, took.Seconds())
	}
	step.Finish("built the programs of each provider with an empty cache")
	return times, nil
}

// build builds with an empty cache, and returns how long processors took for that.
func (p Providers) build(ctx context.Context, builds map[string]string) (took time.Duration, err error) {
	work, err := os.MkdirTemp("", "bench-providers-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for module, pattern := range builds {
		command := exec.CommandContext(
			ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
			"-o", filepath.Join(work, "bin")+string(filepath.Separator), pattern,
		)
		command.Dir = filepath.Join(p.Root, module)
		command.Env = append(
			os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off",
			"GOCACHE="+filepath.Join(work, "cache"),
		)
		if text, err := command.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", command, err, text)
		}
		took += command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}
	return took, nil
}
