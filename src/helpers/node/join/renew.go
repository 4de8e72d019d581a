package join

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/pki"
	"kubernetes-release/internal/rootfile"
)

// servingPairName is the name of the files in which kubelet keeps its serving certificate.
const servingPairName = "kubelet-server"

// Kubelet is the process whose certificates are renewed.
type Kubelet struct {
	Running func() (bool, error)
	Restart func(context.Context) error
}

// Renew replaces those of the node's certificates that another CA than the one that signs now has signed. The client
// certificate is renewed as kubelet renews it, with the one that it has. The serving certificate is removed, so that
// kubelet requests another when it starts. Then kubelet is restarted, which reads both only then. Renew returns when
// kubelet has both. connect is called only if the client certificate is renewed: a kubelet that waits to join has no
// kubeconfig yet. A kubelet that does not run is left alone: the Director also runs post-deploy on VMs that are stopped
// or ignored (run_post_deploys_after_resurrection in post_deployment_script_runner.rb), and it joins again when it
// starts if the API no longer trusts its certificate.
func (c *Client) Renew(
	ctx context.Context, connect func() (kubernetes.Interface, error), kubelet Kubelet,
) error {
	client, err := c.store(pairName)
	if err != nil {
		return err
	}
	serving, err := c.store(servingPairName)
	if err != nil {
		return err
	}
	oldClient, err := c.foreign(client)
	if err != nil {
		return err
	}
	oldServing, err := c.foreign(serving)
	if err != nil {
		return err
	}
	if !oldClient && !oldServing {
		return nil
	}
	running, err := kubelet.Running()
	if err != nil {
		return fmt.Errorf("find out whether kubelet runs: %w", err)
	}
	if !running {
		c.Log.Warn("another CA signs the certificates of kubelet now, but it does not run: not renewing them")
		return nil
	}
	c.Log.Info(
		"renewing the certificates of kubelet, because another CA signs now", "client", oldClient, "serving",
		oldServing,
	)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if oldClient {
		if err := c.renewClient(ctx, client, connect); err != nil {
			return fmt.Errorf(
				"renew the client certificate of node %s: %w; see the logs of the jobs node-controller and "+
					"kubelet-signer on the control VMs",
				c.Node, err,
			)
		}
	}
	if oldServing {
		if err := os.Remove(serving.CurrentPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the serving certificate: %w", err)
		}
	}
	if err := kubelet.Restart(ctx); err != nil {
		return fmt.Errorf("restart kubelet: %w", err)
	}
	err = c.await(ctx, "waiting for kubelet to renew its certificates", func(context.Context) error {
		return c.renewed(client, serving)
	})
	if err != nil {
		return fmt.Errorf(
			"kubelet of node %s has not renewed its certificates: %w; see its log, and that of the job "+
				"node-controller on the control VMs",
			c.Node, err,
		)
	}
	c.Log.Info("renewed the certificates of kubelet")
	return nil
}

// store returns the files of a certificate, in a directory that it takes from other users.
func (c *Client) store(name string) (certificate.FileStore, error) {
	if err := rootfile.Claim(c.CertificateDir, 0o700); err != nil {
		return nil, fmt.Errorf("certificates of kubelet: %w", err)
	}
	store, err := certificate.NewFileStore(name, c.CertificateDir, c.CertificateDir, "", "")
	if err != nil {
		return nil, fmt.Errorf("certificates of kubelet: %w", err)
	}
	return store, nil
}

// foreign reports whether there is a certificate that another CA has signed.
func (c *Client) foreign(store certificate.FileStore) (bool, error) {
	pair, err := store.Current()
	if errors.As(err, new(*certificate.NoCertKeyError)) {
		return false, nil // kubelet waits for one, which the CA that signs now will sign
	}
	if err != nil {
		return false, fmt.Errorf("certificates of kubelet: %w", err)
	}
	signed, err := pki.SignedBy(pair.Leaf, c.SigningCA)
	return !signed, err
}

func (c *Client) renewClient(
	ctx context.Context, store certificate.FileStore, connect func() (kubernetes.Interface, error),
) error {
	api, err := connect()
	if err != nil {
		return err
	}
	var keyPEM []byte
	var name string
	err = c.await(ctx, "waiting to request the client certificate", func(ctx context.Context) error {
		keyPEM, name, err = c.requestClientCertificate(ctx, api)
		return err
	})
	if err != nil {
		return err
	}
	var signed []byte
	err = c.await(ctx, "waiting for the client certificate", func(ctx context.Context) error {
		signed, err = joinapi.CertificateOf(ctx, api.CertificatesV1().CertificateSigningRequests(), name)
		return err
	})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(signed, keyPEM)
	if err != nil {
		return err
	}
	if ours, err := pki.SignedBy(pair.Leaf, c.SigningCA); err != nil || !ours {
		return errors.Join(
			err,
			fmt.Errorf(
				"kubelet-signer signed it with another CA than tls.kubelet_ca.certificate of its job, valid "+
					"until %s",
				pair.Leaf.NotAfter.UTC().Format(time.RFC3339),
			),
		)
	}
	_, err = store.Update(signed, keyPEM)
	return err
}

// requestClientCertificate creates a certificate request, with a new key each time: while control VMs are updated, a
// policy of an earlier release can name it by its signature, and one of that name can exist already.
func (c *Client) requestClientCertificate(
	ctx context.Context, api kubernetes.Interface,
) (keyPEM []byte, name string, err error) {
	keyPEM, request, err := joinapi.NewCertificateRequest(c.Node)
	if err != nil {
		return nil, "", err
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, "", err
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	name, _, err = csr.RequestCertificateWithContext(
		ctx, api, request, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil, usages, key,
	)
	return keyPEM, name, err
}

// renewed returns why a certificate is missing still.
func (c *Client) renewed(stores ...certificate.FileStore) error {
	for _, store := range stores {
		if _, err := store.Current(); err != nil {
			return err
		}
		if foreign, err := c.foreign(store); err != nil || foreign {
			return errors.Join(err, fmt.Errorf("%s is signed by another CA", store.CurrentPath()))
		}
	}
	return nil
}
