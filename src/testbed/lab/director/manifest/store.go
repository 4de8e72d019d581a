package manifest

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cloudfoundry/config-server/types"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v2" //nolint:depguard // the generators' types have tags for this version

	"kubernetes-release/internal/atomicfile"
)

// Store generates variables by type as the BOSH CLI does with --vars-store, and keeps them in a file with mode 0600.
type Store struct {
	// Generating is called before a variable is generated, and the function that it returns afterwards. May be nil.
	Generating func(name, kind string) (finished func(error))

	path   string
	mutex  sync.Mutex
	vars   map[string]any
	lookup template.Variables
}

// OpenStore reads the store's file; a missing file is an empty store.
func OpenStore(path string) (*Store, error) {
	s := &Store{path: path, vars: map[string]any{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &s.vars); err != nil {
		return nil, fmt.Errorf("variable store %s: %w", path, err)
	}
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	return s, nil
}

// Get returns a stored variable. If there is none and the definition has a type, it is generated.
func (s *Store) Get(d template.VariableDefinition) (any, bool, error) {
	if value, ok := s.value(d.Name); ok {
		return value, true, nil
	}
	if d.Type == "" {
		return nil, false, nil
	}
	value, err := s.generate(d)
	if err != nil {
		return nil, false, fmt.Errorf("generating variable '%s' of type '%s': %w", d.Name, d.Type, err)
	}
	return value, true, nil
}

func (s *Store) value(name string) (any, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	value, ok := s.vars[name]
	return value, ok
}

// List returns the names of the stored variables.
func (s *Store) List() ([]template.VariableDefinition, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	definitions := make([]template.VariableDefinition, 0, len(s.vars))
	for name := range s.vars {
		definitions = append(definitions, template.VariableDefinition{Name: name})
	}
	return definitions, nil
}

func (s *Store) generate(d template.VariableDefinition) (_ any, err error) {
	if s.Generating != nil {
		finished := s.Generating(d.Name, d.Type)
		defer func() { finished(err) }()
	}
	generator, err := types.NewValueGeneratorConcrete(authorities{s}).GetGenerator(d.Type)
	if err != nil {
		return nil, err
	}
	value, err := generator.Generate(d.Options)
	if err != nil {
		return nil, err
	}
	// Encode and decode it, so that a new value has the same types as one that is read from the file.
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	return plain, s.keep(d.Name, plain)
}

func (s *Store) keep(name string, value any) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.vars[name] = value
	text, err := yaml.Marshal(s.vars)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path, text, 0o600)
}

// definition is one entry of a manifest's variables.
type definition struct {
	Name    string         `yaml:"name"`
	Type    string         `yaml:"type"`
	Options map[string]any `yaml:"options"`
}

// generateAhead generates variables concurrently before interpolation needs them, since generating keys takes most of
// the time of a first deploy. It skips variables of other types or whose options contain variables; interpolation
// generates them.
func (s *Store) generateAhead(ctx context.Context, manifest []byte) error {
	var m struct {
		Variables []definition `yaml:"variables"`
	}
	if err := yaml.Unmarshal(manifest, &m); err != nil {
		return err
	}
	var authorities, rest []definition
	for _, d := range m.Variables {
		switch {
		case d.Type != "certificate" && d.Type != "rsa" && d.Type != "ssh":
		case d.isAuthority():
			authorities = append(authorities, d)
		default:
			rest = append(rest, d)
		}
	}
	for _, level := range [][]definition{authorities, rest} {
		group, _ := errgroup.WithContext(ctx)
		group.SetLimit(runtime.NumCPU())
		for _, d := range level {
			if !s.ready(d) {
				continue
			}
			group.Go(func() error {
				_, _, err := s.Get(template.VariableDefinition{Name: d.Name, Type: d.Type, Options: d.Options})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// isAuthority reports whether generating the variable requires no other certificate.
func (d definition) isAuthority() bool {
	_, signed := d.Options["ca"]
	return d.Type != "certificate" || !signed
}

// ready reports whether the variable has no value yet and everything that it requires has one.
func (s *Store) ready(d definition) bool {
	if _, found, err := s.lookup.Get(template.VariableDefinition{Name: d.Name}); found || err != nil {
		return false
	}
	options, err := yaml.Marshal(d.Options)
	if err != nil || bytes.Contains(options, []byte("((")) {
		return false
	}
	if ca, signed := d.Options["ca"].(string); signed {
		_, found, err := s.lookup.Get(template.VariableDefinition{Name: ca})
		return found && err == nil
	}
	return true
}

// authorities finds the CA that a certificate's definition names, in all sources of variables.
type authorities struct{ store *Store }

// LoadCerts returns the certificate and key of a variable.
func (a authorities) LoadCerts(name string) (*x509.Certificate, *rsa.PrivateKey, error) {
	value, found, err := a.store.lookup.Get(template.VariableDefinition{Name: name})
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, fmt.Errorf("the CA '%s' is not defined; define it before the certificates that it signs", name)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, nil, err
	}
	var pair struct {
		Certificate string `yaml:"certificate"`
		PrivateKey  string `yaml:"private_key"`
	}
	if err := yaml.Unmarshal(text, &pair); err != nil {
		return nil, nil, fmt.Errorf("variable '%s' is not a certificate: %w", name, err)
	}
	certificate, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return nil, nil, fmt.Errorf("variable '%s.certificate': %w", name, err)
	}
	key, err := ParseKey(pair.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("variable '%s.private_key': %w", name, err)
	}
	return certificate, key, nil
}

// ParseCertificate returns the first certificate of a PEM text.
func ParseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no PEM block found")
	}
	return x509.ParseCertificate(block.Bytes)
}

// ParseKey returns the first private key of a PEM text, as the config server writes RSA keys: in the form of PKCS #1.
func ParseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no PEM block found")
	}
	return x509.ParsePKCS1PrivateKey(block.Bytes)
}
