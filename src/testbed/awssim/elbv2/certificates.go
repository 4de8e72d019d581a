package elbv2

import (
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// certificateRef is a certificate of a listener. The default one is used for names that no other covers.
type certificateRef struct {
	CertificateArn string
	IsDefault      bool `xml:",omitempty"`
}

type listenerCertificatesInput struct {
	ListenerArn  string
	Certificates []certificateRef
}

type listenerCertificates struct {
	Certificates []certificateRef `xml:"Certificates>member"`
	NextMarker   string           `xml:",omitempty"`
}

// certificatesOf returns a listener that ends TLS, which the principal may change.
func certificatesOf(c *api.Call, arn string) (*store.Listener, error) {
	if err := touch(c, arn); err != nil {
		return nil, err
	}
	l := store.Find(c.Listeners, arn)
	if !hasCertificates(l.Protocol) {
		return nil, api.Errorf("InvalidConfigurationRequest", "Listener '%s' has the protocol %s", arn, l.Protocol)
	}
	return l, nil
}

func addListenerCertificates(c *api.Call, in listenerCertificatesInput) (*listenerCertificates, error) {
	l, err := certificatesOf(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	for _, given := range in.Certificates {
		if store.Find(c.Certificates, given.CertificateArn) == nil {
			return nil, api.Errorf("CertificateNotFound", "Certificate '%s' not found", given.CertificateArn)
		}
		if !slices.Contains(l.Certificates, given.CertificateArn) {
			l.Certificates = append(l.Certificates, given.CertificateArn)
		}
	}
	return &listenerCertificates{Certificates: in.Certificates}, nil
}

func removeListenerCertificates(c *api.Call, in listenerCertificatesInput) (*api.Nothing, error) {
	l, err := certificatesOf(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	for _, given := range in.Certificates {
		if given.CertificateArn == l.Certificates[0] {
			return nil, api.Errorf("OperationNotPermitted", "The default certificate cannot be removed")
		}
		l.Certificates = slices.DeleteFunc(l.Certificates, func(arn string) bool { return arn == given.CertificateArn })
	}
	return nil, nil
}

func describeListenerCertificates(c *api.Call, in v2ListenerArn) (*listenerCertificates, error) {
	l := store.Find(c.Listeners, in.ListenerArn)
	if l == nil {
		return nil, api.Errorf("ListenerNotFound", "One or more listeners not found")
	}
	out := &listenerCertificates{}
	for n, arn := range l.Certificates {
		out.Certificates = append(out.Certificates, certificateRef{arn, n == 0})
	}
	return out, nil
}

// forwardCertificates are those of a listener for the data path, the default one first.
func forwardCertificates(w *store.World, l store.Listener) []forward.Certificate {
	var list []forward.Certificate
	for _, arn := range l.Certificates {
		if found := store.Find(w.Certificates, arn); found != nil {
			list = append(list, forward.Certificate{Chain: found.Chain, Key: found.Key})
		}
	}
	return list
}
