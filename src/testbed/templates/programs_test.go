package templates

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestProgramsHaveTheRequestsThatTheySend: the linker keeps all methods of all types, among them the hundreds of
// requests that EC2 knows, once a program or one of its libraries finds methods by names that are not constants. That
// doubles the size of a program (cmd/link/internal/ld/deadcode.go); `go build -ldflags=-dumpdep` shows who does it.
func TestProgramsHaveTheRequestsThatTheySend(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no programs")
	}
	for _, program := range []string{
		"aws-load-balancer-controller/bin/aws-load-balancer-controller",
		"cloud-provider-aws/bin/aws-cloud-controller-manager",
		"../helpers/bin/kube-tools",
		"../helpers/bin/cloud-preflight",
	} {
		content, err := os.ReadFile(filepath.Join(components, program))
		if err != nil {
			t.Fatal(err)
		}
		const client = "github.com/aws/aws-sdk-go-v2/service/ec2.(*Client)."
		if !bytes.Contains(content, []byte(client+"DescribeInstances")) {
			t.Errorf("%s has no names of functions, or does not use this SDK", program)
		}
		if bytes.Contains(content, []byte(client+"AcceptAddressTransfer")) {
			t.Errorf("%s has a request of EC2 that nothing here sends: all methods are kept", program)
		}
	}
}
