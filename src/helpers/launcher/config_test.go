package launcher

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/pki"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

const minimal = `"process": "x", "executable": "/bin/x"`

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"empty":         {"", []string{"empty"}},
		"truncated":     {`{"process": "x"`, []string{"not JSON"}},
		"not JSON":      {"{\n\"process\": x}", []string{"not JSON, line 2"}},
		"two values":    {`{` + minimal + `} {}`, []string{"not JSON, line 1", "after top-level value"}},
		"a list":        {`[]`, []string{"want a map, found array"}},
		"null":          {`null`, []string{`process is ""`, `executable is ""`}},
		"not UTF-8":     {"{\"process\": \"\xff\"}", []string{"not UTF-8"}},
		"duplicate key": {`{"flags": {"v": 1, "v": 2}}`, []string{"duplicate", "flags.v"}},
		"duplicate option": {
			`{` + minimal + `, "flags": {"feature-gates": {"A": true, "A": false}}}`,
			[]string{"flags: feature-gates: duplicate", `"A"`},
		},
		"unknown keys": {
			`{"proces": 1, "wait_for": [{"tmeout": "1s"}], "qqqqqqqqq": 1}`,
			[]string{
				`"proces"; did you mean process?`, `"wait_for[0].tmeout"; did you mean timeout?`,
				`"qqqqqqqqq"; known are process, `,
			},
		},
		"case":          {`{"Process": "x"}`, []string{`"Process"; did you mean process?`}},
		"string":        {`{"process": 1}`, []string{"process: want a string, found number"}},
		"map":           {`{"flags": []}`, []string{"flags: want a map, found array"}},
		"list":          {`{"arguments": "x"}`, []string{"arguments: want a list, found string"}},
		"duration type": {`{"stop_timeout": 5}`, []string{"5 is not a duration"}},
		"duration unit": {`{"check_timeout": "5"}`, []string{`"5" is not a duration`}},
		"durations": {
			`{` + minimal + `, "stop_timeout": "0s", "check_timeout": "-1s",
				"wait_for": [{"url": "http://x/", "timeout": "0s"}], "ready": {"command": ["/x"], "timeout": "0s"}}`,
			[]string{"stop_timeout is 0s", "check_timeout is -1s", "wait_for[0].timeout is 0s", "ready.timeout is 0s"},
		},
		"nested value": {
			`{"flags": {"a": [[1]], "b": {"c": {}}, "d": [null], "e": {"x=y": 1}, "f": "a\u0000b"}}`,
			[]string{
				"flags: a: element 0", `flags: b: key "c"`, "flags: d: element 0: is null", `flags: e: key "x=y"`,
				"flags: f: \"a\\u0000b\" contains NUL",
			},
		},
		"paths": {
			`{"process": "a/b", "executable": "x", "log_dir": "y", "pidfile": "z", "node": "n",
				"ready": {"command": ["w"]}}`,
			[]string{
				`process is "a/b"`, `executable is "x": set an absolute path`, `log_dir is "y"`, `pidfile is "z"`,
				`node is "n"`, `ready.command[0] is "w"`,
			},
		},
		"dashes": {
			`{` + minimal + `, "flags": {"--v": 1, "a b": 2}}`,
			[]string{"--v: write the name of the flag without dashes, v", `"a b" is not the name of a flag`},
		},
		"separator": {`{` + minimal + `, "arguments": ["--"]}`, []string{"arguments[0]"}},
		"flag twice": {
			`{` + minimal + `, "flags": {"node-ip": 1}, "node_flags": {"node_ip": "address"}, "node": "/node.json"}`,
			[]string{"the same flag, node-ip and node_ip"},
		},
		"identity keys": {
			`{` + minimal + `, "node_flags": {"x": "nam"}, "node_environment": {"X": ""}, "node": "/node.json"}`,
			[]string{
				`node_flags.x is "nam": allowed are address, name, provider_id, region, zone`,
				`node_environment.X is ""`,
			},
		},
		"disk flags": {
			`{` + minimal + `, "flags": {"q": 1}, "disk_flags": {"q": "x"}}`,
			[]string{`disk_flags.q is "x"`, "the same flag, q and q"},
		},
		"no node":     {`{` + minimal + `, "node_flags": {"x": "name"}}`, []string{"node is missing"}},
		"environment": {`{` + minimal + `, "environment": {"C": []}}`, []string{"environment.C: must be a string"}},
		"environment names": {
			`{` + minimal + `, "environment": {"A B": "x", "C": 1}, "node_environment": {"C": "name"},
				"node": "/node.json"}`,
			[]string{`"A B"`, "environment and node_environment both set C"},
		},
		"limit name": {
			`{` + minimal + `, "limits": {"nofiles": 1}}`,
			[]string{"limits.nofiles: unknown limit; allowed are core, memlock, nofile, nproc, stack"},
		},
		"limits": {
			`{` + minimal + `, "limits": {"nofile": -1, "core": [], "stack": "max"}}`,
			[]string{"limits.nofile: -1 is not a limit", "limits.core: must be", "limits.stack: max is not a limit"},
		},
		"kernel modules": {
			`{` + minimal + `, "kernel_modules": ["-r", "a/b"]}`,
			[]string{`kernel_modules[0] is "-r"`, `kernel_modules[1] is "a/b"`},
		},
		"kernel settings": {
			`{` + minimal + `, "sysctls": {"net/ipv4": 1, "a": 1, "a..b": 1, "a.b": null, "a.c": [1], "a.d": " "}}`,
			[]string{
				`sysctls has "net/ipv4"`, `sysctls has "a"`, `sysctls has "a..b"`, "sysctls.a.b has no value",
				"sysctls.a.c: must be", "sysctls.a.d has no value",
			},
		},
		"directories": {
			`{` + minimal + `, "resolver_file": "r", "directories": [{"path": "x", "mode": "0755"},
				{"path": "/x", "mode": "0775"}, {"path": "/x"}, {"path": "/x", "mode": "01755"}]}`,
			[]string{
				`resolver_file is "r"`, `directories[0].path is "x"`, `directories[1].mode is "0775"`,
				`directories[2].mode is ""`, `directories[3].mode is "01755"`,
			},
		},
		"flag check": {
			`{` + minimal + `, "flag_check": "maybe"}`,
			[]string{`flag_check is "maybe": allowed are help and none`},
		},
		"certificate": {
			`{` + minimal + `, "certificates": [{"usage": "sever"}]}`,
			[]string{"certificates[0]", `usage is "sever"`},
		},
		"wait": {
			`{` + minimal + `, "certificates": [{"property": "tls.ca", "usage": "ca"}],
				"wait_for": [{"url": "host:6443"}, {"url": "http://x/", "client": "tls.client"},
				{"url": "https://x", "client": "tls.ca", "access_review": {}}]}`,
			[]string{
				`wait_for[0].url is "host:6443"`, `wait_for[1].url is "http://x/": client requires https`,
				`wait_for[1].client is "tls.client"`, `wait_for[2].client is "tls.ca"`,
				"access_review: verb and resource",
			},
		},
		"ready without prog": {`{` + minimal + `, "ready": {}}`, []string{"ready.command is empty"}},
		"large":              {strings.Repeat(" ", strictjson.MaxSize+1), []string{"larger than 1048576"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.content), "/config/flags.json")
			if err == nil {
				t.Fatal("accepted")
			}
			contains(t, err.Error(), test.want...)
		})
	}
}

