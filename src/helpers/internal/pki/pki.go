// Package pki checks certificates before a process uses them, so that an operator reads at deploy time what is wrong
// with a certificate, in one sentence, and not an hour later in the TLS errors of other VMs.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// Usage is the purpose of a certificate.
type Usage string

const (
	// UsageServer authenticates a server to its clients.
	UsageServer Usage = "server"
	// UsageClient authenticates a client to servers.
	UsageClient Usage = "client"
	// UsagePeer does both, as members of etcd do between each other.
	UsagePeer Usage = "peer"
	// UsageCA signs other certificates, or, without a private key, says which are trusted.
	UsageCA Usage = "ca"
)

// Usages lists every usage, for messages and for checks of configuration.
var Usages = []Usage{UsageServer, UsageClient, UsagePeer, UsageCA}

// expiryNotice is how long before the expiry of a certificate Check begins to warn.
const expiryNotice = 30 * 24 * time.Hour

// caHelp is where operators read how a CA is replaced.
const caHelp = "see \"CAs\" in docs/operations.md"

// maxFileSize limits a PEM file, in bytes; a bundle of a hundred CAs is much smaller.
const maxFileSize = 4 << 20

// Certificate names the files of one certificate, and what the certificate is required for.
type Certificate struct {
	// Property is the job property that the files are rendered from; every message begins with it.
	Property string `json:"property"`
	// CA is the path of the CA bundle that the certificate must chain to; optional.
	CA string `json:"ca"`
	// Certificate is the path of the certificate, followed by intermediates if there are any. With UsageCA it may be a
	// bundle.
	Certificate string `json:"certificate"`
	// PrivateKey is the path of the key that must match the (first) certificate; optional.
	PrivateKey string `json:"private_key"`
	Usage      Usage  `json:"usage"`
	// Names are DNS names and IP addresses that the certificate must cover.
	Names []string `json:"names"`
}

// Validate checks the fields, without reading a file. The error lists every problem.
func (c Certificate) Validate() error {
	var problems []error
	if c.Property == "" {
		problems = append(
			problems, errors.New("property is empty: set the job property that the certificate comes from"),
		)
	}
	if c.Certificate == "" {
		problems = append(problems, errors.New("certificate is empty: set the path of a PEM file"))
	}
	if !slices.Contains(Usages, c.Usage) {
		problems = append(problems, fmt.Errorf("usage is %q: allowed are %s", c.Usage, joinUsages()))
	}
	if c.Usage == UsageCA && len(c.Names) > 0 {
		problems = append(problems, errors.New("names are set for a CA, which covers none"))
	}
	for _, name := range c.Names {
		if !isName(name) {
			problems = append(problems, fmt.Errorf("names has %q: set DNS names and IP addresses", name))
		}
	}
	return errors.Join(problems...)
}

func joinUsages() string {
	words := make([]string, len(Usages))
	for i, usage := range Usages {
		words[i] = string(usage)
	}
	return strings.Join(words, ", ")
}

// Report is what Check found.
type Report struct {
	// Problems make the certificate unusable. Each names the property, the file, what was found and what to do.
	Problems []string
	// Warnings can become problems, such as a certificate that expires within 30 days.
	Warnings []string
	// NotAfter is until when the first certificate of the file chains to one of its CAs. Without a chain, it is when
	// that certificate expires, or the last of a bundle of trusted CAs. It is zero if none can be read.
	NotAfter time.Time
	// CANotAfter is when the last of the CAs that the certificate must chain to expires; zero if it names none, or none
	// can be read.
	CANotAfter time.Time
}

// Check reads the files and checks dates, CA flag, key, chain, names and extended key usage at the time now.
func (c Certificate) Check(now time.Time) Report {
	k := &checker{request: c, now: now}
	k.check()
	return k.report
}

// checker collects findings about one Certificate.
type checker struct {
	request Certificate
	now     time.Time
	report  Report
}

func (k *checker) problem(file, format string, arguments ...any) {
	k.report.Problems = append(k.report.Problems, k.message(file, format, arguments...))
}

func (k *checker) warn(file, format string, arguments ...any) {
	k.report.Warnings = append(k.report.Warnings, k.message(file, format, arguments...))
}

func (k *checker) message(file, format string, arguments ...any) string {
	return fmt.Sprintf("property %s, file %s: ", k.request.Property, file) + fmt.Sprintf(format, arguments...)
}

