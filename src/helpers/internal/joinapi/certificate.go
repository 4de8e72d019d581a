package joinapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificates "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"kubernetes-release/internal/poll"
)

// CertificateOf returns the certificate of a request in the API, or why there is none; a poll.Permanent error if none
// will be.
func CertificateOf(
	ctx context.Context, requests certificates.CertificateSigningRequestInterface, name string,
) ([]byte, error) {
	current, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, condition := range current.Status.Conditions {
		if condition.Type == certificatesv1.CertificateFailed || condition.Type == certificatesv1.CertificateDenied {
			return nil, poll.Permanent(fmt.Errorf("%s: %s", strings.ToLower(string(condition.Type)), condition.Message))
		}
	}
	if len(current.Status.Certificate) == 0 {
		return nil, errors.New("not signed yet")
	}
	return current.Status.Certificate, nil
}
