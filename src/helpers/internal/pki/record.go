package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/rootfile"
)

// rotationHelp is where operators read how a CA is replaced.
const rotationHelp = "see \"Rotate\" in docs/operations.md"

// SigningKey names the files of a key that signs tokens, and of the public keys that verify them.
type SigningKey struct {
	// Property is the job property that the files are rendered from.
	Property               string
	PrivateKey, PublicKeys string
}

// Deployed are the certificates and keys of a deploy that others verify.
type Deployed struct {
	Certificates []Certificate
	Keys         []SigningKey
	// Issuers are those of the tokens that are accepted; the first one signs. DefaultIssuer is that of a deploy that
	// has recorded none.
	Issuers       []string
	DefaultIssuer string
	// Encryption is the path of an API server's encryption configuration.
	Encryption string
}

// The names of the issuers, and of the encryption keys and resources, in the record.
const (
	issuersName    = "service_account.issuer"
	encryptionName = "encryption"
)

// recorded is what the last successful deploy had for one property, all PEM: a certificate, or the public half of a
// signing key.
type recorded struct {
	CA          string `json:"ca,omitempty"`
	Certificate string `json:"certificate,omitempty"`

	PublicKeys string `json:"public_keys,omitempty"`
	Signer     string `json:"signer,omitempty"`

	Issuers []string `json:"issuers,omitempty"`

	EncryptionKeys      []encryptionKey `json:"encryption_keys,omitempty"`
	EncryptionResources []string        `json:"encryption_resources,omitempty"`

	// Started is what processes of this VM have used since, in deploys that may have stopped before post-deploy.
	Started []recorded `json:"started,omitempty"`
}

// used is what leaves its mark on tokens, or on what is in etcd.
func (r recorded) used() recorded {
	return recorded{
		Signer:              r.Signer,
		Issuers:             r.Issuers[:min(len(r.Issuers), 1)],
		EncryptionKeys:      r.EncryptionKeys[:min(len(r.EncryptionKeys), 1)],
		EncryptionResources: r.EncryptionResources,
	}
}

// Keep records what a deploy ended with, for CheckRotation in the next one. Certificates without a CA are not recorded.
// What CheckRotation refuses is not recorded either, but logged: the Director also runs post-deploy after it has
// recreated a VM (run_post_deploys_after_resurrection in post_deployment_script_runner.rb), on all VMs, and one whose
// pre-start has failed has the refused files.
func (d Deployed) Keep(record string, now time.Time, log *slog.Logger) error {
	kept, err := d.keys()
	if err != nil {
		return err
	}
	for _, c := range d.Certificates {
		if c.CA == "" {
			continue
		}
		ca, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		certificate, err := os.ReadFile(c.Certificate)
		if err != nil {
			return err
		}
		kept[c.Property] = recorded{CA: string(ca), Certificate: string(certificate)}
	}
	if err := d.CheckRotation(record, now); err != nil {
		log.Warn("keeping the record of the last deploy: pre-start refuses this one", "record", record, "error", err)
		return nil
	}
	return writeRecord(record, kept)
}

// keys are the keys and issuers, as they are recorded.
func (d Deployed) keys() (map[string]recorded, error) {
	kept := map[string]recorded{}
	for _, k := range d.Keys {
		public, signer, err := k.read()
		if err != nil {
			return nil, err
		}
		kept[k.Property] = recorded{PublicKeys: public, Signer: signer}
	}
	if len(d.Issuers) > 0 {
		kept[issuersName] = recorded{Issuers: d.Issuers}
	}
	if d.Encryption != "" {
		encryption, err := readEncryption(d.Encryption)
		if err != nil {
			return nil, err
		}
		kept[encryptionName] = encryption
	}
	return kept, nil
}

// Start adds to the record what the process is about to use, once CheckRotation accepts it: if the deploy stops before
// post-deploy, there are tokens of it, and objects in etcd, and the deploys after it must still know its keys.
func (d Deployed) Start(record string) error {
	last, err := readRecord(record)
	if err != nil || last == nil {
		return err
	}
	current, err := d.keys()
	if err != nil {
		return err
	}
	changed := false
	for name, keys := range current {
		previous, ok := last[name]
		is := func(r recorded) bool { return reflect.DeepEqual(r.used(), keys.used()) }
		if !ok || is(previous) || slices.ContainsFunc(previous.Started, is) {
			continue
		}
		previous.Started = append(previous.Started, keys.used())
		last[name], changed = previous, true
	}
	if !changed {
		return nil
	}
	return writeRecord(record, last)
}

