package launcher

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/pki"
)

const (
	defaultCheckTimeout = 30 * time.Second
	defaultWaitTimeout  = 10 * time.Minute
	defaultReadyTimeout = time.Minute
	defaultStopTimeout  = 30 * time.Second
	// extraArgsName is the file beside a configuration that holds the operator's own flags.
	extraArgsName = "extra_args.json"
)

// Config is what a job renders for one process, config/flags.json.
type Config struct {
	// Process is the name for messages, log files and state files.
	Process string `json:"process"`
	// Executable is the absolute path of the program.
	Executable string `json:"executable"`
	// Arguments come before the flags, as the name of a subcommand does.
	Arguments []string `json:"arguments"`
	// Flags are set by the job, names without dashes.
	Flags map[string]Value `json:"flags"`
	// NodeFlags are filled from the node's identity: flag name to one of the keys of node.Identity. A flag whose part of the
	// identity is empty is left out.
	NodeFlags map[string]string `json:"node_flags"`
	// Environment is added to what the launcher inherits; null removes a variable.
	Environment map[string]Scalar `json:"environment"`
	// NodeEnvironment is to Environment what NodeFlags is to Flags.
	NodeEnvironment map[string]string `json:"node_environment"`
	// Node is the path of the job's config/node.json, see node.Load; empty where nothing depends on the VM's identity as a node.
	Node string `json:"node"`
	// Limits are resource limits by name: core, memlock, nofile, nproc, stack. Where the machine refuses one, that is logged.
	Limits       map[string]Limit  `json:"limits"`
	Certificates []pki.Certificate `json:"certificates"`
	WaitFor      []Wait            `json:"wait_for"`
	// Programs are commands that the process runs from its PATH: name to what for, and what to do where the machine has none.
	Programs map[string]string `json:"programs"`
	// FlagCheck is how check has the flags judged: "help" (the default) runs the program with the real flags and --help,
	// and where it has that flag with --version, "none" does not run it.
	FlagCheck string `json:"flag_check"`
	// CheckTimeout is for each run of the program by check, 30s unless set.
	CheckTimeout Duration `json:"check_timeout"`
	// LogDir is where start sends the program's output: PROCESS.stdout.log and PROCESS.stderr.log, appended.
	LogDir  string `json:"log_dir"`
	Pidfile string `json:"pidfile"`
	Ready   *Ready `json:"ready"`
	// StopTimeout is how long stop waits after SIGTERM before it sends SIGKILL, 30s unless set.
	StopTimeout Duration `json:"stop_timeout"`

	// path is where the configuration was read from, extraPath where the operator's flags are, extra what they are.
	path, extraPath string
	extra           map[string]Value
}

// Wait is something that must answer before the process starts.
type Wait struct {
	// URL must answer with a status 2xx; with AccessReview or StaleNode only its scheme and host count.
	URL string `json:"url"`
	// CA is the path of the bundle that the server's certificate must chain to; the machine's own CAs unless set.
	CA string `json:"ca"`
	// Certificate and PrivateKey are the paths of a client certificate.
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	// TokenFile is the path of a file with a bearer token.
	TokenFile    string        `json:"token_file"`
	AccessReview *AccessReview `json:"access_review"`
	// StaleNode waits while the Node of this machine's name is that of another machine.
	StaleNode bool `json:"stale_node"`
	// Timeout is 10m unless set.
	Timeout Duration `json:"timeout"`
	// UnlessExists is the path of a file that makes the wait unnecessary.
	UnlessExists string `json:"unless_exists"`

	// machine is whose Node StaleNode is about.
	machine node.Identity
}

// AccessReview asks the API server whether the caller may do something, and waits until it may: that proves that the
// server is up, knows the caller, and has the roles that the caller needs.
type AccessReview struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

// Ready is a command that start repeats until it succeeds.
type Ready struct {
	Command []string `json:"command"`
	// Timeout counts from when the program itself runs, 60s unless set.
	Timeout Duration `json:"timeout"`
}

// Load reads a configuration and the operator's flags beside it (extra_args.json, optional). Everything wrong is listed at
// once; errors name the file and the key.
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	content, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config, err := Parse(content)
	if err != nil {
		return nil, inFile(path, err)
	}
	config.path = path
	config.extraPath = filepath.Join(filepath.Dir(path), extraArgsName)
	switch content, err = readFile(config.extraPath); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the operator's flags: %w", err)
	default:
		if config.extra, err = ParseExtraArgs(content); err == nil {
			err = config.refuseOwned()
		}
		if err != nil {
			return nil, inFile(config.extraPath, err)
		}
	}
	return config, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxConfigSize+1))
}

