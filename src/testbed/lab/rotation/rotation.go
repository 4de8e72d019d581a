// Package rotation replaces CAs in the file of `bosh deploy --vars-store`, which has one value per variable, as CredHub
// does with its transitional versions: after each step a deploy gets the attributes that it would get from a Director
// with CredHub.
//
// The attribute ca of a certificate contains the version of its CA that signed it, followed by the other one (CredHub's
// docs/ca-rotation.md; generators/CertificateGenerator.java and createNewChildVersions in
// services/DefaultCertificateService.kt, with certificates.concatenate_cas as bosh-deployment's credhub.yml sets it).
// The attributes of the CA itself are those of its newest version, also while that signs nothing yet: the Director uses
// the version that CredHub returns when it is asked to generate the variable (generate_value in the Director's
// config_server/client.rb), which is the newest one (save in DefaultPermissionedCredentialService.kt).
package rotation

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // identifies a key, as in the certificates of the CLI; it protects nothing
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab/director/manifest"
)

// Step is one of the three steps of a rotation. A deploy follows each of them.
type Step string

const (
	// Add generates a second version of each CA, which is trusted and signs nothing yet: POST
	// /certificates/ID/regenerate with set_as_transitional.
	Add Step = "add"
	// Switch makes it the active one and issues all certificates of the CA again: PUT
	// /certificates/ID/update_transitional_version with the old version, and POST /bulk-regenerate.
	Switch Step = "switch"
	// Remove removes the old version: PUT /certificates/ID/update_transitional_version with null.
	Remove Step = "remove"
)

// Steps lists every step, in order.
var Steps = []Step{Add, Switch, Remove}

// certificate is the value of a variable of the type certificate.
type certificate struct {
	CA          string `yaml:"ca"`
	Certificate string `yaml:"certificate"`
	PrivateKey  string `yaml:"private_key"`
	// Previous is the previous version of a CA that is being replaced.
	Previous *version `yaml:"previous,omitempty"`

	parsed *x509.Certificate
}

// version is one of two versions of a CA.
type version struct {
	Certificate string `yaml:"certificate"`
	PrivateKey  string `yaml:"private_key"`
}

// Run does one step for the CAs with these names, or for all CAs, and returns the names of the CAs.
func Run(path string, step Step, names []string, now time.Time) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &store{certificates: map[string]*certificate{}, now: now}
	for name, node := range nodes {
		var c certificate
		if node.Decode(&c) != nil || c.Certificate == "" {
			continue // another type
		}
		if c.parsed, err = manifest.ParseCertificate(c.Certificate); err != nil {
			return nil, fmt.Errorf("%s: variable %s: %w", path, name, err)
		}
		s.certificates[name] = &c
	}
	if names, err = s.authorities(names); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range names {
		if err := s.do(step, name); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	values := map[string]any{}
	for name, node := range nodes {
		values[name] = &node
		if c := s.certificates[name]; c != nil {
			values[name] = c
		}
	}
	if text, err = yaml.Marshal(values); err != nil {
		return nil, err
	}
	return names, atomicfile.Write(path, text, 0o600)
}

type store struct {
	certificates map[string]*certificate
	now          time.Time
}

// authorities returns the names of CAs, of all if none are given.
func (s *store) authorities(names []string) ([]string, error) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.certificates)) {
		if c := s.certificates[name].parsed; c.IsCA && string(c.RawIssuer) == string(c.RawSubject) {
			all = append(all, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%q is not a CA; the CAs are %s", name, strings.Join(all, ", "))
		}
	}
	if len(names) == 0 {
		names = all
	}
	return names, nil
}

func (s *store) do(step Step, name string) error {
	ca := s.certificates[name]
	issued := s.issuedBy(ca)
	if step != Add && ca.Previous == nil {
		return fmt.Errorf("it has one version: begin with the step %s, and deploy", Add)
	}
	switch step {
	case Add:
		if ca.Previous != nil {
			return errors.New("it has two versions already: deploy, then continue with the next step")
		}
		next, err := s.issueAgain(ca.parsed, nil)
		if err != nil {
			return err
		}
		ca.Previous = &version{ca.Certificate, ca.PrivateKey}
		if err := ca.show(*next); err != nil {
			return err
		}
	case Switch:
		for _, c := range issued {
			next, err := s.issueAgain(c.parsed, ca)
			if err != nil {
				return err
			}
			if err := c.show(*next); err != nil {
				return err
			}
		}
	case Remove:
		if slices.ContainsFunc(issued, func(c *certificate) bool { return !ca.signed(c) }) {
			return fmt.Errorf(
				"certificates of its previous version are in use: continue with the step %s, and deploy", Switch,
			)
		}
		ca.Previous = nil
	default:
		return fmt.Errorf("the step is %q: it must be one of %v", step, Steps)
	}
	ca.CA = ca.Certificate
	for _, c := range issued {
		c.trust(ca)
	}
	return nil
}

// issuedBy returns the certificates that a version of a CA has signed. All versions have the same name.
func (s *store) issuedBy(ca *certificate) []*certificate {
	var issued []*certificate
	for _, name := range slices.Sorted(maps.Keys(s.certificates)) {
		if c := s.certificates[name]; c != ca && string(c.parsed.RawIssuer) == string(ca.parsed.RawSubject) {
			issued = append(issued, c)
		}
	}
	return issued
}

// signed reports whether the CA's newest version signed a certificate.
func (c *certificate) signed(leaf *certificate) bool {
	return leaf.parsed.CheckSignatureFrom(c.parsed) == nil
}

// show makes a version the one whose attributes the variable has.
func (c *certificate) show(v version) (err error) {
	c.Certificate, c.PrivateKey = v.Certificate, v.PrivateKey
	c.parsed, err = manifest.ParseCertificate(v.Certificate)
	return err
}

// trust sets the attribute ca: the version that signed the certificate, then the other one.
func (c *certificate) trust(ca *certificate) {
	c.CA = ca.Certificate
	if ca.Previous == nil {
		return
	}
	versions := []string{strings.TrimSpace(ca.Certificate), strings.TrimSpace(ca.Previous.Certificate)}
	if !ca.signed(c) {
		slices.Reverse(versions)
	}
	c.CA = strings.Join(versions, "\n") + "\n"
}

// issueAgain issues a certificate with the same properties and a new key; self-signed without a CA.
func (s *store) issueAgain(old *x509.Certificate, ca *certificate) (*version, error) {
	public, ok := old.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the key of %s is not RSA", old.Subject)
	}
	key, err := rsa.GenerateKey(rand.Reader, public.N.BitLen())
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	id := sha1.Sum(key.N.Bytes()) //nolint:gosec // see the import
	next := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               old.Subject,
		NotBefore:             s.now,
		NotAfter:              s.now.Add(old.NotAfter.Sub(old.NotBefore)),
		IsCA:                  old.IsCA,
		BasicConstraintsValid: old.BasicConstraintsValid,
		KeyUsage:              old.KeyUsage,
		ExtKeyUsage:           old.ExtKeyUsage,
		DNSNames:              old.DNSNames,
		IPAddresses:           old.IPAddresses,
		SubjectKeyId:          id[:],
	}
	parent, signer := next, key
	if ca != nil {
		parent = ca.parsed
		if signer, err = manifest.ParseKey(ca.PrivateKey); err != nil {
			return nil, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, next, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return &version{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		PrivateKey: string(
			pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		),
	}, nil
}
