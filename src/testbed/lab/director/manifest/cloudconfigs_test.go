package manifest

import (
	"strings"
	"testing"
)

const boshDeployment = `
azs: [{name: z1}, {name: z2}, {name: z3}]
vm_types: [{name: default}]
disk_types: [{name: default, disk_size: 3000}]
networks:
- {name: default, type: manual, subnets: [{azs: [z1, z2, z3], range: 10.0.0.0/24, gateway: 10.0.0.1}]}
compilation: {workers: 5, az: z1, vm_type: default, network: default}
`

func merge(texts ...string) (*CloudConfig, error) {
	var configs []NamedText
	for i, text := range texts {
		configs = append(configs, NamedText{Name: string(rune('a'+i)) + ".yml", Text: []byte(text)})
	}
	merged, err := MergeCloudConfigs(configs)
	if err != nil {
		return nil, err
	}
	return ParseCloudConfig("merged", merged)
}

func TestCloudConfigsAreMerged(t *testing.T) {
	c, err := merge(boshDeployment, "vm_types: [{name: worker}]\nvm_extensions: [{name: extra}]\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.VMType("default") == nil || c.VMType("worker") == nil || c.VMExtension("extra") == nil ||
		c.Compilation.Workers != 5 ||
		len(c.AZs) != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestCloudConfigsThatADirectorRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"second compilation": {
			"compilation: {workers: 1, az: z1, vm_type: default, network: default}",
			"Cloud config 'compilation' key cannot be defined in multiple cloud configs: a.yml and b.yml",
		},
		"same zone twice":    {"azs: [{name: z1}]", "Duplicate availability zone name 'z1'"},
		"same vm_type twice": {"vm_types: [{name: default}]", "Duplicate vm_type name 'default'"},
		"unknown key":        {"vm_typs: []", "b.yml: unknown key 'vm_typs'"},
		"no list":            {"azs: {}", "b.yml: 'azs' must be a list"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := merge(boshDeployment, test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
