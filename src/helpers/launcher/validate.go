package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/pki"
	"kubernetes-release/node"
)

var (
	flagName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	processName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	moduleName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)
	sysctlName  = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// identityKeys are the parts of a node's identity that flags and variables can be set from.
var identityKeys = map[string]func(node.Identity) string{
	"name":        func(id node.Identity) string { return id.Name },
	"provider_id": func(id node.Identity) string { return id.ProviderID },
	"address":     func(id node.Identity) string { return id.Address },
	"region":      func(id node.Identity) string { return id.Region },
	"zone":        func(id node.Identity) string { return id.Zone },
}

func checkFlagName(name string) error {
	if flagName.MatchString(name) {
		return nil
	}
	if trimmed := strings.TrimLeft(name, "-"); flagName.MatchString(trimmed) {
		return fmt.Errorf("%s: write the name of the flag without dashes, %s", name, trimmed)
	}
	return fmt.Errorf("%q is not the name of a flag, which has letters, digits, '-', '_' and '.'", name)
}

// validation collects the problems of a configuration.
type validation struct{ problems []error }

func (v *validation) problem(format string, arguments ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, arguments...))
}

func (v *validation) absolute(key, path string) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		v.problem("%s is %q: set an absolute path", key, path)
	}
}

func (v *validation) absoluteOrEmpty(key, path string) {
	if path != "" {
		v.absolute(key, path)
	}
}

func (v *validation) positive(key string, d *duration.Duration) {
	if d != nil && *d <= 0 {
		v.problem("%s is %s: set a positive duration", key, d)
	}
}

// validate returns every problem. It converts Limits, Sysctls and the modes of Directories.
func (c *Config) validate() error {
	var v validation
	if !processName.MatchString(c.Process) {
		v.problem("process is %q: set a name of letters, digits, '-', '_' and '.'", c.Process)
	}
	v.absolute("executable", c.Executable)
	v.absoluteOrEmpty("log_dir", c.LogDir)
	v.absoluteOrEmpty("pidfile", c.Pidfile)
	v.absoluteOrEmpty("private_dir", c.PrivateDir)
	v.absoluteOrEmpty("node", c.Node)
	v.positive("check_timeout", c.CheckTimeout)
	v.positive("stop_timeout", c.StopTimeout)
	for i, argument := range c.Arguments {
		if argument == "--" || strings.ContainsRune(argument, 0) {
			v.problem(
				"arguments[%d] is %q: flags follow the arguments, so %q cannot be one, and no argument can contain NUL",
				i, argument, "--",
			)
		}
	}
	if !slices.Contains([]string{"", "help", "none"}, c.FlagCheck) {
		v.problem("flag_check is %q: allowed are help and none", c.FlagCheck)
	}
	c.validateFlags(&v)
	c.validateEnvironment(&v)
	c.validateLimits(&v)
	c.validateConfinement(&v)
	c.validatePreparation(&v)
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		if name == "" || strings.ContainsRune(name, '/') {
			v.problem("programs has %q: set the name of a command, without a directory", name)
		}
	}
	for i, certificate := range c.Certificates {
		v.certificate(fmt.Sprintf("certificates[%d]", i), certificate)
	}
	for i, w := range c.WaitFor {
		c.validateWait(&v, fmt.Sprintf("wait_for[%d]", i), w)
	}
	if len(c.Setup) > 0 {
		v.absolute("setup[0]", c.Setup[0])
	}
	if c.Ready != nil {
		v.ready(*c.Ready)
	}
	return errors.Join(v.problems...)
}

