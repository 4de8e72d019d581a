// Package acm has the actions of Certificate Manager that import certificates and find them. What it would issue itself
// is not simulated.
package acm

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
)

// Operations is the table of ACM's actions.
var Operations = map[string]api.Operation{
	"DeleteCertificate":   api.Changing(deleteCertificate),
	"DescribeCertificate": api.Changing(describeCertificate),
	"ImportCertificate":   api.Changing(importCertificate),
	"ListCertificates":    api.Reading(listCertificates),
}

type certificateInput struct{ CertificateArn string }

type importInput struct {
	CertificateArn                            string // to import another one in its place
	Certificate, PrivateKey, CertificateChain string // base64 of PEM
}

func importCertificate(c *api.Call, in importInput) (out certificateInput, err error) {
	arn := in.CertificateArn
	if arn == "" {
		c.Serial++
		sum := fmt.Sprintf("%x", c.MAC("certificate", fmt.Sprint(c.Serial)))
		id := fmt.Sprintf("%s-%s-%s-%s-%s", sum[:8], sum[8:12], sum[12:16], sum[16:20], sum[20:32])
		arn = c.ARN("acm", c.Region, "certificate/"+id)
	} else if _, err := permitted(c, arn); err != nil {
		return out, err
	}
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return out, err
	}
	var parts [3]string
	for n, encoded := range []string{in.Certificate, in.CertificateChain, in.PrivateKey} {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return out, api.Errorf("ValidationException", "The certificate field contains more than one certificate")
		}
		parts[n] = string(text)
	}
	chain := parts[0] + parts[1]
	pair, err := tls.X509KeyPair([]byte(chain), []byte(parts[2]))
	if err != nil {
		return out, api.Errorf("ValidationException", "The certificate and the private key do not match: %s", err)
	}
	domains := pair.Leaf.DNSNames
	if len(domains) == 0 {
		domains = []string{pair.Leaf.Subject.CommonName}
	}
	store.Put(&c.Certificates, store.Certificate{ARN: arn, Domains: domains, Chain: chain, Key: parts[2]})
	return certificateInput{arn}, nil
}

// permitted returns a certificate if the principal may do the action on it.
func permitted(c *api.Call, arn string) (*store.Certificate, error) {
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	found := store.Find(c.Certificates, arn)
	if found == nil {
		return nil, api.Errorf("ResourceNotFoundException", "Could not find certificate %s.", arn)
	}
	return found, nil
}

type summary struct{ CertificateArn, DomainName string }

type listOutput struct{ CertificateSummaryList []summary }

// listCertificates lists all: every certificate is issued, and has a kind of key that was asked for.
func listCertificates(c *api.Call, _ struct {
	CertificateStatuses []string
	Includes            struct {
		KeyTypes []string `param:"keyTypes"`
	}
	MaxItems  int
	NextToken string
}) (*listOutput, error) {
	out := &listOutput{CertificateSummaryList: []summary{}}
	for _, found := range c.Certificates {
		out.CertificateSummaryList = append(out.CertificateSummaryList, summary{found.ARN, found.Domains[0]})
	}
	return out, nil
}

type detail struct {
	CertificateArn, DomainName string
	SubjectAlternativeNames    []string
	Type, Status               string
	InUseBy                    []string
}

type describeOutput struct{ Certificate detail }

func describeCertificate(c *api.Call, in certificateInput) (*describeOutput, error) {
	found, err := permitted(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	return &describeOutput{detail{
		CertificateArn: found.ARN, DomainName: found.Domains[0], SubjectAlternativeNames: found.Domains,
		Type: "IMPORTED", Status: "ISSUED", InUseBy: c.CertificateUsers(found.ARN),
	}}, nil
}

func deleteCertificate(c *api.Call, in certificateInput) (*api.Nothing, error) {
	if _, err := permitted(c, in.CertificateArn); err != nil {
		return nil, err
	}
	if users := c.CertificateUsers(in.CertificateArn); len(users) > 0 {
		return nil, api.Errorf(
			"ResourceInUseException", "Certificate %s is in use by %s.", in.CertificateArn, users[0],
		)
	}
	c.Certificates = store.Remove(c.Certificates, in.CertificateArn)
	return nil, nil
}
