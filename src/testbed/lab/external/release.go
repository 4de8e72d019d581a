package external

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/atomicfile"
)

// The job's name is what a Director derives from the type lab of a cpi-config.
const (
	releaseName = "lab-cpi"
	jobName     = "lab_cpi"
)

//go:embed job/cpi.erb
var cpiTemplate []byte

//go:embed job/cpi.json.erb
var configTemplate []byte

type property struct {
	Description string `yaml:"description"`
	Default     any    `yaml:"default,omitempty"`
	Example     any    `yaml:"example,omitempty"`
}

// jobSpec returns the job's specification, for a lab in a directory of this machine.
func jobSpec(executable, state string) map[string]any {
	return map[string]any{
		"name": jobName, "packages": []string{},
		"templates": map[string]string{"cpi.erb": "bin/cpi", "cpi.json.erb": "config/cpi.json"},
		"properties": map[string]property{
			jobName + ".command": {
				Description: "Command that answers a call on the lab's machine, as a list of words. A Director that " +
					"runs elsewhere, such as in a VM, can put ssh before it. Users other than root run it by sudo.",
				Default: []string{executable, "cpi", "--state", state},
			},
			jobName + ".agent.mbus": {
				Description: "URL by which agents reach the Director, or `bosh create-env` the agent",
				Example:     "nats://10.20.255.254:4222",
			},
			jobName + ".agent.ntp": {Description: "NTP servers of VMs", Default: []string{}},
			jobName + ".agent.blobstore.provider": {
				Description: "Type of the blobstore of agents, unless the Director sends it", Default: "dav",
			},
			jobName + ".agent.blobstore.options": {
				Description: "Options of the blobstore of agents", Default: map[string]any{},
			},
		},
	}
}

// WriteRelease writes a BOSH release whose only job is the CPI of the lab in the directory state of this machine, as
// this executable. The same input gives the same file.
func WriteRelease(file, executable, state string) error {
	spec, err := yaml.Marshal(jobSpec(executable, state))
	if err != nil {
		return err
	}
	job, err := archive(map[string][]byte{
		"job.MF": spec, "monit": nil, "templates/cpi.erb": cpiTemplate, "templates/cpi.json.erb": configTemplate,
	})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(job)
	fingerprint := fmt.Sprintf("%x", sum[:16])
	manifest, err := yaml.Marshal(map[string]any{
		"name": releaseName, "version": "0+lab." + fingerprint, "commit_hash": "none", "uncommitted_changes": false,
		"packages": []any{},
		"jobs": []any{map[string]any{
			"name": jobName, "version": fingerprint, "fingerprint": fingerprint, "sha1": fmt.Sprintf("sha256:%x", sum),
			"packages": []string{},
		}},
	})
	if err != nil {
		return err
	}
	content, err := archive(map[string][]byte{"release.MF": manifest, "jobs/" + jobName + ".tgz": job})
	if err != nil {
		return err
	}
	return atomicfile.Write(file, content, 0o644)
}

// archive returns a gzipped tar archive of files.
func archive(files map[string][]byte) ([]byte, error) {
	var buffer bytes.Buffer
	gz := gzip.NewWriter(&buffer)
	tw := tar.NewWriter(gz)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if err := tw.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := tw.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := errors.Join(tw.Close(), gz.Close())
	return buffer.Bytes(), err
}
