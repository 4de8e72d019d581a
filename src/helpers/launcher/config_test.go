package launcher

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/helpers/node"
)

const minimal = `"process": "x", "executable": "/bin/x"`

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"empty":              {"", []string{"it is empty"}},
		"cut short":          {`{"process": "x"`, []string{"ends in the middle"}},
		"not JSON":           {"{\n\"process\": x}", []string{"not JSON, line 2"}},
		"two values":         {`{` + minimal + `} {}`, []string{"more after"}},
		"a list":             {`[]`, []string{"want a map, found []"}},
		"null":               {`null`, []string{`process is ""`, `executable is ""`}},
		"not UTF-8":          {"{\"process\": \"\xff\"}", []string{"not UTF-8"}},
		"twice":              {`{"flags": {"v": 1, "v": 2}}`, []string{"flags.v is given twice"}},
		"deep":               {strings.Repeat("[", 40) + strings.Repeat("]", 40), []string{"nested deeper"}},
		"unknown keys":       {`{"proces": 1, "wait_for": [{"tmeout": "1s"}], "qqqqqqqqq": 1}`, []string{"proces: unknown key; did you mean process?", "wait_for[0].tmeout: unknown key; did you mean timeout?", "qqqqqqqqq: unknown key; allowed are arguments, "}},
		"case":               {`{"Process": "x"}`, []string{"Process: unknown key; did you mean process?"}},
		"types":              {`{"process": 1, "flags": [], "arguments": "x", "limits": {"nofile": -1}, "stop_timeout": 5}`, []string{"process: want a string, found 1", "flags: want a map, found []", `arguments: want a list, found "x"`, "limits.nofile: -1 is not a limit", "stop_timeout: 5 is not a duration"}},
		"durations":          {`{"stop_timeout": "0s", "check_timeout": "5"}`, []string{`"0s" is not a duration`, `"5" is not a duration`}},
		"nested value":       {`{"flags": {"a": [[1]], "b": {"c": {}}, "d": [null], "e": {"x=y": 1}, "f": "a\u0000b"}}`, []string{"flags.a: element 0", `flags.b: key "c"`, "element 0 is null", `flags.e: key "x=y"`, "flags.f: \"a\\u0000b\" holds a NUL"}},
		"paths":              {`{"process": "a/b", "executable": "x", "log_dir": "y", "pidfile": "z", "ready": {"command": ["w"]}}`, []string{`process is "a/b"`, `executable is "x": give an absolute path`, `log_dir is "y"`, `pidfile is "z"`, `ready.command[0] is "w"`}},
		"dashes":             {`{` + minimal + `, "flags": {"--v": 1, "a b": 2}}`, []string{"write the flag's name without dashes, v", `"a b" is not the name of a flag`}},
		"separator":          {`{` + minimal + `, "arguments": ["--"]}`, []string{"arguments[0]"}},
		"flag twice":         {`{` + minimal + `, "flags": {"node-ip": 1}, "node_flags": {"node_ip": "address"}, "node": "/node.json"}`, []string{"the same flag, node-ip and node_ip"}},
		"identity keys":      {`{` + minimal + `, "node_flags": {"x": "nam"}, "node_environment": {"X": ""}, "node": "/node.json"}`, []string{`node_flags.x is "nam": allowed are address, name, provider_id, region, zone`, `node_environment.X is ""`}},
		"no node":            {`{` + minimal + `, "node_flags": {"x": "name"}}`, []string{"node is missing"}},
		"bad node":           {`{` + minimal + `, "node": "node.json"}`, []string{`node is "node.json": give an absolute path`}},
		"environment":        {`{` + minimal + `, "environment": {"A B": "x", "C": []}}`, []string{"environment.C: want a string"}},
		"environment names":  {`{` + minimal + `, "environment": {"A B": "x", "C": 1}, "node_environment": {"C": "name"}, "node": "/node.json"}`, []string{`"A B"`, "C is set by environment and node_environment"}},
		"limit":              {`{` + minimal + `, "limits": {"nofiles": 1}}`, []string{"limits.nofiles: unknown limit; allowed are core, memlock, nofile, nproc, stack"}},
		"flag check":         {`{` + minimal + `, "flag_check": "maybe"}`, []string{`flag_check is "maybe": allowed are help and none`}},
		"certificate":        {`{` + minimal + `, "certificates": [{"usage": "sever"}]}`, []string{"certificates[0]", `usage is "sever"`}},
		"wait":               {`{` + minimal + `, "wait_for": [{"url": "host:6443"}, {"url": "http://x/", "token_file": "/t"}, {"url": "https://x", "certificate": "/c", "access_review": {}}]}`, []string{`wait_for[0].url is "host:6443"`, "belong to https only", "certificate and private_key belong together", "access_review: verb and resource"}},
		"stale node":         {`{` + minimal + `, "wait_for": [{"url": "https://x", "access_review": {"verb": "get", "resource": "x"}, "stale_node": true}]}`, []string{"wait_for[0]: access_review and stale_node are two waits", "wait_for[0].stale_node: node is missing"}},
		"ready without prog": {`{` + minimal + `, "ready": {}}`, []string{"ready.command is empty"}},
		"large":              {strings.Repeat(" ", maxConfigSize+1), []string{"allowed are 1048576"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.content))
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
	config := `{` + minimal + `, "flags": {"v": 2, "unset": null}, "node_flags": {"node-ip": "address"}, "node": "/node.json"}`
	for name, test := range map[string]struct {
		extra string
		want  []string
	}{
		"good":     {`{"a": 1, "b": [1, 2], "c": {"d": true}, "e": null}`, nil},
		"empty":    {`{}`, nil},
		"null":     {`null`, nil},
		"owned":    {`{"v": 3, "unset": 1, "node_ip": "x", "cloud-provider": "aws", "cloud_config": null}`, []string{"5 problems", "v: the job sets this flag itself", "unset: the job", "node_ip: the job sets this flag from the node's identity", "cloud-provider: the cloud", "cloud_config: the cloud"}},
		"dashes":   {`{"--a": 1}`, []string{"extra_args.json: --a: write the flag's name without dashes, a"}},
		"twice":    {`{"a-b": 1, "a_b": 2}`, []string{"a-b and a_b are the same flag"}},
		"not JSON": {`x`, []string{"extra_args.json", "not JSON"}},
		"nested":   {`{"a": {"b": []}}`, []string{`a: key "b": want a string`}},
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
	if _, err := Load(filepath.Join(t.TempDir(), "absent.json")); err == nil || !strings.Contains(err.Error(), "absent.json") {
		t.Errorf("error = %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	config, err := load(t, `{`+minimal+`, "arguments": ["run"], "flags": {
		"v": 2, "big": 2147483648, "ratio": 0.50, "leader-elect": true, "profiling": false, "empty": "", "unset": null,
		"list": ["b", "a"], "commas": ["a,b", "c"], "one": ["a,b"], "none": [], "spaces": "a b'c",
		"feature-gates": {"Z": true, "A": false}, "labels": {"a": "x,y", "b": null, "c": ""}
	}, "node_flags": {"provider-id": "provider_id", "hostname-override": "name"}, "node": "/node.json"}`, `{"kube-extra": 7}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/bin/x", "run", "--big=2147483648", "--commas=a,b", "--commas=c", "--empty=", "--feature-gates=A=false,Z=true", "--hostname-override=w", "--kube-extra=7",
		"--labels=a=x,y", "--labels=c=", "--leader-elect=true", "--list=b,a", "--none=", "--one=a,b", "--profiling=false", "--ratio=0.50", "--spaces=a b'c", "--v=2",
	}
	got := config.commandLine(config.flags(node.Identity{Name: "w"}))
	if !slices.Equal(got, want) {
		t.Errorf("command line:\n%q, want\n%q", got, want)
	}
	contains(t, quote(got), `'--spaces=a b'\''c'`, " --v=2")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{` + minimal + `}`))
	f.Add([]byte(`{` + minimal + `, "flags": {"v": 2, "l": ["a", "b,c"], "m": {"k": true}, "n": null}, "stop_timeout": "30s", "limits": {"nofile": "unlimited"}}`))
	f.Add([]byte(`{` + minimal + `, "node": "/node.json", "node_flags": {"x": "name"}, "wait_for": [{"url": "https://h/", "access_review": {"verb": "create", "resource": "x"}}]}`))
	f.Add([]byte(`{"flags": {"v": 1, "v": 2}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := Parse(content)
		if err != nil {
			if config != nil {
				t.Error("an error with a configuration")
			}
			return
		}
		if !json.Valid(content) {
			t.Fatal("accepted what is not JSON")
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

// checkArguments wants what every command line must be: each argument one flag with a value that the kernel takes, in order.
func checkArguments(t *testing.T, config *Config) {
	flags := config.flags(node.Identity{Name: "n"})
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
