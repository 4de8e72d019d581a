package openstack

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	service "kubernetes-release/internal/metadata"
	"kubernetes-release/preflight"
)

func checkMetadata(f *facts) preflight.Outcome {
	if f.metadataErr == nil {
		return passed("%s", f.metadata.UUID)
	}
	return found(preflight.Finding{
		Resource: service.Service + "/openstack/latest/meta_data.json", Wanted: "the UUID of this server",
		Found: f.metadataErr.Error(), Eventual: errors.Is(f.metadataErr, service.ErrTemporary),
		Why: "the Node is matched with its server by this UUID; without it, no cloud controller initializes the node.",
		Fix: hand(
			"let the VM reach the metadata service, which the subnet's router or DHCP agent provides; see also what "+
				"blocks it on the VM",
			"curl -sv http://169.254.169.254/openstack/latest/meta_data.json",
		),
	})
}

func checkConfig(f *facts) preflight.Outcome {
	if f.configErr != nil {
		return found(preflight.Finding{
			Resource: "config of job cloud-provider", Wanted: "a configuration that can be used",
			Found: strings.ReplaceAll(f.configErr.Error(), "\n", "; "),
			Why:   "the cloud controller does not start with it.",
			Fix:   hand("correct config of job cloud-provider, and deploy"),
		})
	}
	if f.config.ignored != "" {
		return found(preflight.Finding{
			Resource: "config of job cloud-provider", Wanted: "keys that this release knows", Found: f.config.ignored,
			Why:      "the cloud controller silently ignores keys that it does not have.",
			Fix:      hand("correct or remove them; the documentation of the controller lists its keys"),
			Advisory: true,
		})
	}
	return passed("%s", f.config.get("Global", "auth-url"))
}

// unreachable reports whether Keystone did not answer at all.
func unreachable(err error) bool {
	var answer gophercloud.ErrUnexpectedResponseCode
	return err != nil && !errors.Is(err, errNotAsked) && !errors.As(err, &answer) ||
		gophercloud.ResponseCodeIs(err, http.StatusNotFound)
}

