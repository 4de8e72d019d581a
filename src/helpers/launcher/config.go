package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/pki"
	"kubernetes-release/internal/strictjson"
)

// Timeouts of a process whose configuration sets none. Jobs render a timeout only where their process requires another.
const (
	defaultCheckTimeout = 30 * time.Second
	defaultWaitTimeout  = 10 * time.Minute
	defaultReadyTimeout = 90 * time.Second
	defaultStopTimeout  = 30 * time.Second
)

// extraArgsName is the file next to a configuration that holds the operator's own flags.
const extraArgsName = "extra_args.json"

// Config is what a job renders for one process, config/flags.json.
type Config struct {
	// Process is the name for messages, log files and state files.
	Process string `json:"process"`
	// Executable is the absolute path of the program.
	Executable string `json:"executable"`
	// Arguments come before the flags, such as the name of a subcommand.
	Arguments []string `json:"arguments"`
	// Flags are set by the job, by their names without dashes.
	Flags map[string]Value `json:"flags"`
	// RepeatedFlags are those of Flags whose lists become one argument for each element, because the program takes a
	// comma as a part of the value.
	RepeatedFlags []string `json:"repeated_flags"`
	// NodeFlags are set from the node's identity: flag name to one of the keys of node.Identity. A flag is left out if
	// that part of the identity is empty.
	NodeFlags map[string]string `json:"node_flags"`
	// DiskFlags are set to the size in bytes that a database of etcd may have: flag name to a directory of its disk.
	DiskFlags map[string]string `json:"disk_flags"`
	// Environment is added to the launcher's own environment; null removes a variable.
	Environment map[string]Scalar `json:"environment"`
	// NodeEnvironment is to Environment what NodeFlags is to Flags.
	NodeEnvironment map[string]string `json:"node_environment"`
	// Node is the path of the job's config/node.json, see node.Load; required by NodeFlags and NodeEnvironment.
	Node string `json:"node"`
	// Limits are resource limits: core, memlock, nofile, nproc or stack to a whole number or "unlimited", soft and hard
	// alike. The process starts even if the machine refuses one; that is logged.
	Limits map[string]Scalar `json:"limits"`
	// KernelModules, Sysctls, LockFiles, Directories and ResolverFile are what start prepares on the VM, see prepare.
	//
	// KernelModules are loaded where they are missing; that a module cannot be loaded is logged.
	KernelModules []string `json:"kernel_modules"`
	// Sysctls are kernel settings: name, with dots, to value. A setting that is missing or cannot be set keeps the
	// process from starting.
	Sysctls map[string]Scalar `json:"sysctls"`
	// PrivateDir is the configuration of a job that runs as root, such as /var/vcap/jobs/kubelet/config: only root can
	// read what is in it once check or start has run. It holds keys, and passwords of proxies and clouds. It is not the
	// job's whole directory: bosh-dns runs as vcap and reads bin and .bosh of every job (bosh-dns-release,
	// src/bosh-dns/healthconfig/jobs_parser.go).
	PrivateDir string `json:"private_dir"`
	// Capabilities are all that the process has, and all that it can ever get: names of capabilities(7) without CAP_.
	// It also gets no new privileges from the programs that it runs. Without this field it keeps what its parent has.
	Capabilities []string `json:"capabilities"`
	// UserID is the number of the user, and of its group, that the process runs as: one that no other process has, so
	// that nobody but root can read what it reads, and look into it. It needs no entry in /etc/passwd. The process can
	// read PrivateDir, and is a member of the group that can enter the job's directory, which is vcap. It requires
	// private_dir, and capabilities, of which it can have NET_BIND_SERVICE. bpm starts every process as vcap: exec then
	// becomes the user before it waits for anything, for which bpm.yml must list startCapabilities.
	UserID int `json:"user_id"`
	// UserDirs are directories that check gives to the user with everything in them; it creates those that are missing.
	UserDirs []string `json:"user_dirs"`
	// PersistentDisk is where the persistent disk must be mounted, /var/vcap/store, if the instance has one. check and
	// exec refuse to write there otherwise.
	PersistentDisk string `json:"persistent_disk"`
	// WritablePaths are where the process can write to files; paths that do not exist are left out. Without this field
	// it can write wherever its user can.
	WritablePaths []string `json:"writable_paths"`
	// LockFiles are created empty if they do not exist, so that the process can write to them in a directory in which
	// it cannot.
	LockFiles []string `json:"lock_files"`
	// Directories are created with root as their owner, or taken from another owner.
	Directories []Directory `json:"directories"`
	// ResolverFile is the path of the resolver file for pods that start writes, see package resolvconf.
	ResolverFile string `json:"resolver_file"`
	// Certificates are checked before the process starts. One whose property is tls.NAME and that names no file has its
	// files next to this configuration: NAME.pem and, unless it is a CA, NAME.key and NAME_ca.pem.
	Certificates []pki.Certificate `json:"certificates"`
	WaitFor      []Wait            `json:"wait_for"`
	// Setup is a command, with its arguments, that must succeed after the waits before the process starts. It has the
	// process's environment, and must limit its time itself.
	Setup []string `json:"setup"`
	// Programs are commands that the process runs from its PATH: name to what it needs the command for, and what to do
	// on a machine that does not have it.
	Programs map[string]string `json:"programs"`
	// CgroupV2 is what to do on a VM with cgroup v1, if the process requires version 2; check refuses such a VM then.
	CgroupV2 string `json:"cgroup_v2"`
	// FlagCheck is how check checks the flags: "help" (the default) runs the program with its flags and --help, and, if
	// it has that flag, with --version; "none" does not run it.
	FlagCheck string `json:"flag_check"`
	// CheckTimeout is the processor time that each run of the program by check may use; defaults to 30s. A run that
	// takes ten times as long is ended too.
	CheckTimeout *duration.Duration `json:"check_timeout"`
	// LogDir is where start writes the program's output, appending: PROCESS.stdout.log and PROCESS.stderr.log.
	LogDir  string `json:"log_dir"`
	Pidfile string `json:"pidfile"`
	Ready   *Ready `json:"ready"`
	// StopTimeout is the time between SIGTERM and SIGKILL; defaults to 30s.
	StopTimeout *duration.Duration `json:"stop_timeout"`

	// path is where the configuration was read from, extraPath where the operator's flags are.
	path, extraPath string
	extra           map[string]Value
	// limits are Limits as numbers.
	limits map[string]uint64
	// sysctls are Sysctls as text.
	sysctls map[string]string
}