// load writes both files to a directory and loads them.
func load(t *testing.T, config, extra string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "flags.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if extra != "" {
		if err := os.WriteFile(filepath.Join(dir, extraArgsName), []byte(extra), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(filepath.Join(dir, "flags.json"))
}

func TestExtraArgs(t *testing.T) {
	config := `{` + minimal + `, "flags": {"v": 2, "unset": null, "cloud_provider": null},
		"node_flags": {"node-ip": "address"}, "node": "/node.json"}`
	for name, test := range map[string]struct {
		extra string
		want  []string
	}{
		"good":     {`{"a": 1, "b": [1, 2], "c": {"d": true}, "e": null}`, nil},
		"empty":    {`{}`, nil},
		"null":     {`null`, nil},
		"dashes":   {`{"--a": 1}`, []string{"extra_args.json: --a: write the name of the flag without dashes, a"}},
		"not JSON": {`x`, []string{"extra_args.json", "not JSON"}},
		"nested":   {`{"a": {"b": []}}`, []string{`extra_args.json: a: key "b": must be a string`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, config, test.extra)
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			contains(t, err.Error(), test.want...)
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	_, err := load(t, `{"process": 1}`, "")
	if err == nil || !strings.Contains(err.Error(), "flags.json: process: want") {
		t.Errorf("error = %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent.json")); err == nil ||
		!strings.Contains(err.Error(), "absent.json") {
		t.Errorf("error = %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	config, err := load(t, `{`+minimal+`, "arguments": ["run"], "flags": {
		"v": 2, "big": 2147483648, "ratio": 0.50, "leader-elect": true, "profiling": false, "empty": "", "unset": null,
		"list": ["b", "a"], "commas": ["a,b", "c"], "one": ["a,b"], "none": [], "spaces": "a b'c",
		"again": ["b", "a"], "feature-gates": {"Z": true, "A": false}, "labels": {"a": "x,y", "b": null, "c": ""}
	}, "repeated_flags": ["again"], "node_flags": {"provider-id": "provider_id", "hostname-override": "name"},
		"node": "/node.json"}`, `{"kube-extra": 7}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/bin/x", "run", "--again=b", "--again=a", "--big=2147483648", "--commas=a,b", "--commas=c", "--empty=",
		"--feature-gates=A=false,Z=true",
		"--hostname-override=w", "--kube-extra=7", "--labels=a=x,y", "--labels=c=", "--leader-elect=true", "--list=b,a",
		"--none=", "--one=a,b", "--profiling=false", "--ratio=0.50", "--spaces=a b'c", "--v=2",
	}
	flags, err := config.flags(node.Identity{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	got := config.commandLine(flags)
	if !slices.Equal(got, want) {
		t.Errorf("command line:\n%q, want\n%q", got, want)
	}
}

// TestFilesOfCertificates: a job says only where a file is that its templates put elsewhere.
func TestFilesOfCertificates(t *testing.T) {
	config, err := Parse([]byte(`{`+minimal+`, "certificates": [
		{"property": "tls.client", "usage": "client"},
		{"property": "tls.kubelet_client", "ca": "/cas.pem", "usage": "client"},
		{"property": "tls.trust", "usage": "ca"},
		{"property": "tls.signer", "certificate": "/signer.pem", "private_key": "/signer.key", "usage": "ca"},
		{"property": "registry.ca", "certificate": "/registry.pem", "usage": "ca"},
		{"property": "tls.own", "certificate": "/own.pem", "usage": "client"}],
		"wait_for": [{"url": "https://x/", "client": "tls.client"}, {"url": "https://x/"}]}`), "/config/flags.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []pki.Certificate{
		{CA: "/config/client_ca.pem", Certificate: "/config/client.pem", PrivateKey: "/config/client.key"},
		{CA: "/cas.pem", Certificate: "/config/kubelet_client.pem", PrivateKey: "/config/kubelet_client.key"},
		{Certificate: "/config/trust.pem"},
		{Certificate: "/signer.pem", PrivateKey: "/signer.key"},
		{Certificate: "/registry.pem"},
		{Certificate: "/own.pem"},
	}
	for i, got := range config.Certificates {
		got.Property, got.Usage = "", ""
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("certificates[%d]: %+v, want %+v", i, got, want[i])
		}
	}
	client := apiclient.Credentials{
		CA: "/config/client_ca.pem", Certificate: "/config/client.pem", PrivateKey: "/config/client.key",
	}
	if got := config.WaitFor[0].credentials; got != client {
		t.Errorf("wait_for[0] uses %+v, want %+v", got, client)
	}
	if got := config.WaitFor[1].credentials; got != (apiclient.Credentials{}) {
		t.Errorf("wait_for[1] uses %+v, want none", got)
	}
}

func TestDefaultTimeouts(t *testing.T) {
	config, err := Parse([]byte(`{`+minimal+`, "node": "/node.json", "ready": {"command": ["/x"]},
		"wait_for": [{"url": "https://x/"}, {"url": "https://x/", "timeout": "1s"}]}`), "/config/flags.json")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{config.CheckTimeout.String(), config.StopTimeout.String(), config.Ready.Timeout.String()}
	for _, w := range config.WaitFor {
		got = append(got, w.Timeout.String())
	}
	if want := []string{"30s", "30s", "1m30s", "10m0s", "1s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDeployedKeysAreThoseOfTheFlags: of all processes only an API server verifies tokens.
func TestDeployedKeysAreThoseOfTheFlags(t *testing.T) {
	config, err := Parse([]byte(`{`+minimal+`, "flags": {
		"service-account-signing-key-file": "/c/sa.key", "service-account-key-file": "/c/sa.pub",
		"service-account-issuer": ["https://new", "https://old"], "encryption-provider-config": "/c/encryption.json"
		}}`), "/c/flags.json")
	if err != nil {
		t.Fatal(err)
	}
	want := pki.Deployed{
		Keys:    []pki.SigningKey{{Property: "service_account", PrivateKey: "/c/sa.key", PublicKeys: "/c/sa.pub"}},
		Issuers: []string{"https://new", "https://old"}, Encryption: "/c/encryption.json",
	}
	if got := config.Deployed(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if config, err = Parse([]byte(`{`+minimal+`}`), "/c/flags.json"); err != nil || config.Deployed().Keys != nil {
		t.Errorf("a process without keys has %+v, %v", config.Deployed(), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{` + minimal + `}`))
	f.Add([]byte(`{` + minimal + `, "flags": {"v": 2, "l": ["a", "b,c"], "m": {"k": true}, "n": null},
		"stop_timeout": "30s", "limits": {"nofile": "unlimited"}}`))
	f.Add([]byte(`{` + minimal + `, "node": "/node.json", "node_flags": {"x": "name"},
		"wait_for": [{"url": "https://h/", "access_review": {"verb": "create", "resource": "x"}}]}`))
	f.Add([]byte(`{` + minimal + `, "disk_flags": {"q": "/"}}`))
	f.Add([]byte(`{"flags": {"v": 1, "v": 2}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := Parse(content, "/config/flags.json")
		if err != nil {
			if config != nil {
				t.Error("both an error and a configuration")
			}
			return
		}
		if !json.Valid(content) {
			t.Fatal("accepted text that is not JSON")
		}
		checkArguments(t, config)
	})
}

func FuzzExtraArgs(f *testing.F) {
	f.Add([]byte(`{"a": 1, "b": [1, "x,y"], "c": {"d": true, "e": null}, "f": null, "g": "", "h": [], "i": {}}`))
	f.Add([]byte(`{"--a": 1}`))
	f.Add([]byte(`{"a": "\u0000"}`))
	f.Add([]byte(`{"a": 1e400, "b": -0.0, "c": "\ud800"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		extra, err := ParseExtraArgs(content)
		if err != nil {
			return
		}
		checkArguments(t, &Config{Executable: "/bin/x", extra: extra})
	})
}

// checkArguments checks what is true of every command line: each argument is one flag with a value that the kernel
// accepts, in order.
func checkArguments(t *testing.T, config *Config) {
	flags, err := config.flags(node.Identity{Name: "n"})
	if err != nil {
		return // the size of a disk is not known
	}
	if !slices.IsSortedFunc(flags, func(a, b flag) int { return strings.Compare(a.name, b.name) }) {
		t.Errorf("not sorted: %v", flags)
	}
	for _, f := range flags {
		if len(f.arguments) == 0 {
			t.Errorf("%s has no argument", f.name)
		}
		for _, argument := range f.arguments {
			if !strings.HasPrefix(argument, "--"+f.name+"=") || strings.ContainsRune(argument, 0) {
				t.Errorf("argument %q of flag %s", argument, f.name)
			}
		}
	}
}
