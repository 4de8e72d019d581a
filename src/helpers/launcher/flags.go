package launcher

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/internal/pki"
	"kubernetes-release/node"
)

// flag is one flag of the final command line, with all its arguments.
type flag struct {
	name      string
	arguments []string
	// source is the file and the key that set the flag, for messages.
	source string
}

// flags returns the flags of the job, of the node's identity, of the disk and of the operator, sorted by name. It fails
// if the size of the disk is not known.
func (c *Config) flags(id node.Identity) ([]flag, error) {
	var flags []flag
	add := func(name string, value Value, source string) {
		if arguments := value.arguments(name); arguments != nil {
			flags = append(flags, flag{name: name, arguments: arguments, source: source})
		}
	}
	for name, value := range c.Flags {
		value.repeated = value.repeated || slices.Contains(c.RepeatedFlags, name)
		add(name, value, c.path+", flags")
	}
	for name, key := range c.NodeFlags {
		if text := identityKeys[key](id); text != "" {
			add(name, Value{set: true, elements: []string{text}}, c.path+", node_flags")
		}
	}
	for name, directory := range c.DiskFlags {
		quota, err := databaseQuota(directory)
		if err != nil {
			return nil, fmt.Errorf("%s, disk_flags.%s: %w", c.path, name, err)
		}
		add(name, Value{set: true, elements: []string{strconv.FormatUint(quota, 10)}}, c.path+", disk_flags")
	}
	for name, value := range c.extra {
		add(name, value, "property extra_args, rendered to "+c.extraPath)
	}
	slices.SortFunc(flags, func(a, b flag) int { return strings.Compare(a.name, b.name) })
	return flags, nil
}

// commandLine returns the program, its arguments and its flags.
func (c *Config) commandLine(flags []flag) []string {
	line := append([]string{c.Executable}, c.Arguments...)
	for _, f := range flags {
		line = append(line, f.arguments...)
	}
	return line
}

// CommandLine returns the command line of a configuration with other values for some of its flags, for a helper that
// runs the program before the process starts.
func CommandLine(path string, values map[string]string) ([]string, error) {
	config, err := Load(path)
	if err != nil {
		return nil, err
	}
	for name, value := range values {
		config.Flags[name] = Value{set: true, elements: []string{value}}
	}
	flags, err := config.flags(node.Identity{})
	if err != nil {
		return nil, err
	}
	return config.commandLine(flags), nil
}

// connectionChecks lets programs that keep a connection to an API server notice after 15 seconds that it is dead, in
// place of 45 (readIdleTimeoutSeconds and pingTimeoutSeconds in k8s.io/apimachinery/pkg/util/net/http.go). So a kubelet
// that used a control VM that is lost reports to another one before its own Node is marked as lost, which is after 50
// seconds.
var connectionChecks = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"}

// environment returns the inherited environment with the configuration's changes, sorted.
func (c *Config) environment(id node.Identity, inherited []string) []string {
	variables := maps.Clone(connectionChecks)
	for _, entry := range inherited {
		if name, value, ok := strings.Cut(entry, "="); ok {
			variables[name] = value
		}
	}
	for name, value := range c.Environment {
		if value.set {
			variables[name] = value.text
		} else {
			delete(variables, name)
		}
	}
	for name, key := range c.NodeEnvironment {
		if text := identityKeys[key](id); text != "" {
			variables[name] = text
		} else {
			delete(variables, name)
		}
	}
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		entries = append(entries, name+"="+variables[name])
	}
	return entries
}

// identity returns the VM's identity as a node, empty where the configuration names none.
func (c *Config) identity() (node.Identity, error) {
	if c.Node == "" {
		return node.Identity{}, nil
	}
	return node.Load(c.Node)
}

// identityForCheck is identity for pre-start scripts, when the cloud's part of the identity may not be detected yet.
func (c *Config) identityForCheck(log *slog.Logger) (node.Identity, error) {
	if c.Node == "" {
		return node.Identity{}, nil
	}
	id, detected, err := node.LoadForCheck(c.Node)
	if err == nil && !detected {
		log.Info("the node's identity in the cloud is not detected yet, checking the flags without it", "node", c.Node)
	}
	return id, err
}

// Deployed are the certificates of the process, and of an API server the keys and issuers of tokens and the encryption
// keys, which its flags name.
func (c *Config) Deployed() pki.Deployed {
	deployed := pki.Deployed{Certificates: c.Certificates, Issuers: c.Flags["service-account-issuer"].elements}
	private := c.Flags["service-account-signing-key-file"].elements
	public := c.Flags["service-account-key-file"].elements
	if encryption := c.Flags["encryption-provider-config"].elements; len(encryption) == 1 {
		deployed.Encryption = encryption[0]
	}
	if len(private) == 1 && len(public) == 1 {
		deployed.Keys = []pki.SigningKey{{Property: "service_account", PrivateKey: private[0], PublicKeys: public[0]}}
	}
	return deployed
}