// Wait is a condition that must hold before the process starts.
type Wait struct {
	// File is the path of a file that must exist; instead of the URL.
	File string `json:"file"`
	// URL must answer with a status 2xx; with AccessReview only its scheme and host matter.
	URL string `json:"url"`
	// Client is the property of the one of Certificates that authenticates the request, and whose CA the server's
	// certificate must chain to; without it, there is no client certificate, and the VM's own CAs are trusted.
	Client string `json:"client"`
	// AccessReview waits until the client has this permission. Then the API server is up, it accepts the credentials,
	// and the roles that the process needs are bound.
	AccessReview *apiclient.Access `json:"access_review"`
	// Timeout defaults to 10m.
	Timeout *duration.Duration `json:"timeout"`

	credentials apiclient.Credentials // of Client
}

// Ready is a command that start repeats until it succeeds.
type Ready struct {
	Command []string `json:"command"`
	// Timeout counts from when the program itself runs; defaults to 90s.
	Timeout *duration.Duration `json:"timeout"`
}

// Load reads a configuration and the operator's flags next to it (extra_args.json, optional). Errors name the file and
// list every problem with it.
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config, err := Parse(content, path)
	if err != nil {
		return nil, inFile(path, err)
	}
	config.extraPath = filepath.Join(filepath.Dir(path), extraArgsName)
	if err := config.loadExtraArgs(); err != nil {
		return nil, err
	}
	return config, nil
}

func (c *Config) loadExtraArgs() error {
	content, err := os.ReadFile(c.extraPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the operator's flags: %w", err)
	}
	if c.extra, err = ParseExtraArgs(content); err != nil {
		return inFile(c.extraPath, err)
	}
	return nil
}

// Parse decodes the configuration of this path strictly, validates it and sets its defaults; it reads no file.
func Parse(content []byte, path string) (*Config, error) {
	config := Config{path: path}
	if err := strictjson.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	config.nameFiles()
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return &config, nil
}

// nameFiles sets the files of certificates that are where the job's templates put them, and the credentials of waits.
func (c *Config) nameFiles() {
	for i := range c.Certificates {
		certificate := &c.Certificates[i]
		name, ok := strings.CutPrefix(certificate.Property, "tls.")
		if !ok || certificate.Certificate != "" {
			continue
		}
		file := filepath.Join(filepath.Dir(c.path), name)
		certificate.Certificate = file + ".pem"
		if certificate.Usage != pki.UsageCA {
			certificate.PrivateKey = cmp.Or(certificate.PrivateKey, file+".key")
			certificate.CA = cmp.Or(certificate.CA, file+"_ca.pem")
		}
	}
	for i, w := range c.WaitFor {
		if client := c.certificate(w.Client); client != nil {
			c.WaitFor[i].credentials = apiclient.Credentials{
				CA: client.CA, Certificate: client.Certificate, PrivateKey: client.PrivateKey,
			}
		}
	}
}

// certificate returns that of a property, or nil.
func (c *Config) certificate(property string) *pki.Certificate {
	i := slices.IndexFunc(c.Certificates, func(p pki.Certificate) bool { return p.Property == property })
	if i < 0 {
		return nil
	}
	return &c.Certificates[i]
}

func (c *Config) setDefaults() {
	setDefault(&c.CheckTimeout, defaultCheckTimeout)
	setDefault(&c.StopTimeout, defaultStopTimeout)
	for i := range c.WaitFor {
		setDefault(&c.WaitFor[i].Timeout, defaultWaitTimeout)
	}
	if c.Ready != nil {
		setDefault(&c.Ready.Timeout, defaultReadyTimeout)
	}
}

func setDefault(timeout **duration.Duration, value time.Duration) {
	if *timeout == nil {
		d := duration.Duration(value)
		*timeout = &d
	}
}

// ParseExtraArgs decodes the operator's flags strictly: a map of flag name, without dashes, to scalar, list or map.
func ParseExtraArgs(content []byte) (map[string]Value, error) {
	var extra map[string]Value
	if err := strictjson.Unmarshal(content, &extra); err != nil {
		return nil, err
	}
	return extra, errors.Join(flagProblems(extra)...)
}

// flagProblems returns the problems with the names and values of flags, sorted by name.
func flagProblems(flags map[string]Value) []error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if err := checkFlagName(name); err != nil {
			problems = append(problems, err)
		}
		if err := flags[name].err; err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return problems
}

// sameFlag maps the spellings of one flag to one: Kubernetes' programs accept _ for -.
func sameFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }

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

// problemsOf returns the messages of joined errors.
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