func checkEndpoint(f *facts) preflight.Outcome {
	if errors.Is(f.tokenErr, errNotAsked) {
		return skipped("no request was made")
	}
	if !unreachable(f.tokenErr) {
		return passed("%s", f.config.get("Global", "auth-url"))
	}
	finding := preflight.Finding{
		Resource: f.config.get("Global", "auth-url"), Wanted: "an answer of Keystone", Found: describe(f.tokenErr),
		Eventual: temporary(f.tokenErr), Why: "the cloud controller gets its token there.",
		Fix: hand(
			"correct auth-url in config of job cloud-provider, or let the VM reach it",
			"curl -sv "+f.config.get("Global", "auth-url"),
		),
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(f.tokenErr, &certificate) {
		issuer := "unknown"
		if chain := certificate.UnverifiedCertificates; len(chain) > 0 {
			issuer = chain[len(chain)-1].Issuer.String()
		}
		finding.Wanted = "a certificate that the VM trusts"
		finding.Found = fmt.Sprintf("%v; the chain ends at the issuer %s", certificate.Err, issuer)
		finding.Fix = hand(
			"set ca of job cloud-provider to the certificate of the CA that issued it, in PEM, and deploy",
		)
	}
	return found(finding)
}

func checkCredentials(f *facts) preflight.Outcome {
	switch {
	case errors.Is(f.tokenErr, errNotAsked):
		return skipped("no request was made")
	case f.tokenErr == nil:
		return passed("project %s", f.project)
	case unreachable(f.tokenErr):
		return skipped("Keystone does not answer")
	}
	what, fix := "user "+first(f.config.get("Global", "username"), f.config.get("Global", "user-id")), []preflight.Fix{{
		Text: "correct username, password, their domain and tenant-id in config of job cloud-provider",
	}}
	reasons := "the name, the password or the project is wrong"
	if id := first(
		f.config.get("Global", "application-credential-id"), f.config.get("Global", "application-credential-name"),
	); f.config.get("Global", "application-credential-secret") != "" {
		what, reasons = "application credential "+id, "it has expired or was deleted, or its secret is another"
		fix = hand(
			"see whether it exists and when it expires; create a new one, and set openstack_application_credential_id "+
				"and openstack_application_credential_secret",
			"openstack application credential show "+id, "openstack application credential create kubernetes",
		)
	}
	return found(preflight.Finding{
		Resource: what, Wanted: "a token",
		Found:    describe(f.tokenErr) + " (Keystone does not say which: " + reasons + ")",
		Eventual: temporary(f.tokenErr), Why: "the cloud controller cannot make any request.", Fix: fix,
	})
}

// An application credential that expires within expiryFails stops a deploy: nobody would replace it in time.
const (
	expiryFails = 24 * time.Hour
	expiryWarns = 30 * 24 * time.Hour
)

func checkExpiry(f *facts) preflight.Outcome {
	switch {
	case f.tokenErr != nil:
		return skipped("there is no token")
	case f.credName == "":
		return skipped("the credential is a user, which does not tell when its password expires")
	case f.credErr != nil:
		return unknown("the application credential", f.credErr)
	case f.credTime.IsZero():
		return passed("it does not expire")
	}
	left := f.credTime.Sub(f.now)
	if left > expiryWarns {
		return passed("it expires on %s", f.credTime.Format(time.DateOnly))
	}
	return found(preflight.Finding{
		Resource: "application credential " + f.credName, Wanted: "a credential that is valid for 30 days or more",
		Found: fmt.Sprintf(
			"it expires at %s, in %s", f.credTime.Format(time.RFC3339), left.Round(time.Minute),
		),
		Why: "after that no node is initialized, and no load balancer changes.", Advisory: left > expiryFails,
		Fix: hand(
			"create a new one, set openstack_application_credential_id and openstack_application_credential_secret, "+
				"deploy, and delete the old one",
			"openstack application credential create kubernetes",
		),
	})
}

// skewNote is the difference from which on the clock is reported. Tokens of Keystone are valid for an hour.
const skewNote = 30 * time.Second

func checkClock(f *facts) preflight.Outcome {
	cloud, whose := f.clock, "Keystone's"
	if cloud.IsZero() {
		cloud, whose = f.metadata.clock, "that of the metadata service"
	}
	if cloud.IsZero() {
		return skipped("OpenStack's time is not known")
	}
	skew := f.now.Sub(cloud)
	if skew.Abs() < skewNote {
		return passed("within %s of %s", max(time.Second, skew.Abs().Round(time.Second)), whose)
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return found(preflight.Finding{
		Resource: f.metadata.UUID, Wanted: "a clock within 30 s of " + whose,
		Found: fmt.Sprintf("%s %s %s", skew.Abs().Round(time.Second), direction, whose),
		Why:   "certificates and tokens are validated with this clock.",
		Fix:   hand("on the VM, see where its time comes from; env.ntp of the Director sets it", "chronyc tracking"),
	})
}

func checkCatalog(f *facts) preflight.Outcome {
	if f.endpoints == nil {
		return skipped("there is no token")
	}
	var missing []string
	eventual := false
	for kind, err := range f.endpoints {
		switch {
		case err == nil || kind == "load-balancer" && !f.config.balancers() ||
			kind == "block-storage" && !f.settings.Storage:
		case errors.As(err, new(*gophercloud.ErrEndpointNotFound)):
			missing = append(missing, "no endpoint of "+kind)
		default:
			missing = append(missing, kind+": "+describe(err))
			eventual = eventual || temporary(err)
		}
	}
	if len(missing) == 0 {
		return passed("region %s", f.config.get("Global", "region"))
	}
	slices.Sort(missing)
	return found(preflight.Finding{
		Resource: "catalog of Keystone",
		Wanted: fmt.Sprintf(
			"%s endpoints of these services in the region %q",
			first(f.config.get("Global", "os-endpoint-type"), "public"), f.config.get("Global", "region"),
		),
		Found: strings.Join(missing, ", "), Eventual: eventual,
		Why: "the cloud controller does not start without them.",
		Fix: hand(
			"correct region or os-endpoint-type in config of job cloud-provider; without Octavia set "+
				"LoadBalancer.enabled to false; without Cinder remove the jobs cinder-csi-controller and "+
				"cinder-csi-node",
			"openstack region list", "openstack catalog list",
		),
	})
}
