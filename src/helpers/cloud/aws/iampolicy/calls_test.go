package iampolicy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
)

// programs call AWS: package, component, and what the policy of their role depends on. The policy is the one that
// upstream gives them, which also has what AWS requires beside the action of a call.
var programs = []struct {
	name, component, main, policy string
	needs                         Needs
}{
	{
		loadBalancerController, loadBalancerController, "sigs.k8s.io/aws-load-balancer-controller",
		"docs/install/iam_policy.json", Needs{Role: preflight.Control, LoadBalancerController: true},
	},
	{
		cloudController, "cloud-provider-aws", "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager", "",
		Needs{Role: preflight.Control, Routes: true},
	},
	{
		credentialProvider, "cloud-provider-aws", "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider", "",
		Needs{Role: preflight.Worker},
	},
	{
		driver, "csi", "github.com/kubernetes-sigs/aws-ebs-csi-driver/cmd", "docs/example-iam-policy.json",
		Needs{Role: preflight.Control, Storage: true},
	},
}

// services are the packages of AWS' SDK with other names than IAM's services.
var services = map[string]string{
	"ecrpublic":                "ecr-public",
	"elasticloadbalancingv2":   "elasticloadbalancing",
	"resourcegroupstaggingapi": "tag",
	"wafregional":              "waf-regional",
}

const sdk = "github.com/aws/aws-sdk-go-v2/"

// callsOfSource are the IAM actions of all calls in the packages of a program, of whatever module, with where that is.
func callsOfSource(t *testing.T, component, main, policy string) map[string]string {
	t.Helper()
	packages := packagesOf(t, component, main)
	if packages == nil {
		kubetest.WithoutSource(t, component)
	}
	found := map[string]string{}
	for _, p := range packages {
		if strings.HasPrefix(p.ImportPath, sdk) {
			continue // credentials of kinds that no job uses
		}
		for _, file := range p.GoFiles {
			for _, action := range callsOf(t, filepath.Join(p.Dir, file)) {
				found[action] = p.ImportPath + "/" + file
			}
		}
	}
	if policy == "" {
		return found
	}
	module := packages[len(packages)-1].Module // go list prints the program's own package last
	for _, action := range actionsOf(t, filepath.Join(module.Dir, policy)) {
		if found[action] == "" {
			found[action] = module.Path + "/" + policy
		}
	}
	return found
}

type goPackage struct {
	Dir, ImportPath string
	GoFiles         []string
	Module          struct{ Path, Dir string }
}

// packagesOf are a package of a component and those that it is linked with, or nil without their source.
func packagesOf(t *testing.T, component, main string) []goPackage {
	t.Helper()
	command := exec.Command("go", "list", "-deps", "-json=Dir,ImportPath,GoFiles,Module", main)
	command.Dir = "../../../../components/" + component
	if _, err := os.Stat(command.Dir); err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := command.Output()
	if err != nil {
		return nil
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// callsOf are the actions whose input a file uses. Each call of the SDK has one: ec2.CreateTagsInput. Where only a type
// of a function or an interface has it, nothing is called.
func callsOf(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), sdk+"service/") {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]string{} // how the file names the packages of services
	for _, imported := range file.Imports {
		if service, ok := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), sdk+"service/"); ok &&
			!strings.Contains(service, "/") {
			clients[service] = service
			if imported.Name != nil {
				clients[imported.Name.Name] = service
			}
		}
	}
	var actions []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.InterfaceType:
			return false
		case *ast.SelectorExpr:
			client, isName := n.X.(*ast.Ident)
			call, isInput := strings.CutSuffix(n.Sel.Name, "Input")
			if !isName || !isInput || clients[client.Name] == "" {
				return true
			}
			service := clients[client.Name]
			if services[service] != "" {
				service = services[service]
			}
			actions = append(actions, service+":"+call)
		}
		return true
	})
	slices.Sort(actions)
	return slices.Compact(actions)
}

// actionsOf are the actions of a policy.
func actionsOf(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Statement []struct{ Action []string } }
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var actions []string
	for _, s := range document.Statement {
		actions = append(actions, s.Action...)
	}
	return actions
}

// TestCallsOf: what a file calls, in all ways in which Go makes an input, and not what it only declares.
func TestCallsOf(t *testing.T) {
	name := path.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(name, []byte(`package a
import (
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	other "example.com/ec2"
)
type api interface { DescribeVpcs(*ec2.DescribeVpcsInput) }
func f(in *ec2.DeleteVolumeInput) (*v2.AddTagsOutput, error) {
	var tags ec2.CreateTagsInput
	g(tags, new(ec2.DeleteTagsInput), &v2.CreateRuleInput{}, types.SomeInput{}, other.DeleteVpcInput{})
	return nil, nil
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "ec2:CreateTags ec2:DeleteTags elasticloadbalancing:CreateRule"
	if got := strings.Join(callsOf(t, name), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