// readRecord returns nil if there is no record. Fields that it does not know are those of a later release, from which
// the deploy goes back.
func readRecord(path string) (map[string]recorded, error) {
	content, err := rootfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var last map[string]recorded
	if err := json.Unmarshal(content, &last); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return last, nil
}

func writeRecord(path string, kept map[string]recorded) error {
	content, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return rootfile.Write(path, append(content, '\n'), 0o600)
}

// CheckRotation refuses certificates and keys for which a step of a rotation was left out. During a deploy some VMs
// have the new certificates and some those of the last deploy. Each must trust the other's: the new certificate is
// signed by a CA that was trusted before, and the CA of the previous certificate is still trusted. The same is true of
// tokens and their public keys, and of what is encrypted in etcd and its keys. Without a record there was no deploy.
// The error lists every problem.
func (d Deployed) CheckRotation(record string, now time.Time) error {
	last, err := readRecord(record)
	if err != nil || last == nil {
		return err
	}
	var problems []error
	for _, k := range d.Keys {
		if previous, ok := last[k.Property]; ok {
			if problem := k.checkOverlap(previous); problem != nil {
				problems = append(problems, problem)
			}
		}
	}
	if problem := d.checkIssuers(last[issuersName]); problem != nil {
		problems = append(problems, problem)
	}
	if problem := d.checkEncryption(last[encryptionName]); problem != nil {
		problems = append(problems, problem)
	}
	for _, c := range d.Certificates {
		previous, ok := last[c.Property]
		if !ok || c.CA == "" {
			continue
		}
		if problem := checkOverlap(c, previous, now); problem != nil {
			problems = append(problems, problem)
		}
	}
	if len(problems) > 0 {
		problems = append(problems, fmt.Errorf(
			"(the certificates of the last deploy are recorded in %s; only if this VM was stopped during a whole "+
				"rotation of the others, remove this file, and start the VM)",
			record,
		))
	}
	return errors.Join(problems...)
}

// checkOverlap compares one certificate with that of the last deploy. Where all is expired there is no connection to
// preserve.
func checkOverlap(c Certificate, last recorded, now time.Time) error {
	oldBundle, oldChain, err := last.parse()
	if err != nil {
		return fmt.Errorf("property %s: %w", c.Property, err)
	}
	bundle, chain, err := c.parse()
	if err != nil {
		return fmt.Errorf("property %s: %w", c.Property, err)
	}
	if now.After(oldChain[0].NotAfter) || now.After(lastExpiry(oldBundle)) {
		return nil
	}
	switch {
	// What a CA signs is only used by those who ask it to sign.
	case c.Usage != UsageCA && !chainsTo(chain, oldBundle, now):
		return fmt.Errorf(
			"property %s, file %s: the certificate %s is signed by a CA that the last deploy did not trust, so VMs "+
				"that are not updated yet would refuse it: first deploy with both CAs in %s.ca and the previous "+
				"certificate; %s",
			c.Property, c.Certificate, describe(chain[0]), c.Property, rotationHelp,
		)
	case !chainsTo(oldChain, bundle, now):
		return fmt.Errorf(
			"property %s, file %s: the CA that signed the certificate of the last deploy, %s, is missing, so this VM "+
				"would refuse VMs that are not updated yet: first deploy with both CAs in %s.ca and the new "+
				"certificate; %s",
			c.Property, c.CA, describe(oldChain[0]), c.Property, rotationHelp,
		)
	}
	return nil
}