// Parse decodes a configuration strictly and checks it; it reads no other file.
func Parse(content []byte) (*Config, error) {
	var config Config
	if err := decodeStrict(content, &config); err != nil {
		return nil, err
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &config, nil
}

// ParseExtraArgs decodes the operator's flags strictly: a map of flag name, without dashes, to scalar, list or map.
func ParseExtraArgs(content []byte) (map[string]Value, error) {
	var extra map[string]Value
	if err := decodeStrict(content, &extra); err != nil {
		return nil, err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		problems = append(problems, checkFlagName(name))
	}
	return extra, errors.Join(problems...)
}

var (
	flagName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	processName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func checkFlagName(name string) error {
	if flagName.MatchString(name) {
		return nil
	}
	if trimmed := strings.TrimLeft(name, "-"); flagName.MatchString(trimmed) {
		return fmt.Errorf("%s: write the flag's name without dashes, %s", name, trimmed)
	}
	return fmt.Errorf("%q is not the name of a flag: letters, digits, '-', '_' and '.', and no value", name)
}

// sameFlag maps the spellings of a flag that programs take for one to one: Kubernetes' take _ for -.
func sameFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }

// cloudFlags may never be set by hand: one place decides the cloud for all processes.
var cloudFlags = []string{"cloud-config", "cloud-provider"}

// refuseOwned lists every flag of the operator that the job sets itself.
func (c *Config) refuseOwned() error {
	owned := map[string]string{}
	for name := range c.Flags {
		owned[sameFlag(name)] = "the job sets this flag itself: leave it out, and set the job's own property instead"
	}
	for name := range c.NodeFlags {
		owned[sameFlag(name)] = "the job sets this flag from the node's identity: leave it out"
	}
	for _, name := range cloudFlags {
		owned[name] = "the cloud is the same for all processes: leave it out, and set the properties of the job cloud-provider instead"
	}
	seen := map[string]string{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.extra)) {
		if why, ok := owned[sameFlag(name)]; ok {
			problems = append(problems, fmt.Errorf("%s: %s", name, why))
		}
		if other, ok := seen[sameFlag(name)]; ok {
			problems = append(problems, fmt.Errorf("%s and %s are the same flag: leave one out", other, name))
		}
		seen[sameFlag(name)] = name
	}
	return errors.Join(problems...)
}

// validation collects what is wrong with a configuration.
type validation struct{ problems []error }

func (v *validation) problem(format string, arguments ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, arguments...))
}

func (v *validation) absolute(key, path string) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		v.problem("%s is %q: give an absolute path", key, path)
	}
}

func (v *validation) absoluteOrEmpty(key, path string) {
	if path != "" {
		v.absolute(key, path)
	}
}

func (c *Config) validate() error {
	var v validation
	if !processName.MatchString(c.Process) {
		v.problem("process is %q: give a name of letters, digits, '-', '_' and '.'", c.Process)
	}
	v.absolute("executable", c.Executable)
	v.absoluteOrEmpty("log_dir", c.LogDir)
	v.absoluteOrEmpty("pidfile", c.Pidfile)
	for i, argument := range c.Arguments {
		if argument == "--" || strings.ContainsRune(argument, 0) {
			v.problem("arguments[%d] is %q: the flags come after the arguments, so %q may not end them, and no argument holds NUL", i, argument, "--")
		}
	}
	if !slices.Contains([]string{"", "help", "none"}, c.FlagCheck) {
		v.problem("flag_check is %q: allowed are help and none", c.FlagCheck)
	}
	c.validateFlags(&v)
	c.validateEnvironment(&v)
	c.validateNode(&v)
	c.validateLimits(&v)
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		if name == "" || strings.ContainsRune(name, '/') {
			v.problem("programs holds %q: give the name of a command, without a folder", name)
		}
	}
	for i, certificate := range c.Certificates {
		v.certificate(fmt.Sprintf("certificates[%d]", i), certificate)
	}
	for i, wait := range c.WaitFor {
		v.wait(fmt.Sprintf("wait_for[%d]", i), wait)
		if wait.StaleNode && c.Node == "" {
			v.problem("wait_for[%d].stale_node: node is missing: it says whose Node is meant", i)
		}
	}
	if c.Ready != nil {
		v.ready(*c.Ready)
	}
	return errors.Join(v.problems...)
}

