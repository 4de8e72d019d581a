package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/release/ociimage"
)

const metallbNamespace = "metallb-system"

// TestSoakMetalLB deploys MetalLB by its published manifest and ops-files/add-manifests.yml, on a cluster without a
// cloud. The address of a Service answers a VM that is no node, at the hardware address of a node, and moves to the
// other node when the first one may no longer have it. A deploy without a change leaves MetalLB alone.
func TestSoakMetalLB(t *testing.T) {
	l := soak(t)
	l.base = slices.Concat([]string{"ops-files/single-vm.yml", "ops-files/use-separate-etcd.yml"}, onNoCloud)
	l.ops, l.vars = workerOps, slices.Concat([]string{"worker_instances=1"}, oneEtcd)
	l.mustUp(t)
	nodes := []string{"control/0", "worker/0"}
	manifest := builtForMetalLB(t, "metallb-native.yaml")
	for _, instance := range nodes {
		for _, archive := range metallbImages(t, manifest) {
			if err := l.importImage(t.Context(), instance, archive); err != nil {
				t.Fatalf("%s: %v", instance, err)
			}
		}
	}

	l.ops = append(slices.Clone(l.ops), "ops-files/add-manifests.yml")
	l.varsFile = l.metallbVariables(t, manifest)
	l.mustUp(t)
	l.awaitMetalLB(t)
	pods := l.metallbPods(t)

	l.mustKubectl(t, loadBalancerManifest("balanced", "", l.smokeImage(t)), "apply", "-f", "-")
	address := l.serviceAddress(t, "balanced")
	if first := l.addressInNetwork(t, 200, 1); address != first {
		t.Errorf("the Service has the address %s, want the only one of the pool, %s", address, first)
	}
	hardware := l.hardwareAddresses(t, nodes)
	before := l.checkAnnounced(t, address, slices.Collect(maps.Values(hardware))...)

	l.mustUp(t)
	if after := l.metallbPods(t); after != pods {
		t.Errorf("a deploy without a change has replaced pods of MetalLB:\n%s\nwere\n%s", after, pods)
	}
	for _, instance := range nodes {
		if hardware[instance] != before {
			continue
		}
		const excluded = "node.kubernetes.io/exclude-from-external-load-balancers="
		l.mustKubectl(t, "", "label", "node", l.nodeOf(t, instance), excluded)
		delete(hardware, instance)
	}
	l.checkAnnounced(t, address, slices.Collect(maps.Values(hardware))...)
}

// builtForMetalLB returns a file that ci/metallb.sh has built.
func builtForMetalLB(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, ".build/metallb", name))
	if err != nil {
		t.Fatalf("%v; ci/metallb.sh builds it", err)
	}
	return content
}

// metallbImages returns archives of the images that the manifest names, with the programs that are built here.
func metallbImages(t *testing.T, manifest []byte) (archives [][]byte) {
	t.Helper()
	for program, user := range map[string]string{"controller": "65534:65534", "speaker": "0:0"} {
		reference := regexp.MustCompile(`image: (\S+/` + program + `:\S+)`).FindSubmatch(manifest)
		if reference == nil {
			t.Fatalf("the manifest has no image %s", program)
		}
		var archive bytes.Buffer
		if err := (ociimage.Archive{
			Reference: string(reference[1]), Program: "/" + program, Content: builtForMetalLB(t, program), User: user,
		}).Write(&archive); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive.Bytes())
	}
	return archives
}

// metallbVariables writes the manifest and what configures MetalLB as a file of variables for bin/lab.
func (l *lab) metallbVariables(t *testing.T, manifest []byte) (file string) {
	t.Helper()
	settings, err := os.ReadFile(filepath.Join("testdata", "metallb.yml"))
	if err != nil {
		t.Fatal(err)
	}
	only := l.addressInNetwork(t, 200, 1) // the lab gives it to no VM
	pool := strings.NewReplacer("FIRST", only, "LAST", only).Replace(string(settings))
	command := exec.Command(filepath.Join(repo, "scripts/prepare-manifests.sh"))
	command.Stdin = strings.NewReader(string(manifest) + "---\n" + pool)
	var messages strings.Builder
	command.Stderr = &messages
	prepared, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, messages.String())
	}
	variables, err := yaml.Marshal(map[string]string{"manifests": string(prepared)})
	file = filepath.Join(t.TempDir(), "vars.yml")
	if err := errors.Join(err, os.WriteFile(file, variables, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func (l *lab) awaitMetalLB(t *testing.T) {
	t.Helper()
	// A speaker waits for the Secret that the controller creates; kubelet tries again after up to two minutes.
	waitFor(t, 6*time.Minute, "MetalLB", func() error {
		for _, workload := range []string{"deployment/controller", "daemonset/speaker"} {
			if out, err := l.kubectl(
				t, "", "-n", metallbNamespace, "rollout", "status", workload, "--timeout=60s",
			); err != nil {
				pods, _ := l.kubectl(t, "", "-n", metallbNamespace, "get", "pods,events")
				return fmt.Errorf("%w: %s\n%s", err, out, pods)
			}
		}
		return nil
	})
}

func (l *lab) metallbPods(t *testing.T) string {
	t.Helper()
	return l.mustKubectl(
		t, "", "-n", metallbNamespace, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}`,
	)
}

// serviceAddress waits for the IP address of a Service's load balancer.
func (l *lab) serviceAddress(t *testing.T, namespace string) (address string) {
	t.Helper()
	waitFor(t, 2*time.Minute, "address of the Service", func() error {
		out, err := l.kubectl(
			t, "", "-n", namespace, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}",
		)
		if address = strings.TrimSpace(out); err != nil || address == "" {
			return errors.Join(err, fmt.Errorf("it is %q", out))
		}
		return nil
	})
	return address
}

// hardwareAddresses are those of the instances in the network of the VMs.
func (l *lab) hardwareAddresses(t *testing.T, instances []string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, instance := range instances {
		found[instance] = l.ssh(t, instance, "cat", "/sys/class/net/eth0/address")
	}
	return found
}

// nodeOf returns the name of an instance's Node.
func (l *lab) nodeOf(t *testing.T, instance string) string {
	t.Helper()
	group, _, _ := strings.Cut(instance, "/")
	return l.mustKubectl(
		t, "", "get", "nodes", "-l", "bosh.io/instance-group="+group, "-o", "jsonpath={.items[*].metadata.name}",
	)
}

var linkAddress = regexp.MustCompile(`lladdr (\S+)`)

// checkAnnounced expects the Service to answer at its address from the etcd VM, which is no node, so that its packets
// go to one that has answered its ARP request: one of these hardware addresses. It returns which.
func (l *lab) checkAnnounced(t *testing.T, address string, hardware ...string) (by string) {
	t.Helper()
	const outside = "etcd/0"
	waitFor(t, 2*time.Minute, "answer of "+address, func() error {
		out, err := l.run(
			20*time.Second, "ssh", outside, "curl", "-sS", "--fail", "--noproxy", "*", "--max-time", "5",
			"http://"+address+"/",
		)
		if err != nil || !strings.HasPrefix(strings.TrimSpace(out), "web-") {
			return errors.Join(err, fmt.Errorf("it is %q, not the name of a pod", out))
		}
		neighbor := l.ssh(t, outside, "ip", "neigh", "show", "to", address)
		found := linkAddress.FindStringSubmatch(neighbor)
		if found == nil || !slices.Contains(hardware, found[1]) {
			return fmt.Errorf("its neighbor is %q, want one of %q", neighbor, hardware)
		}
		by = found[1]
		return nil
	})
	return by
}
