package deployment

import (
	"encoding/base64"
	"fmt"
	"path/filepath"

	"al.essio.dev/pkg/shellescape"
	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab/director"
)

// writeAccess writes the files that an operator on this machine needs: kubeconfig, bin/kubectl and aws.env. It returns
// false, and writes no kubeconfig, if the deployment has no job kubectl.
func (s *session) writeAccess() (bool, error) {
	if err := s.Account().WriteEnvironment(); err != nil {
		return false, err
	}
	group, job := s.kubectlJob()
	if job == nil {
		return false, nil
	}
	text, err := s.kubeconfig(group, job)
	if err != nil {
		return false, err
	}
	if err := atomicfile.Write(s.Path("kubeconfig"), text, 0o600); err != nil {
		return false, err
	}
	return true, s.writeKubectl(job)
}

// kubectlJob finds the job that holds the administrator's certificate.
func (s *session) kubectlJob() (*director.InstanceGroup, *director.Job) {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if job.Job.Name == "kubectl" && len(group.Instances) > 0 {
				return group, job
			}
		}
	}
	return nil, nil
}

// kubeconfig returns an administrator's kubeconfig that works on this machine: the server is the address of a control
// VM, and its certificate is verified against the host name of the API.
func (s *session) kubeconfig(group *director.InstanceGroup, job *director.Job) ([]byte, error) {
	client, _ := dig(job.Properties, "tls", "client").(map[string]any)
	cluster := job.Links["cluster"]
	if client == nil || cluster == nil {
		return nil, fmt.Errorf(
			"the job kubectl of instance group '%s' has no tls.client or no link 'cluster'", group.Spec.Name,
		)
	}
	encoded := func(key string) string {
		text, _ := client[key].(string)
		return base64.StdEncoding.EncodeToString([]byte(text))
	}
	name := fmt.Sprint(dig(cluster.Properties, "cluster", "name"))
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"server": fmt.Sprintf(
				"https://%s:%v",
				s.controlAddress(group),
				dig(cluster.Properties, "api", "port"),
			),
			"tls-server-name":            dig(cluster.Properties, "api", "hostname"),
			"certificate-authority-data": encoded("ca"),
		}}},
		"users": []any{map[string]any{"name": "admin", "user": map[string]any{
			"client-certificate-data": encoded("certificate"), "client-key-data": encoded("private_key"),
		}}},
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": "admin"}}},
	}
	return yaml.Marshal(config)
}

// controlAddress returns the address of the first started VM that serves the API.
func (s *session) controlAddress(fallback *director.InstanceGroup) string {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if job.Job.Name != "kube-apiserver" {
				continue
			}
			for _, planned := range group.Instances {
				if planned.Instance.DesiredState == director.Started {
					return planned.Instance.Address.String()
				}
			}
		}
	}
	return fallback.Instances[0].Instance.Address.String()
}

func dig(tree map[string]any, keys ...string) any {
	var node any = tree
	for _, key := range keys {
		m, _ := node.(map[string]any)
		node = m[key]
	}
	return node
}

// writeKubectl writes bin/kubectl, which runs the deployed kubectl with the lab's kubeconfig, unless KUBECONFIG is set.
func (s *session) writeKubectl(job *director.Job) error {
	pkg := job.Release.Packages["kubernetes"]
	if pkg == nil {
		return nil
	}
	text := fmt.Sprintf("#!/bin/sh\ntest -n \"$KUBECONFIG\" || export KUBECONFIG=%s\nexec %s \"$@\"\n",
		shellescape.Quote(s.Path("kubeconfig")), shellescape.Quote(filepath.Join(pkg.Compiled, "bin/kubectl")))
	return atomicfile.Write(s.Path("bin", "kubectl"), []byte(text), 0o755)
}