func (k *checker) check() {
	chain, err := readCertificates(k.request.Certificate)
	if err != nil {
		k.problem(k.request.Certificate, "%v", err)
		return
	}
	leaf := chain[0]
	k.report.NotAfter = leaf.NotAfter
	if k.request.Usage == UsageCA {
		if k.request.PrivateKey == "" {
			k.report.NotAfter = lastExpiry(chain)
		}
		k.authorities(k.request.Certificate, chain)
	} else {
		k.dates(k.request.Certificate, leaf, leafAdvice)
		k.extendedKeyUsage(leaf)
		k.names(leaf)
	}
	if k.request.PrivateKey != "" {
		k.key(leaf)
	}
	if k.request.CA != "" {
		k.chain(chain)
	}
}

// advice says how a certificate is replaced that expires or has expired.
type advice struct{ expires, expired string }

var (
	leafAdvice = advice{
		"issue it again (with CredHub: credhub regenerate -n NAME) and deploy before that",
		"issue it again (with CredHub: credhub regenerate -n NAME) and deploy",
	}
	// A deploy in which VMs do not know each other's CA yet is refused (CheckRotation), unless the old one has expired.
	caAdvice = advice{
		"replace it before that in three deploys: all VMs trust both CAs, then use certificates of the new one, " +
			"then trust the new one only; " + caHelp,
		"issue it and all certificates that it has signed again (with CredHub: credhub regenerate -n NAME and " +
			"credhub bulk-regenerate --signed-by NAME) and deploy; " + caHelp,
	}
)

func (k *checker) dates(file string, c *x509.Certificate, replace advice) {
	switch {
	case k.now.Before(c.NotBefore):
		k.problem(
			file,
			"the certificate %s is not valid yet, and the clock of this VM says %s: correct the clock (is NTP "+
				"reachable?), or wait, or issue the certificate again",
			describe(c), stamp(k.now),
		)
	case k.now.After(c.NotAfter):
		k.problem(
			file,
			"the certificate %s expired %s ago (now is %s): %s",
			describe(c), k.now.Sub(c.NotAfter).Round(time.Second), stamp(k.now), replace.expired,
		)
	case c.NotAfter.Sub(k.now) < expiryNotice:
		k.warn(
			file,
			"the certificate %s expires in %d days: %s",
			describe(c), int(c.NotAfter.Sub(k.now).Hours()/24), replace.expires,
		)
	}
}

// authorities checks a CA bundle: each certificate in it must be a CA, and at least one must be valid now. During the
// rotation of a CA the bundle can also contain its expired predecessor.
func (k *checker) authorities(file string, bundle []*x509.Certificate) {
	var current []*x509.Certificate
	for _, c := range bundle {
		switch {
		case !c.BasicConstraintsValid || !c.IsCA:
			k.problem(
				file, "the certificate %s is not a CA: use a certificate whose variable has the option is_ca: true",
				describe(c),
			)
			return
		case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
			k.problem(
				file,
				"the CA %s cannot sign certificates, its key usage lacks keyCertSign: use a CA whose variable has "+
					"the option is_ca: true",
				describe(c),
			)
			return
		case !k.now.Before(c.NotBefore) && !k.now.After(c.NotAfter):
			current = append(current, c)
		}
	}
	if len(current) == 0 {
		k.dates(file, bundle[0], caAdvice)
		return
	}
	for _, c := range bundle {
		if !slices.Contains(current, c) {
			k.warn(
				file, "the CA %s in the bundle is not valid now (%s): remove it when nothing depends on it",
				describe(c), stamp(k.now),
			)
		}
	}
	if len(current) == 1 {
		k.dates(file, current[0], caAdvice)
	}
}

// requiredUsages maps a usage to the extended key usages that a certificate must allow for it.
var requiredUsages = map[Usage][]x509.ExtKeyUsage{
	UsageServer: {x509.ExtKeyUsageServerAuth},
	UsageClient: {x509.ExtKeyUsageClientAuth},
	UsagePeer:   {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
}

var usageNames = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "server_auth",
	x509.ExtKeyUsageClientAuth: "client_auth",
}

// extendedKeyUsage follows RFC 5280, 4.2.1.12: a certificate without the extension can be used for anything.
func (k *checker) extendedKeyUsage(c *x509.Certificate) {
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return
	}
	var missing []string
	for _, required := range requiredUsages[k.request.Usage] {
		if !slices.Contains(c.ExtKeyUsage, required) {
			missing = append(missing, usageNames[required])
		}
	}
	if len(missing) == 0 {
		return
	}
	var found []string
	for _, usage := range c.ExtKeyUsage {
		name, known := usageNames[usage]
		if !known {
			name = fmt.Sprintf("another usage (%d)", usage)
		}
		found = append(found, name)
	}
	k.problem(
		k.request.Certificate,
		"the certificate %s is for %s, but it is used as a %s certificate: issue it with extended_key_usage: [%s]",
		describe(c),
		orNone(found),
		k.request.Usage,
		strings.Join(
			append(
				slices.DeleteFunc(found, func(s string) bool { return strings.HasPrefix(s, "another") }),
				missing...),
			", ",
		),
	)
}