// read returns the public keys, and the public half of the key that signs, in PEM.
func (k SigningKey) read() (public, signer string, err error) {
	content, err := os.ReadFile(k.PublicKeys)
	if err != nil {
		return "", "", err
	}
	key, err := readKey(k.PrivateKey)
	if err != nil {
		return "", "", fmt.Errorf("property %s.private_key, file %s: %w", k.Property, k.PrivateKey, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", err
	}
	return string(content), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

// checkOverlap compares a key with that of the last deploy.
func (k SigningKey) checkOverlap(last recorded) error {
	public, signer, err := k.read()
	if err != nil {
		return err
	}
	switch {
	case !containsKey(public, signer):
		return fmt.Errorf(
			"property %s: public_keys lacks the public key of private_key, so no token would be valid: add it",
			k.Property,
		)
	case !containsKey(last.PublicKeys, signer):
		return fmt.Errorf(
			"property %s: private_key is not among the public_keys of the last deploy, so VMs that are not updated "+
				"yet would refuse new tokens: first deploy with its public key in public_keys and the previous "+
				"private_key; %s",
			k.Property, rotationHelp,
		)
	case !containsKey(public, last.Signer):
		return fmt.Errorf(
			"property %s: public_keys lacks the public key of the private_key of the last deploy, so tokens that are "+
				"in use would be invalid: first deploy with both public keys and the new private_key; %s",
			k.Property, rotationHelp,
		)
	}
	for _, started := range last.Started {
		if !containsKey(public, started.Signer) {
			return fmt.Errorf(
				"property %s: public_keys lacks the public key of the private_key of a later deploy that stopped, so "+
					"tokens that this VM has signed with it would be invalid: add it again, deploy, and leave it out "+
					"when they have expired; %s",
				k.Property, rotationHelp,
			)
		}
	}
	return nil
}

// checkIssuers compares the issuers of tokens with those of the last deploy.
func (d Deployed) checkIssuers(previous recorded) error {
	last := previous.Issuers
	if len(last) == 0 && d.DefaultIssuer != "" {
		last = []string{d.DefaultIssuer}
	}
	switch {
	case len(d.Issuers) == 0 || len(last) == 0:
		return nil
	case !slices.Contains(last, d.Issuers[0]):
		return fmt.Errorf(
			"property service_account.issuer is %s, which the last deploy did not accept (%s), so VMs that are not "+
				"updated yet would refuse new tokens: first deploy with it in service_account.accepted_issuers and "+
				"the previous service_account.issuer; see docs/pod-roles.md",
			d.Issuers[0], strings.Join(last, ", "),
		)
	case !slices.Contains(d.Issuers, last[0]):
		return fmt.Errorf(
			"property service_account.accepted_issuers lacks %s, the issuer of the last deploy, so tokens that are in "+
				"use would be invalid: add it until they have expired; see docs/pod-roles.md",
			last[0],
		)
	}
	for _, started := range previous.Started {
		for _, issuer := range started.Issuers {
			if slices.Contains(d.Issuers, issuer) {
				continue
			}
			return fmt.Errorf(
				"property service_account.accepted_issuers lacks %s, the issuer of a later deploy that stopped, so "+
					"tokens of this VM would be invalid: add it until they have expired; see docs/pod-roles.md",
				issuer,
			)
		}
	}
	return nil
}

// containsKey reports whether one of several public keys is this one. CredHub and the CLI write them in the form of
// PKIX.
func containsKey(keys, wanted string) bool {
	one, _ := pem.Decode([]byte(wanted))
	blocks, err := decode([]byte(keys), "a public key")
	return err == nil && one != nil &&
		slices.ContainsFunc(blocks, func(b *pem.Block) bool { return bytes.Equal(b.Bytes, one.Bytes) })
}

func (r recorded) parse() (ca, certificate []*x509.Certificate, err error) {
	if ca, err = parseCertificates([]byte(r.CA)); err != nil {
		return nil, nil, fmt.Errorf("ca of the last deploy: %w", err)
	}
	if certificate, err = parseCertificates([]byte(r.Certificate)); err != nil {
		return nil, nil, fmt.Errorf("certificate of the last deploy: %w", err)
	}
	return ca, certificate, nil
}

func (c Certificate) parse() (ca, certificate []*x509.Certificate, err error) {
	if ca, err = readCertificates(c.CA); err != nil {
		return nil, nil, fmt.Errorf("file %s: %w", c.CA, err)
	}
	if certificate, err = readCertificates(c.Certificate); err != nil {
		return nil, nil, fmt.Errorf("file %s: %w", c.Certificate, err)
	}
	return ca, certificate, nil
}

// chainsTo reports whether those who trust a bundle accept a certificate. Its intermediates follow it.
func chainsTo(chain, bundle []*x509.Certificate, now time.Time) bool {
	_, err := chain[0].Verify(verifyOptions(chain, bundle, now))
	return err == nil
}

// SignedBy reports whether a CA of a bundle signed a certificate.
func SignedBy(certificate *x509.Certificate, bundle string) (bool, error) {
	authorities, err := readCertificates(bundle)
	if err != nil {
		return false, fmt.Errorf("file %s: %w", bundle, err)
	}
	return slices.ContainsFunc(
		authorities, func(ca *x509.Certificate) bool { return certificate.CheckSignatureFrom(ca) == nil },
	), nil
}
