package acceptance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/testbed/awssim"
)

// Names of the API outside the deployment: of the load balancer, and of a DNS record for the control VMs.
const (
	balancerName = "api.prod.example.com"
	directName   = "control.prod.example.com"
)

// accessOps give the API both names.
var accessOps = []string{"ops-files/use-api-load-balancer.yml", "ops-files/add-api-name.yml"}

var accessVars = []string{"api_hostname=" + balancerName, "api_name=" + directName}

// laptop is an operator's machine outside the deployment: it has kubectl, the repository and a copy of the variable
// store, and resolves the API's names by an /etc/hosts of its own.
type laptop struct {
	*lab
	dir string
}

// newLaptop returns a laptop that resolves the names of the API, and one that the API's certificate does not cover.
func (l *lab) newLaptop(t *testing.T) *laptop {
	t.Helper()
	p := &laptop{lab: l, dir: t.TempDir()}
	balancer := l.balancer(t)
	addresses, err := l.run(time.Minute, "client", "getent", "ahostsv4", aws.ToString(balancer.DNSName))
	if err != nil {
		t.Fatalf("resolving %s: %v\n%s", aws.ToString(balancer.DNSName), err, addresses)
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for _, line := range strings.Split(addresses, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "STREAM" {
			fmt.Fprintf(&hosts, "%s %s\n", fields[0], balancerName)
		}
	}
	fmt.Fprintf(&hosts, "%s %s other.example.com\n", l.controlAddress(t), directName)
	p.write(t, "hosts", hosts.String(), 0o644)
	// What `bosh int FILE --path /NAME/PART` prints; the tests of templates run the script with the CLI's own code.
	p.write(t, "bin/bosh", `#!/bin/bash
set -eu
[[ $# -eq 4 && $1 == int && $3 == --path ]]
exec ruby -ryaml -e 'puts YAML.load_file(ARGV[0]).dig(*ARGV[1].split("/").drop(1))' "$2" "$4"
`, 0o755)
	return p
}

func (p *laptop) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

// run runs a command in a mount namespace of its own, in which the laptop's file is /etc/hosts.
func (p *laptop) run(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const script = `mount --make-rprivate / && mount --bind "$0" "$(readlink -f /etc/hosts)" && exec "$@"`
	command := exec.CommandContext(
		ctx,
		"unshare",
		append([]string{"--mount", "sh", "-c", script, filepath.Join(p.dir, "hosts")}, argv...)...)
	command.Dir = p.dir
	command.Env = append(
		os.Environ(), "NO_PROXY=*",
		"PATH="+filepath.Join(p.dir, "bin")+":"+filepath.Join(p.state, "bin")+":"+os.Getenv("PATH"),
	)
	return output(ctx, command)
}

// writeKubeconfig runs scripts/write-kubeconfig.sh with the variable store, and checks that the result verifies the API
// by its host name.
func (p *laptop) writeKubeconfig(t *testing.T, server string, options ...string) (path string) {
	t.Helper()
	path = filepath.Join(p.dir, fmt.Sprintf("kubeconfig-%d", time.Now().UnixNano()))
	arguments := append(
		[]string{filepath.Join(repo, "scripts/write-kubeconfig.sh"), "--server", server, "--name", "prod",
			"--vars-store", filepath.Join(p.state, "vars.yml"), "--output", path},
		options...)
	if out, err := p.run(arguments...); err != nil {
		t.Fatalf("write-kubeconfig.sh: %v\n%s", err, out)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if cluster := config.Clusters["prod"]; cluster.Server != server || cluster.InsecureSkipTLSVerify ||
		cluster.TLSServerName != "" ||
		len(cluster.CertificateAuthorityData) == 0 {
		t.Errorf("the kubeconfig has the cluster %+v", cluster)
	}
	return path
}

// controlAddress returns the address of a control VM, from the lab's kubeconfig.
func (l *lab) controlAddress(t *testing.T) netip.Addr {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		return netip.MustParseAddrPort(strings.TrimPrefix(cluster.Server, "https://")).Addr()
	}
	t.Fatal("the lab's kubeconfig has no cluster")
	return netip.Addr{}
}

// addressInNetwork returns 10.N.THIRD.FOURTH, where N is the number of the lab's network.
func (l *lab) addressInNetwork(t *testing.T, third, fourth byte) string {
	number := l.controlAddress(t).As4()[1]
	return netip.AddrFrom4([4]byte{10, number, third, fourth}).String()
}

func (l *lab) balancers(t *testing.T) *elb.Client {
	return elb.New(elb.Options{
		BaseEndpoint: aws.String("http://" + l.addressInNetwork(t, 0, 1) + ":4566"), Region: awssim.LabRegion,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
}

// balancer returns the load balancer of the API.
func (l *lab) balancer(t *testing.T) types.LoadBalancer {
	t.Helper()
	output, err := l.balancers(t).
		DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{Names: []string{"lab-api"}})
	if err != nil {
		t.Fatal(err)
	}
	return output.LoadBalancers[0]
}

// waitForTargets waits until as many control VMs are registered with the API's load balancer, and all are healthy.
func (l *lab) waitForTargets(t *testing.T, count int) {
	t.Helper()
	client := l.balancers(t)
	groups, err := client.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"lab-api"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, time.Minute, "health of the API's load balancer", func() error {
		health, err := client.DescribeTargetHealth(
			t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: groups.TargetGroups[0].TargetGroupArn},
		)
		if err != nil {
			return err
		}
		var states []string
		for _, target := range health.TargetHealthDescriptions {
			states = append(states, string(target.TargetHealth.State))
		}
		if got, want := strings.Join(states, " "), strings.TrimSpace(strings.Repeat("healthy ", count)); got != want {
			return fmt.Errorf("the targets are %q, want %q", got, want)
		}
		return nil
	})
}

// checkAccess uses the API from outside the deployment by host name.
func (l *lab) checkAccess(t *testing.T, p *laptop) {
	l.waitForTargets(t, 3)
	for _, name := range []string{balancerName, directName} {
		kubeconfig := p.writeKubeconfig(t, "https://"+name+":6443")
		if out, err := p.run("kubectl", "--kubeconfig", kubeconfig, "get", "nodes", "-o", "name"); err != nil ||
			!strings.Contains(out, "node/") {
			t.Errorf("kubectl at %s: %v\n%s", name, err, out)
		}
	}
	kubeconfig := p.writeKubeconfig(t, "https://other.example.com:6443")
	if out, err := p.run("kubectl", "--kubeconfig", kubeconfig, "get", "nodes"); err == nil ||
		!strings.Contains(out, "certificate is valid for") {
		t.Errorf("kubectl at a name that the certificate does not cover: %v\n%s", err, out)
	}
}
