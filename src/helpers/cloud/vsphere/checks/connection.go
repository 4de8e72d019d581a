package checks

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"kubernetes-release/preflight"
)

// Limits of what is worth a warning.
const (
	certificateLeft = 30 * 24 * time.Hour
	skewLimit       = time.Minute
)

func checkUUID(f *Facts) preflight.Outcome {
	fix := byHand("deploy to vSphere, or set type of the job cloud-provider to the cloud that this VM is in")
	if f.MachineErr != nil {
		return found(preflight.Finding{
			Resource: "this VM",
			Wanted:   "the UUID of a VM of vSphere in its firmware",
			Found:    f.MachineErr.Error(),
			Why:      "The UUID is the VM's provider ID, by which the cloud controller finds it.",
			Fix:      []preflight.Fix{fix},
		})
	}
	if !f.Machine.Consistent() {
		return found(preflight.Finding{
			Resource: f.Machine.UUID,
			Wanted:   "the same UUID in product_serial and in product_uuid",
			Found:    "product_uuid is " + f.Machine.SystemUUID + ", and in no order of bytes the same",
			Why:      "The kubelet reports product_uuid, by which the cloud controller would find another VM, or none.",
			Fix: []preflight.Fix{byCommand(
				"on the VM, see both, and recreate the VM if its UUID was changed by hand",
				"cat /sys/class/dmi/id/product_serial /sys/class/dmi/id/product_uuid",
			)},
		})
	}
	return passed("vsphere://%s", f.Machine.UUID)
}

func checkConfig(f *Facts) preflight.Outcome {
	if errors.Is(f.ConfigErr, errUnsupported) {
		return found(preflight.Finding{
			Resource: "cloud.conf",
			Wanted:   "one vCenter, with its user and password",
			Found:    f.ConfigErr.Error(),
			Why:      "Control VMs ask it for the VM of each node that joins, and none joins without an answer.",
			Fix: []preflight.Fix{byHand(
				"set one server with user and password in the property config of the job cloud-provider",
			)},
		})
	}
	if f.ConfigErr != nil {
		return found(preflight.Finding{
			Resource: "cloud.conf",
			Wanted:   "a configuration of the cloud controller with known keys only",
			Found:    f.ConfigErr.Error(),
			Why:      "The cloud controller does not start, or ignores what it does not know.",
			Fix: []preflight.Fix{byHand(
				"correct the property config of the job cloud-provider",
			)},
		})
	}
	return passed("vCenter %s", f.VCenter.Address())
}

func checkConnection(f *Facts) preflight.Outcome {
	if f.ConfigErr != nil {
		return skipped(ErrNotAsked)
	}
	if f.ConnectErr == nil {
		if f.VCenter.Insecure {
			return found(preflight.Finding{
				Resource: f.VCenter.Address(),
				Wanted:   "a verified certificate",
				Found:    "insecureFlag is set, so any server is believed",
				Why:      "Whoever can redirect the connection gets the password.",
				Advisory: true,
				Fix:      []preflight.Fix{byHand("set thumbprint, and remove insecureFlag")},
			})
		}
		return passed("%s", f.VCenter.Address())
	}
	finding := preflight.Finding{
		Resource: f.VCenter.Address(),
		Wanted:   "an answer of vCenter",
		Found:    f.ConnectErr.Error(),
		Why:      "Nodes are not initialized, and stay tainted, without the cloud controller, which asks vCenter.",
		Eventual: true,
		Fix: []preflight.Fix{byHand(
			"let control VMs connect to this address and port, and correct server and port in config of the " +
				"job cloud-provider, or HTTPS_PROXY in its environment, if it is set",
		)},
	}
	if f.Certificate == nil {
		return found(finding)
	}
	finding.Eventual = false
	finding.Found += "; it presents " + describe(f.Certificate)
	finding.Wanted = "a certificate that the system's CAs signed"
	switch {
	case f.VCenter.Thumbprint != "":
		finding.Wanted = "a certificate with the thumbprint " + f.VCenter.Thumbprint
	case f.VCenter.CAFile != "":
		finding.Wanted = "a certificate that a CA of caFile signed, for the name of the server"
	}
	finding.Fix = []preflight.Fix{
		byCommand(
			"compare the certificate with that in vCenter, and set thumbprint in config of the job "+
				"cloud-provider to its SHA-256 fingerprint, which changes when the certificate is renewed",
			"openssl s_client -showcerts -connect "+f.VCenter.Address()+" </dev/null",
		),
		byHand(
			"or set caFile to a file with the CA that signed it, in the image of the cloud controller and on the VM",
		),
	}
	return found(finding)
}