func (k *checker) names(c *x509.Certificate) {
	var missing []string
	for _, name := range k.request.Names {
		if c.VerifyHostname(name) != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return
	}
	covered := slices.Clone(c.DNSNames)
	for _, address := range c.IPAddresses {
		covered = append(covered, address.String())
	}
	k.problem(
		k.request.Certificate,
		"the certificate %s does not cover %s; it covers %s: add what is missing to the alternative_names of its "+
			"variable and deploy",
		describe(c), strings.Join(missing, ", "), orNone(covered),
	)
}

func (k *checker) key(c *x509.Certificate) {
	file := k.request.PrivateKey
	key, err := readKey(file)
	if err != nil {
		k.problem(file, "%v", err)
		return
	}
	public, canCompare := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !canCompare || !public.Equal(c.PublicKey) {
		k.problem(
			file,
			"the private key (%s) does not match the certificate %s in %s: use certificate and private_key of the "+
				"same variable",
			keyKind(key.Public()), describe(c), k.request.Certificate,
		)
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 {
		k.warn(
			file, "every user of this VM can read the private key (mode %04o): it should be at most 0640",
			info.Mode().Perm(),
		)
	}
}

func (k *checker) chain(chain []*x509.Certificate) {
	bundle, err := readCertificates(k.request.CA)
	if err != nil {
		k.problem(k.request.CA, "%v", err)
		return
	}
	k.report.CANotAfter = lastExpiry(bundle)
	before := len(k.report.Problems)
	k.authorities(k.request.CA, bundle)
	if len(k.report.Problems) > before {
		return // the chain would fail for the same reason
	}
	leaf := chain[0]
	valid, err := leaf.Verify(verifyOptions(chain, bundle, k.now))
	var expired x509.CertificateInvalidError
	switch {
	case err == nil:
		k.chainDates(leaf, valid)
	case errors.As(err, &expired) && expired.Reason == x509.Expired &&
		(expired.Cert == nil || expired.Cert.Equal(leaf)):
		// dates reports it
	case errors.As(err, new(x509.UnknownAuthorityError)):
		k.unknownAuthority(leaf, bundle)
	default:
		k.problem(
			k.request.Certificate, "the certificate %s does not chain to the CA in %s: %v", describe(leaf),
			k.request.CA, err,
		)
	}
}

// chainDates reports until when one of the chains is valid. During the rotation of a CA the bundle has the new one too,
// while the certificate is still of its predecessor.
func (k *checker) chainDates(leaf *x509.Certificate, chains [][]*x509.Certificate) {
	last := chains[0][0]
	for i, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if i == 0 || first.NotAfter.After(last.NotAfter) {
			last = first
		}
	}
	k.report.NotAfter = last.NotAfter
	// dates warns about the leaf, and authorities about a CA that has no successor.
	if !last.Equal(leaf) && last.NotAfter.Before(k.report.CANotAfter) && last.NotAfter.Sub(k.now) < expiryNotice {
		k.warn(
			k.request.Certificate,
			"the certificate %s is valid only as long as the CA %s, which expires in %d days: issue it again with the "+
				"new CA and deploy before that",
			describe(leaf), describe(last), int(last.NotAfter.Sub(k.now).Hours()/24),
		)
	}
}