func (c *Config) validateFlags(v *validation) {
	seen := map[string]string{}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(c.Flags)), slices.Sorted(maps.Keys(c.NodeFlags))) {
		if err := checkFlagName(name); err != nil {
			v.problem("flags: %w", err)
		}
		if other, ok := seen[sameFlag(name)]; ok {
			v.problem("flags and node_flags set the same flag, %s and %s: leave one out", other, name)
		}
		seen[sameFlag(name)] = name
	}
	for _, name := range slices.Sorted(maps.Keys(c.NodeFlags)) {
		v.identityKey("node_flags."+name, c.NodeFlags[name])
	}
}

func (c *Config) validateEnvironment(v *validation) {
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(c.Environment)), slices.Sorted(maps.Keys(c.NodeEnvironment))) {
		if !variable.MatchString(name) {
			v.problem("environment holds %q, which is not the name of a variable: letters, digits and '_'", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.NodeEnvironment)) {
		v.identityKey("node_environment."+name, c.NodeEnvironment[name])
		if _, both := c.Environment[name]; both {
			v.problem("%s is set by environment and node_environment: leave one out", name)
		}
	}
}

func (c *Config) validateNode(v *validation) {
	if c.Node == "" && len(c.NodeFlags)+len(c.NodeEnvironment) > 0 {
		v.problem("node is missing: node_flags and node_environment are filled from it")
	}
	v.absoluteOrEmpty("node", c.Node)
}

func (c *Config) validateLimits(v *validation) {
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		if _, ok := resources[name]; !ok {
			v.problem("limits.%s: unknown limit; allowed are %s", name, strings.Join(slices.Sorted(maps.Keys(resources)), ", "))
		}
	}
}

func (v *validation) identityKey(key, value string) {
	if _, ok := identityKeys[value]; !ok {
		v.problem("%s is %q: allowed are %s", key, value, strings.Join(slices.Sorted(maps.Keys(identityKeys)), ", "))
	}
}

func (v *validation) certificate(key string, c pki.Certificate) {
	if err := c.Validate(); err != nil {
		v.problem("%s: %w", key, err)
	}
	v.absoluteOrEmpty(key+".ca", c.CA)
	v.absoluteOrEmpty(key+".certificate", c.Certificate)
	v.absoluteOrEmpty(key+".private_key", c.PrivateKey)
}

func (v *validation) wait(key string, w Wait) {
	address, err := url.Parse(w.URL)
	if err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http") {
		v.problem("%s.url is %q: give a URL such as https://host:6443/readyz", key, w.URL)
	} else if address.Scheme == "http" && (w.TokenFile != "" || w.CA != "" || w.Certificate != "") {
		v.problem("%s.url is %q: token, CA and certificate belong to https only", key, w.URL)
	}
	if (w.Certificate == "") != (w.PrivateKey == "") {
		v.problem("%s: certificate and private_key belong together: give both or neither", key)
	}
	if w.AccessReview != nil && (w.AccessReview.Verb == "" || w.AccessReview.Resource == "") {
		v.problem("%s.access_review: verb and resource are needed", key)
	}
	if w.AccessReview != nil && w.StaleNode {
		v.problem("%s: access_review and stale_node are two waits: write one entry for each", key)
	}
	for name, path := range map[string]string{"ca": w.CA, "certificate": w.Certificate, "private_key": w.PrivateKey, "token_file": w.TokenFile, "unless_exists": w.UnlessExists} {
		v.absoluteOrEmpty(key+"."+name, path)
	}
}

func (v *validation) ready(r Ready) {
	if len(r.Command) == 0 {
		v.problem("ready.command is empty: give a program's absolute path and its arguments")
		return
	}
	v.absolute("ready.command[0]", r.Command[0])
}

// identityKeys are the parts of a node's identity that flags and variables can be filled from.
var identityKeys = map[string]func(node.Identity) string{
	"name":        func(id node.Identity) string { return id.Name },
	"provider_id": func(id node.Identity) string { return id.ProviderID },
	"address":     func(id node.Identity) string { return id.Address },
	"region":      func(id node.Identity) string { return id.Region },
	"zone":        func(id node.Identity) string { return id.Zone },
}

func inFile(path string, err error) error { return &fileError{path: path, err: err} }

// fileError is a list of problems with one file.
type fileError struct {
	path string
	err  error
}

func (e *fileError) Error() string {
	lines := problemsOf(e.err)
	if len(lines) == 1 {
		return e.path + ": " + lines[0]
	}
	return fmt.Sprintf("%s: %d problems:\n  - %s", e.path, len(lines), strings.Join(lines, "\n  - "))
}

func (e *fileError) Unwrap() error { return e.err }

// problemsOf takes joined errors apart.
func problemsOf(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return strings.Split(err.Error(), "\n")
	}
	var lines []string
	for _, part := range joined.Unwrap() {
		lines = append(lines, problemsOf(part)...)
	}
	return lines
}
