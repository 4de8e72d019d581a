package alerts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestScrapeConfigurationsAreValid gives promtool each scrape configuration. TestSoakMonitoring scrapes with them.
func TestScrapeConfigurationsAreValid(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(folder, "scrape-*.yml"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("scrape configurations %q, %v; want in the cluster, on control VMs, on nodes, outside", paths, err)
	}
	for _, path := range paths {
		if output, err := promtool(t, "check", "config", "--syntax-only", path); err != nil {
			t.Errorf("%s: %v: %s", path, err, strings.TrimSpace(output))
		}
	}
}

// TestAgentsTellTheirVMs: rules aggregate by instance, which would be the same on all VMs.
func TestAgentsTellTheirVMs(t *testing.T) {
	for _, name := range []string{"scrape-control-vms.yml", "scrape-nodes.yml"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Jobs []struct {
				Name     string `yaml:"job_name"`
				Relabels []struct {
					Target string `yaml:"target_label"`
				} `yaml:"relabel_configs"`
			} `yaml:"scrape_configs"`
		}
		if err := yaml.Unmarshal(content, &config); err != nil {
			t.Fatal(err)
		}
		if len(config.Jobs) == 0 {
			t.Errorf("%s has no jobs", name)
		}
		for _, job := range config.Jobs {
			if len(job.Relabels) != 1 || job.Relabels[0].Target != "instance" {
				t.Errorf("%s: job %s does not set the label instance", name, job.Name)
			}
		}
	}
}