// verifyOptions are for a certificate that is followed by its intermediates, and a bundle of trusted CAs.
func verifyOptions(chain, bundle []*x509.Certificate, now time.Time) x509.VerifyOptions {
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, c := range bundle {
		options.Roots.AddCert(c)
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	return options
}

// lastExpiry returns until when a bundle has a valid CA. During the rotation of a CA the bundle also contains its
// predecessor.
func lastExpiry(bundle []*x509.Certificate) time.Time {
	last := bundle[0].NotAfter
	for _, c := range bundle[1:] {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	return last
}

func (k *checker) unknownAuthority(leaf *x509.Certificate, bundle []*x509.Certificate) {
	var subjects []string
	sameName := false
	for _, c := range bundle {
		subjects = append(subjects, fmt.Sprintf("%q", c.Subject))
		sameName = sameName || string(c.RawSubject) == string(leaf.RawIssuer)
	}
	if sameName {
		k.problem(
			k.request.Certificate,
			"the certificate %s was not signed by the CA in %s, which has the same name but another key (was it "+
				"regenerated?): issue the certificate again with that CA and deploy",
			describe(leaf), k.request.CA,
		)
		return
	}
	k.problem(
		k.request.Certificate,
		"the certificate %s was issued by %q, not by the CA in %s, which contains %s: use as ca the CA that signed "+
			"the certificate, or issue the certificate again with that CA",
		describe(leaf), leaf.Issuer, k.request.CA, strings.Join(subjects, ", "),
	)
}

func describe(c *x509.Certificate) string {
	subject := c.Subject.String()
	if subject == "" && len(c.DNSNames) > 0 {
		subject = "names " + strings.Join(c.DNSNames, ", ")
	}
	return fmt.Sprintf("%q (valid %s to %s)", subject, stamp(c.NotBefore), stamp(c.NotAfter))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func orNone(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func keyKind(public crypto.PublicKey) string {
	switch public := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA, %d bits", public.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA, " + public.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", public)
}

// readPEM returns the blocks of a file, at least one. wanted is what the file must contain, for messages.
func readPEM(path, wanted string) ([]*pem.Block, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, readError(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return nil, fmt.Errorf("not a regular file of at most %d bytes: provide %s in PEM", maxFileSize, wanted)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, readError(err)
	}
	if strings.TrimSpace(string(content)) == "" {
		return nil, fmt.Errorf("the file is empty: provide %s in PEM", wanted)
	}
	return decode(content, wanted)
}

// decode returns the blocks of a file's content, at least one.
func decode(content []byte, wanted string) ([]*pem.Block, error) {
	var blocks []*pem.Block
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf(
			"the file contains no PEM block: provide %s, with its BEGIN and END lines and line breaks", wanted,
		)
	}
	return blocks, nil
}

// readError removes the path, which the message has already.
func readError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("cannot be read: %w", err)
}

const wantedCertificate = "a certificate"

// readCertificates returns the certificates of a PEM file, at least one, in the file's order.
func readCertificates(path string) ([]*x509.Certificate, error) {
	blocks, err := readPEM(path, wantedCertificate)
	if err != nil {
		return nil, err
	}
	return certificatesOf(blocks)
}

// parseCertificates is readCertificates for the content of a file.
func parseCertificates(content []byte) ([]*x509.Certificate, error) {
	blocks, err := decode(content, wantedCertificate)
	if err != nil {
		return nil, err
	}
	return certificatesOf(blocks)
}

func certificatesOf(blocks []*pem.Block) ([]*x509.Certificate, error) {
	const wanted = wantedCertificate
	var certificates []*x509.Certificate
	for _, block := range blocks {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf(
				"the file contains a PEM block %q, expected only CERTIFICATE: provide %s, and nothing else", block.Type,
				wanted,
			)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf(
				"certificate %d of the file cannot be read (%w): provide %s in PEM", len(certificates)+1, err, wanted,
			)
		}
		certificates = append(certificates, c)
	}
	return certificates, nil
}

// readKey returns the one private key of a PEM file: PKCS #1, PKCS #8 or SEC 1, not encrypted.
func readKey(path string) (crypto.Signer, error) {
	const wanted = "an unencrypted private key"
	blocks, err := readPEM(path, wanted)
	if err != nil {
		return nil, err
	}
	blocks = slices.DeleteFunc(
		blocks, func(b *pem.Block) bool { return b.Type == "EC PARAMETERS" },
	) // which openssl writes before the key
	if len(blocks) != 1 {
		return nil, fmt.Errorf(
			"the file contains %d PEM blocks, expected one: provide %s, and nothing else", len(blocks), wanted,
		)
	}
	block := blocks[0]
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		if block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("the private key is encrypted: provide %s", wanted)
		}
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, fmt.Errorf("the private key is encrypted: provide %s", wanted)
	default:
		return nil, fmt.Errorf("the file contains a PEM block %q: provide %s", block.Type, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("the private key cannot be read (%w): provide %s in PEM", err, wanted)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign: provide an RSA, ECDSA or Ed25519 key", key)
	}
	return signer, nil
}

// isName tells whether a string is a DNS name or an IP address that a certificate could cover.
func isName(name string) bool {
	return net.ParseIP(name) != nil || (name != "" && len(name) <= 253 && !strings.ContainsAny(name, " /:@\t\n"))
}