// describe names a certificate so that an operator recognizes it.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf(
		"a certificate of %q, issued by %q for %s, valid until %s, SHA-256 %s", c.Subject, c.Issuer,
		list(names(c)), c.NotAfter.UTC().Format(time.DateOnly), fingerprint(c),
	)
}

func names(c *x509.Certificate) []string {
	all := append([]string{}, c.DNSNames...)
	for _, address := range c.IPAddresses {
		all = append(all, address.String())
	}
	if len(all) == 0 {
		return []string{"no name"}
	}
	return all
}

// fingerprint is the certificate's SHA-256 thumbprint in the notation of vCenter.
func fingerprint(c *x509.Certificate) string {
	var bytes []string
	for _, b := range sha256.Sum256(c.Raw) {
		bytes = append(bytes, fmt.Sprintf("%02X", b))
	}
	return strings.Join(bytes, ":")
}

func checkCertificate(f *Facts) preflight.Outcome {
	if f.Certificate == nil {
		return skipped(ErrNotAsked)
	}
	left := f.Certificate.NotAfter.Sub(f.Now)
	until := f.Certificate.NotAfter.UTC().Format(time.DateOnly)
	if left >= certificateLeft {
		return passed("valid until %s", until)
	}
	return found(preflight.Finding{
		Resource: f.VCenter.Address(),
		Wanted:   "a certificate that is valid for another 30 days",
		Found:    fmt.Sprintf("it is valid until %s", until),
		Why:      "Once it has expired, or has been renewed by another CA, the cloud controller cannot connect.",
		Fix: []preflight.Fix{byHand(
			"renew the machine SSL certificate of vCenter; then set thumbprint to the new " +
				"certificate's, if it is used",
		)},
	})
}

func checkLogin(f *Facts) preflight.Outcome {
	if errors.Is(f.LoginErr, ErrNotAsked) {
		return skipped(ErrNotAsked)
	}
	if f.LoginErr == nil {
		return passed("%s", f.User)
	}
	finding := preflight.Finding{
		Resource: f.VCenter.User,
		Wanted:   "a user and a password that vCenter accepts",
		Found:    f.LoginErr.Error(),
		Why:      "The cloud controller logs in with them; repeated failures lock the account.",
		Eventual: !f.LoginRefused,
		Fix: []preflight.Fix{
			byHand(
				"correct user and password in config of the job cloud-provider; see in vCenter " +
					"whether the password has expired or the account is locked",
			),
		},
	}
	if !strings.ContainsAny(f.VCenter.User, `@\`) {
		finding.Found += "; the user has no domain"
		finding.Fix = append([]preflight.Fix{byHand(
			"write the user with its domain, such as " + f.VCenter.User + "@vsphere.local",
		)}, finding.Fix...)
	}
	return found(finding)
}

func checkClock(f *Facts) preflight.Outcome {
	if f.TimeErr != nil {
		return skipped(f.TimeErr)
	}
	skew := f.Now.Sub(f.Time)
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew < skewLimit {
		return passed("within %v of vCenter's", max(time.Second, skew.Round(time.Second)))
	}
	return found(preflight.Finding{
		Resource: "this VM",
		Wanted:   "a clock within a minute of vCenter's",
		Found:    fmt.Sprintf("%v %s vCenter's", skew.Round(time.Second), direction),
		Why:      "The cluster's certificates and tokens are validated with this clock.",
		Fix: []preflight.Fix{
			byCommand("on the VM, see where its time comes from", "chronyc tracking", "chronyc sources"),
			byHand("set the stemcell's time servers with env.ntp of the Director, or correct the clock of vCenter"),
		},
	})
}
