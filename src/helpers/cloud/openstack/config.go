package openstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"gopkg.in/gcfg.v1"

	"kubernetes-release/cloud"
)

// config is the cloud controller manager's file.
type config struct {
	values map[string]string // by SECTION.KEY, with the names of configKeys
	// ignored says which parts of the file neither the preflight nor the templates know.
	ignored string
}

func (c config) get(section, key string) string { return c.values[section+"."+key] }

// endpoint selects the endpoints in the catalog.
func (c config) endpoint() gophercloud.EndpointOpts {
	return gophercloud.EndpointOpts{
		Region: c.get("Global", "region"), Availability: gophercloud.Availability(c.get("Global", "os-endpoint-type")),
	}
}

// balancers reports whether Services get load balancers.
func (c config) balancers() bool { return c.get("LoadBalancer", "enabled") != "false" }

// parseConfig reads the file with the library of the cloud controller manager, into a struct with a field for each key.
func parseConfig(text []byte) (config, error) {
	fields := map[string][]reflect.StructField{}
	var names []string
	for _, key := range configKeys() {
		if fields[key.Section] == nil {
			names = append(names, key.Section)
		}
		kind := reflect.TypeFor[string]()
		if key.Kind == cloud.List {
			kind = reflect.TypeFor[[]string]()
		}
		fields[key.Section] = append(fields[key.Section], field(len(fields[key.Section]), key.Name, kind))
	}
	var sections []reflect.StructField
	for i, name := range names {
		sections = append(sections, field(i, name, reflect.StructOf(fields[name])))
	}
	into := reflect.New(reflect.StructOf(sections))
	err := gcfg.ReadStringInto(into.Interface(), string(text))
	c := config{values: map[string]string{}}
	if fatal := gcfg.FatalOnly(err); fatal != nil {
		return c, fatal
	}
	if err != nil {
		c.ignored = strings.Join(strings.Fields(err.Error()), " ")
	}
	for i, name := range names {
		for j := range fields[name] {
			value := into.Elem().Field(i).Field(j)
			key := fields[name][j].Tag.Get("gcfg")
			if value.Kind() == reflect.String {
				c.values[name+"."+key] = value.String()
			}
		}
	}
	return c, c.missing()
}

func field(i int, name string, kind reflect.Type) reflect.StructField {
	return reflect.StructField{
		Name: fmt.Sprintf("F%d", i), Type: kind, Tag: reflect.StructTag(fmt.Sprintf("gcfg:%q", name)),
	}
}

// missing is an error about what Keystone needs.
func (c config) missing() error {
	var problems []error
	for _, key := range required {
		if c.get("Global", key) == "" {
			problems = append(problems, fmt.Errorf("[Global] has no %s", key))
		}
	}
	has := func(key string) bool { return c.get("Global", key) != "" }
	credential := has("application-credential-secret") &&
		(has("application-credential-id") || has("application-credential-name") && (has("user-id") || has("username")))
	user := has("password") && (has("user-id") || has("username")) && (has("tenant-id") || has("tenant-name"))
	if !credential && !user {
		problems = append(problems, errors.New(
			"[Global] has no complete credential: set application-credential-id and application-credential-secret, or "+
				"username, password, their domain, and tenant-id",
		))
	}
	return errors.Join(problems...)
}

// auth are the options of a token. They are those of the cloud controller manager (ToAuthOptions in
// pkg/client/client.go), which never asks for a token of a domain.
func (c config) auth() gophercloud.AuthOptions {
	get := func(key string) string { return c.get("Global", key) }
	options := gophercloud.AuthOptions{
		IdentityEndpoint: get("auth-url"), UserID: get("user-id"), Username: get("username"),
		DomainID:   first(get("user-domain-id"), get("domain-id")),
		DomainName: first(get("user-domain-name"), get("domain-name")),
	}
	if options.DomainID != "" {
		options.DomainName = ""
	}
	if secret := get("application-credential-secret"); secret != "" {
		options.ApplicationCredentialID = get("application-credential-id")
		options.ApplicationCredentialName = get("application-credential-name")
		options.ApplicationCredentialSecret = secret
		if options.ApplicationCredentialID != "" {
			options.UserID, options.Username, options.DomainID, options.DomainName = "", "", "", ""
		}
		return options
	}
	if options.UserID != "" {
		options.Username, options.DomainID, options.DomainName = "", "", ""
	}
	options.Password = get("password")
	options.Scope = &gophercloud.AuthScope{ProjectID: get("tenant-id")}
	if options.Scope.ProjectID == "" {
		options.Scope.ProjectName = get("tenant-name")
		options.Scope.DomainID = first(get("tenant-domain-id"), get("domain-id"))
		if options.Scope.DomainID == "" {
			options.Scope.DomainName = first(get("tenant-domain-name"), get("domain-name"))
		}
	}
	return options
}

func first(texts ...string) string {
	return texts[max(0, slices.IndexFunc(texts, func(t string) bool { return t != "" }))]
}

// secrets must not appear in reports.
func (c config) secrets() []string {
	return []string{c.get("Global", "password"), c.get("Global", "application-credential-secret")}
}

// ca is the content of the CA file. A relative path is one in the folder of the job, see cloud.CAFile; file is that of
// the configuration, which is in the folder config there.
func (c config) ca(file string) ([]byte, error) {
	path := c.get("Global", "ca-file")
	if path == "" {
		return nil, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(filepath.Dir(file)), path)
	}
	return os.ReadFile(path)
}