func (c *Config) validateFlags(v *validation) {
	for _, problem := range flagProblems(c.Flags) {
		v.problem("flags: %w", problem)
	}
	for _, name := range slices.Sorted(maps.Keys(c.NodeFlags)) {
		if err := checkFlagName(name); err != nil {
			v.problem("node_flags: %w", err)
		}
		v.identityKey("node_flags."+name, c.NodeFlags[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.DiskFlags)) {
		if err := checkFlagName(name); err != nil {
			v.problem("disk_flags: %w", err)
		}
		v.absolute("disk_flags."+name, c.DiskFlags[name])
	}
	seen := map[string]string{}
	for _, name := range slices.Concat(
		slices.Sorted(maps.Keys(c.Flags)), slices.Sorted(maps.Keys(c.NodeFlags)), slices.Sorted(maps.Keys(c.DiskFlags)),
	) {
		if other, ok := seen[sameFlag(name)]; ok {
			v.problem("flags, node_flags and disk_flags set the same flag, %s and %s: remove one", other, name)
		}
		seen[sameFlag(name)] = name
	}
	if c.Node == "" && len(c.NodeFlags)+len(c.NodeEnvironment) > 0 {
		v.problem("node is missing: node_flags and node_environment are set from it")
	}
}

func (c *Config) validateEnvironment(v *validation) {
	for _, name := range slices.Concat(
		slices.Sorted(maps.Keys(c.Environment)), slices.Sorted(maps.Keys(c.NodeEnvironment)),
	) {
		if !variable.MatchString(name) {
			v.problem("environment has %q, which is not the name of a variable: letters, digits and '_'", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		if err := c.Environment[name].err; err != nil {
			v.problem("environment.%s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.NodeEnvironment)) {
		v.identityKey("node_environment."+name, c.NodeEnvironment[name])
		if _, both := c.Environment[name]; both {
			v.problem("environment and node_environment both set %s: remove one", name)
		}
	}
}

func (c *Config) validateLimits(v *validation) {
	c.limits = map[string]uint64{}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		if _, ok := resources[name]; !ok {
			v.problem(
				"limits.%s: unknown limit; allowed are %s", name,
				strings.Join(slices.Sorted(maps.Keys(resources)), ", "),
			)
			continue
		}
		switch limit, err := c.Limits[name].limit(); {
		case err != nil:
			v.problem("limits.%s: %w", name, err)
		case c.Limits[name].set:
			c.limits[name] = limit
		}
	}
}

func (c *Config) validatePreparation(v *validation) {
	v.absoluteOrEmpty("resolver_file", c.ResolverFile)
	for i, name := range c.KernelModules {
		if !moduleName.MatchString(name) {
			v.problem(
				"kernel_modules[%d] is %q: set the name of a module, which has letters, digits, '-' and '_'", i, name,
			)
		}
	}
	c.sysctls = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		value := c.Sysctls[name]
		switch {
		case !sysctlName.MatchString(name):
			v.problem("sysctls has %q: set the name of a kernel setting with dots, such as net.ipv4.ip_forward", name)
		case value.err != nil:
			v.problem("sysctls.%s: %w", name, value.err)
		case strings.TrimSpace(value.text) == "":
			v.problem("sysctls.%s has no value: set one", name)
		default:
			c.sysctls[name] = strings.Join(strings.Fields(value.text), " ")
		}
	}
	for i, directory := range c.Directories {
		v.absolute(fmt.Sprintf("directories[%d].path", i), directory.Path)
		mode, err := strconv.ParseUint(directory.Mode, 8, 32)
		if err != nil || mode == 0 || mode > 0o777 || mode&0o022 != 0 {
			v.problem(
				"directories[%d].mode is %q: set octal permissions that let only the owner write, such as 0755", i,
				directory.Mode,
			)
		}
		c.Directories[i].mode = fs.FileMode(mode)
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

func (c *Config) validateWait(v *validation, key string, w Wait) {
	v.positive(key+".timeout", w.Timeout)
	if w.File != "" {
		v.absolute(key+".file", w.File)
		if w.URL != "" {
			v.problem("%s: file and url are two conditions: add one entry for each", key)
		}
		return
	}
	address, err := url.Parse(w.URL)
	if err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http") {
		v.problem("%s.url is %q: set a URL such as https://host:6443/readyz", key, w.URL)
	} else if address.Scheme == "http" && w.Client != "" {
		v.problem("%s.url is %q: client requires https", key, w.URL)
	}
	if w.Client != "" && (w.credentials.PrivateKey == "" || w.credentials.CA == "") {
		v.problem("%s.client is %q: set the property of one of certificates that has a key and a CA", key, w.Client)
	}
	if w.AccessReview != nil && (w.AccessReview.Verb == "" || w.AccessReview.Resource == "") {
		v.problem("%s.access_review: verb and resource are required", key)
	}
}

func (v *validation) ready(r Ready) {
	v.positive("ready.timeout", r.Timeout)
	if len(r.Command) == 0 {
		v.problem("ready.command is empty: set the absolute path of a program, and its arguments")
		return
	}
	v.absolute("ready.command[0]", r.Command[0])
}
