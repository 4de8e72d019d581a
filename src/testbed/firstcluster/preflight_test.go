package firstcluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/internal/duration"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/accounts/results"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/director/manifest"
)

// startsVariable has the URL that the page's bosh posts a deployed cluster to.
const startsVariable = "FIRST_CLUSTER_STARTS"

// deployed is a cluster whose VMs are in the account.
type deployed struct {
	Cluster   string
	JoinRoles []string
}

// clusterOf reads what the preflight of a deployment is told from its manifest.
func clusterOf(m *manifest.Manifest) (deployed, error) {
	for i := range m.InstanceGroups {
		for _, j := range m.InstanceGroups[i].Jobs {
			if j.Name != "node-controller" {
				continue
			}
			join, ok := j.Properties["join"].(map[string]any)
			if !ok {
				return deployed{}, errors.New("the manifest lists no roles that may join")
			}
			for key := range m.Tags {
				if cluster, ok := strings.CutPrefix(key, clusterTag); ok {
					return deployed{Cluster: cluster, JoinRoles: texts(join["roles"])}, nil
				}
			}
		}
	}
	return deployed{}, errors.New("the manifest has no job node-controller, or no tag of a cluster")
}

const clusterTag = "kubernetes.io/cluster/"

// startAll has the preflight run on every VM of the account, as pre-start does on those of the deployment: the ones of
// clusters that were deployed before must still pass.
func startAll(m *manifest.Manifest) error {
	url := os.Getenv(startsVariable)
	if url == "" { // the VMs of a lab run it themselves
		return nil
	}
	cluster, err := clusterOf(m)
	if err != nil {
		return err
	}
	body, err := json.Marshal(cluster)
	if err != nil {
		return err
	}
	response, err := http.Post(url, "application/json", bytes.NewReader(body)) //nolint:noctx // ends with the test
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(string(text))
	}
	fmt.Print(string(text))
	return nil
}

// servePreflights runs the preflight of every instance in the simulator whenever a cluster is deployed.
func servePreflights(t *testing.T, sim *awssim.Simulator) string {
	t.Helper()
	checker := results.NewChecker()
	t.Cleanup(checker.Close)
	clusters := map[string]deployed{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c deployed
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		clusters[c.Cluster] = c
		world := sim.World()
		for n := range world.Instances {
			i := &world.Instances[n]
			if i.State == store.Terminated {
				continue
			}
			config := configOf(i, clusters)
			report, err := checker.PreflightIn(
				r.Context(), sim, &accounts.Account{World: world, Self: n, Config: config},
			)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if report.Result != preflight.RunPassed || report.Count(preflight.Warned) > 0 {
				var text bytes.Buffer
				preflight.Printer{}.Findings(&text, report)
				http.Error(w, i.Tags["name"]+" of "+config.Cluster+":\n"+text.String(), http.StatusConflict)
				return
			}
			fmt.Fprintf(w, "preflight of %s in cluster %s: passed\n", i.Tags["name"], config.Cluster)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// configOf is what the job cloud-provider renders for the preflight of an instance.
func configOf(i *store.Instance, clusters map[string]deployed) awstest.Config {
	config := awstest.Config{Config: preflight.Config{
		Provider: "aws", Role: preflight.Worker, Mode: preflight.ModeEnforce,
		RetryWindow: duration.Duration(preflight.DefaultRetryWindow),
	}}
	config.Storage = true
	for key := range i.Tags {
		if cluster, ok := strings.CutPrefix(key, clusterTag); ok {
			config.Cluster, config.JoinRoles = cluster, clusters[cluster].JoinRoles
		}
	}
	if i.Tags["instance_group"] == "control" {
		config.Role = preflight.Control
	}
	return config
}
