package templates

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// flagsOfJobs are the flags that each job with the property extra_args renders in any golden case.
func flagsOfJobs(t *testing.T) map[string][]string {
	t.Helper()
	sets := map[string]map[string]bool{}
	for _, g := range goldenOutcomes(t) {
		content := g.files["config/flags.json"]
		if _, extensible := readJob(t, g.job).Properties["extra_args"]; !extensible {
			continue
		}
		if sets[g.job] == nil {
			sets[g.job] = map[string]bool{}
		}
		flags := decode[flagsFile](t, content)
		for name := range flags.Flags {
			sets[g.job][name] = true
		}
		for name := range flags.NodeFlags {
			sets[g.job][name] = true
		}
		for name := range flags.DiskFlags {
			sets[g.job][name] = true
		}
	}
	jobs := map[string][]string{}
	for job, set := range sets {
		jobs[job] = slices.Sorted(maps.Keys(set))
	}
	return jobs
}

// reservedFlags are flags that a job does not render, because a file or a default of the program sets them, and that
// extra_args must not set either. cloud-config and cloud-provider are reserved in every job.
var reservedFlags = map[string][]string{
	"aws-load-balancer-controller": {"aws-api-endpoints", "aws-region", "kube-ca-pem-filepath", "watch-namespace"},
	"containerd":                   {"address", "root", "state"},
	"cinder-csi-controller":        {"additional-topology", "cloud-name", "kubeconfig", "provide-controller-service"},
	"cinder-csi-node":              {"cloud-name", "cluster", "kubeconfig", "provide-node-service", "with-topology"},
	"ebs-csi-controller":           {"extra-volume-tags", "kubeconfig"},
	"ebs-csi-node":                 {"kubeconfig", "windows-host-process"},
	"etcd": {
		"enable-grpc-gateway", "force-new-cluster", "listen-client-http-urls", "strict-reconfig-check",
	},
	"kube-apiserver": {
		"anonymous-auth",
		"authorization-config",
		"authorization-policy-file",
		"authorization-webhook-cache-authorized-ttl",
		"authorization-webhook-cache-unauthorized-ttl",
		"authorization-webhook-config-file",
		"authorization-webhook-version",
		"oidc-issuer-url",
	},
	"cloud-controller-manager": leases,
	"kube-controller-manager": append([]string{
		"cluster-signing-cert-file",
		"cluster-signing-key-file",
		"cluster-signing-kube-apiserver-client-cert-file",
		"cluster-signing-kube-apiserver-client-key-file",
		"cluster-signing-legacy-unknown-cert-file",
		"cluster-signing-legacy-unknown-key-file",
	}, leases...),
	// Its Complete takes only the flags of logs, and hostname-override, beside a configuration file
	// (cmd/kube-proxy/app/options.go).
	"kube-proxy": {
		"bind-address",
		"cluster-cidr",
		"conntrack-max-per-core",
		"conntrack-min",
		"feature-gates",
		"healthz-port",
		"ipvs-scheduler",
		"kube-api-qps",
		"kubeconfig",
		"masquerade-all",
		"metrics-bind-address",
		"nodeport-addresses",
		"proxy-mode",
	},
	// ApplyTo in cmd/kube-scheduler/app/options/options.go takes no deprecated flags beside a configuration file.
	"kube-scheduler": append([]string{
		"contention-profiling",
		"kube-api-burst",
		"kube-api-content-type",
		"kube-api-qps",
		"kubeconfig",
		"leader-elect",
		"profiling",
	}, leases...),
	"metrics-server": {
		"authentication-skip-lookup",
		"authentication-tolerate-lookup-failure",
		"authorization-always-allow-paths",
		"deprecated-kubelet-completely-insecure",
		"kubelet-client-certificate",
		"kubelet-client-key",
		"kubelet-insecure-tls",
		"kubelet-port",
	},
	"kubelet": {
		"address",
		"anonymous-auth",
		"authentication-token-webhook",
		"authorization-mode",
		"cgroup-driver",
		"cgroup-root",
		"client-ca-file",
		"cluster-dns",
		"cluster-domain",
		"container-runtime-endpoint",
		"eviction-hard",
		"eviction-soft",
		"eviction-soft-grace-period",
		"fail-swap-on",
		"kube-reserved",
		"max-pods",
		"pod-max-pids",
		"protect-kernel-defaults",
		"read-only-port",
		"register-with-taints",
		"resolv-conf",
		"rotate-certificates",
		"rotate-server-certificates",
		"seccomp-default",
		"system-reserved",
		"tls-cipher-suites",
		"tls-min-version",
	},
	"openstack-cloud-controller-manager": leases,
}

