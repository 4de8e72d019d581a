package templates

import (
	"testing"

	"kubernetes-release/launcher"
)

// TestPersistentDisk: jobs that write to the persistent disk require it where the instance has one.
func TestPersistentDisk(t *testing.T) {
	for _, job := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubelet-signer"} {
		for want, size := range map[string]any{"/var/vcap/store": 10240, "": 0} {
			in := inputFor(t, job)
			in.Spec = values{"persistent_disk": size}
			path := "/var/vcap/jobs/" + job + "/config/flags.json"
			config, err := launcher.Parse(mustRender(t, job, in)["config/flags.json"], path)
			if err != nil {
				t.Fatal(err)
			}
			if config.PersistentDisk != want {
				t.Errorf("%s with a disk of %v MiB requires %q, want %q", job, size, config.PersistentDisk, want)
			}
		}
	}
}
