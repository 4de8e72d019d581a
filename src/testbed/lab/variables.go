package lab

import (
	"fmt"
	"io"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/rotation"
)

// clusterName is the default of the variable cluster_name.
const clusterName = "lab"

// VarsStore is the file of generated variables.
func (l *Lab) VarsStore() string { return l.path("vars.yml") }

// RotateCAs does one step of a rotation in a variables store, for the named CAs or for all.
func RotateCAs(out io.Writer, store, step string, names []string) error {
	names, err := rotation.Run(store, rotation.Step(step), names, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s. Deploy now.\n", step, strings.Join(names, ", "))
	return nil
}

// defaultVariables are the variables that manifest, ops-files and cloud config can use without -v or -l: what an
// operator would write into a variables file about the AWS account.
func defaultVariables(n network.Network) map[string]any {
	variables := map[string]any{
		"cluster_name": clusterName, "region": awssim.LabRegion,
		"vpc_id": awssim.LabVPC, "security_group": awssim.LabSecurityGroup,
		"control_instance_profile": "kubernetes-control", "worker_instance_profile": "kubernetes-worker",
		"dns_servers":           []any{n.Gateway().String()},
		"api_target_group":      account.APITargetGroup,
		"aws_endpoint_url":      account.URL(n),
		"aws_metadata_endpoint": "http://" + network.Metadata.String(),
	}
	for i, letter := range "abc" {
		prefix := fmt.Sprintf("10.%d.%d", n.Number, 16*(i+1)) // a /20
		set := func(name string, value any) { variables[fmt.Sprintf("subnet%d_%s", i+1, name)] = value }
		variables[fmt.Sprintf("az%d", i+1)] = awssim.LabRegion + string(letter)
		set("id", awssim.LabNodeSubnet(i+1))
		set("cidr", prefix+".0/20")
		set("gateway", prefix+".1")
		set("reserved", []any{prefix + ".2-" + prefix + ".3"}) // AWS reserves the first four addresses
	}
	return variables
}