// leases are the flags with which VMs that are not updated yet would elect a second leader.
var leases = []string{"leader-elect-resource-name", "leader-elect-resource-namespace"}

var (
	refusedFlag   = regexp.MustCompile(`(?m)^ +([a-z0-9-]+): (.*?)\)?$`)
	namedProperty = regexp.MustCompile(`^use propert(?:y|ies) ([a-z_., ]+?)(?: of job ([a-z-]+)|, field [\w.]+)?$`)
)

// Every flag that a job renders is refused in its extra_args, and so are the reserved flags: all in one message, each
// with what to use instead. A property that the message names exists.
func TestFlagsOfTheReleaseAreRefusedInExtraArgs(t *testing.T) {
	jobs := flagsOfJobs(t)
	if len(jobs) != 17 {
		t.Errorf("%d jobs have extra_args: %v", len(jobs), slices.Sorted(maps.Keys(jobs)))
	}
	for job, flags := range jobs {
		t.Run(job, func(t *testing.T) {
			extra := values{"cloud-provider": "aws", "cloud-config": "/x"}
			for _, flag := range slices.Concat(flags, reservedFlags[job]) {
				extra[flag] = "x"
			}
			_, err := renderJob(t, job, inputFor(t, job).with(values{"extra_args": extra}))
			if err == nil || !strings.Contains(err.Error(), "extra_args holds flags of the release:") {
				t.Fatalf("extra_args is not refused: %v", err)
			}
			refused := map[string]string{}
			for _, match := range refusedFlag.FindAllStringSubmatch(err.Error(), -1) {
				if !strings.HasPrefix(match[2], `"x" is not`) { // a value that the flag cannot have refuses no flag
					refused[match[1]] = match[2]
				}
			}
			for flag := range extra {
				if refused[flag] == "" {
					t.Errorf("--%s is not refused with what to use instead:\n%v", flag, err)
				}
				checkProperties(t, job, flag, refused[flag])
			}
			for flag := range refused {
				if _, ok := extra[flag]; !ok {
					t.Errorf("--%s is refused but not in extra_args", flag)
				}
			}
		})
	}
}

// checkProperties checks that the properties that a refusal names exist.
func checkProperties(t *testing.T, job, flag, refusal string) {
	t.Helper()
	match := namedProperty.FindStringSubmatch(refusal)
	if match == nil {
		if strings.Contains(refusal, "propert") && refusal != "use the properties of this job" {
			t.Errorf("--%s: cannot find the property in %q", flag, refusal)
		}
		return
	}
	if match[2] != "" {
		job = match[2]
	}
	for _, property := range strings.Split(strings.ReplaceAll(match[1], " and ", ", "), ", ") {
		exists := false
		for name := range readJob(t, job).Properties {
			exists = exists || name == property || strings.HasPrefix(name, property+".")
		}
		if !exists {
			t.Errorf("--%s: %q names the property %s, which job %s does not have", flag, refusal, property, job)
		}
	}
}

func TestInvalidExtraArgsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		extra any
		want  []string
	}{
		{"dashes", values{"--event-ttl": "1h"}, []string{"--event-ttl: not a flag's name; write event-ttl"}},
		{"flag of the release with underscores", values{"cloud_provider": "aws"}, []string{"cloud_provider: use " +
			"property type of job cloud-provider", "write cloud-provider"}},
		{"flag of the release with dashes", values{"--cloud-config": "x"}, []string{"--cloud-config: use property " +
			"config of job cloud-provider", "write cloud-config"}},
		{"value in the name", values{"event-ttl=1h": nil}, []string{"event-ttl=1h: not a flag's name"}},
		{"nested list", values{"a": []any{[]any{"b"}}}, []string{"a: ", "nested"}},
		{"nested map", values{"a": values{"b": values{"c": 1}}}, []string{"a: ", "nested"}},
		{"a list", []any{"--event-ttl=1h"}, []string{"extra_args is", "map of flag name"}},
		{"a string", "--event-ttl=1h", []string{"extra_args is", "map of flag name"}},
		{
			"several", values{"v": 3, "--x": 1, "cloud-config": "x"},
			[]string{"v: use property log_level", "--x: not a flag's name", "cloud-config: use property config"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := renderJob(t, "kube-apiserver", inputFor(t, "kube-apiserver").with(values{"extra_args": c.extra}))
			if err == nil {
				t.Fatal("not refused")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}
