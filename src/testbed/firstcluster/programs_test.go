package firstcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"gopkg.in/yaml.v3"
)

// runProgram does what a program of the page does, or fails if the page uses it in a way that nothing checks.
func runProgram(name string, args []string) error {
	switch name {
	case "bosh":
		return runBosh(args)
	case "make":
		return runMake(args)
	case "git":
		return runGit(args)
	case "kubectl":
		return runKubectl(args)
	case "curl":
		return runCurl(args)
	}
	return fmt.Errorf("nothing checks the command %s", name)
}

// runMake checks the target in the repository's Makefile, and builds the program for the page's next commands.
func runMake(args []string) error {
	if !slices.Equal(args, []string{"cloud-preflight"}) {
		return fmt.Errorf("nothing checks make %v", args)
	}
	repository := os.Getenv("FIRST_CLUSTER_ROOT")
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	makes := exec.Command("/usr/bin/make", "-C", repository, "cloud-preflight", "BIN="+filepath.Join(folder, "bin"))
	makes.Env = append(os.Environ(), "PATH="+filepath.Dir(os.Getenv("FIRST_CLUSTER_GO"))+":/usr/bin:/bin")
	if out, err := makes.CombinedOutput(); err != nil {
		return fmt.Errorf("make: %w\n%s", err, out)
	}
	return nil
}

// runGit clones what the page uses of bosh-deployment.
func runGit(args []string) error {
	if !slices.Equal(args, []string{"clone", "--depth=1", "https://github.com/cloudfoundry/bosh-deployment"}) {
		return fmt.Errorf("nothing checks git %v", args)
	}
	if err := os.MkdirAll("bosh-deployment/runtime-configs", 0o755); err != nil {
		return err
	}
	return os.WriteFile("bosh-deployment/runtime-configs/dns.yml", []byte(dnsConfig), 0o600)
}

var kubectlCommands = []*regexp.Regexp{
	regexp.MustCompile(`^get nodes$`),
	regexp.MustCompile(`^(apply|delete) -f (\S+)$`),
	regexp.MustCompile(`^wait (deployment)/(hello) --for=condition=Available --timeout=\d+m$`),
	regexp.MustCompile(
		`^wait (service)/(hello) --for=jsonpath='?\{\.status\.loadBalancer\.ingress\}'? --timeout=\d+m$`,
	),
	regexp.MustCompile(`^get service hello -o jsonpath=\{\.status\.loadBalancer\.ingress\[0\]\.hostname\}$`),
	regexp.MustCompile(`^wait persistentvolume --all --for=delete --timeout=\d+m$`),
	regexp.MustCompile(`^rollout (restart|status) deployment/hello( --timeout=\d+m)?$`),
}

// runKubectl runs the real one for the kubeconfig. Other commands need a cluster: without a lab only their form, the
// kubeconfig and the objects are checked.
func runKubectl(args []string) error {
	line := strings.Join(args, " ")
	if strings.HasPrefix(line, "config ") || slices.Contains(args, "config") {
		return replaceBy(kubectlProgram(), args)
	}
	if text, err := os.ReadFile(os.Getenv("KUBECONFIG")); err != nil ||
		!bytes.Contains(text, []byte("server: https://127.0.0.1:6443")) {
		return fmt.Errorf("kubectl %s: the kubeconfig does not name the tunnel: %w", line, err)
	}
	for _, form := range kubectlCommands {
		match := form.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		if labState() != "" {
			return replaceBy(kubectlProgram(), args)
		}
		if strings.HasSuffix(line, "hostname}") {
			fmt.Print("hello.elb.example")
		}
		if len(match) > 2 && strings.Contains(line, "-f ") {
			return checkObjects(match[2])
		}
		return nil
	}
	return fmt.Errorf("nothing checks kubectl %s", line)
}

// checkObjects checks that the objects of a file are the ones that the page waits for.
func checkObjects(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var kinds []string
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		kinds = append(kinds, object.Kind+"/"+object.Metadata.Name)
	}
	if want := []string{
		"PersistentVolumeClaim/hello", "Deployment/hello", "Service/hello",
	}; !slices.Equal(kinds, want) {
		return fmt.Errorf("%s has %v, want %v", file, kinds, want)
	}
	return nil
}

// kubectlProgram is that of the deployed release, the one that is built for a release, or that of this machine. A
// release that was built before (CANDIDATE) comes without programs on this machine.
func kubectlProgram() string {
	if state := labState(); state != "" {
		return filepath.Join(state, "bin", "kubectl")
	}
	if folder := os.Getenv("KUBERNETES_BIN_DIR"); folder != "" {
		return filepath.Join(folder, "kubectl")
	}
	return "/usr/bin/kubectl"
}

// replaceBy replaces this process by a program.
func replaceBy(path string, args []string) error {
	return syscall.Exec(path, append([]string{path}, args...), os.Environ())
}

// runCurl runs the real one where names are resolved by the lab's DNS. Without a lab, only its arguments are checked.
func runCurl(args []string) error {
	if labState() != "" {
		return runLab(firstDeployment, append([]string{"client", "/usr/bin/curl"}, args...)...)
	}
	want := []string{"--retry", "30", "--retry-delay", "10", "--retry-all-errors", "http://hello.elb.example/"}
	if !slices.Equal(args, want) {
		return fmt.Errorf("curl %v, want %v", args, want)
	}
	return nil
}
