package smoke

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	roledName   = "roled"
	roleARN     = "arn:aws:iam::123456789012:role/smoke-tests" // nobody assumes it
	roleVolume  = "aws-iam-token"
	roleToken   = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	stsAudience = "sts.amazonaws.com"
)

// roledAccount is a ServiceAccount with a role.
func roledAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: roledName, Annotations: map[string]string{"eks.amazonaws.com/role-arn": roleARN},
	}}
}

// checkPodRoles runs a pod of a ServiceAccount with a role, and reads its token as the SDKs of AWS do. Whether AWS
// takes it is not asked: the pre-start of the job pod-roles checks the provider and the published keys.
func (s *suite) checkPodRoles(ctx context.Context) (string, error) {
	spec := podSpec(s.config.image)
	spec.ServiceAccountName = roledName
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: roledName}, Spec: spec}
	pods := s.client.CoreV1().Pods(s.namespace)
	// An API server that does not know the ServiceAccount yet leaves the pod as it is.
	err := s.eventually(ctx, func() error {
		changed, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(changed.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == roleVolume }) {
			return fmt.Errorf(
				"a pod of ServiceAccount %s gets no volume %s; see the policy pod-roles.kubernetes.bosh.io, which the "+
					"job kubernetes-addons applies", roledName, roleVolume,
			)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := s.create(ctx, "Pod "+roledName, func() error {
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	}); err != nil {
		return "", err
	}
	err = s.eventually(ctx, func() error {
		running, err := pods.Get(ctx, roledName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !podReady(*running) {
			return errors.New(describePod(*running))
		}
		token, err := s.inPod(ctx, *running, "show", roleToken)
		if err != nil {
			return err
		}
		return s.checkRoleToken(token)
	})
	return "a pod has a token of " + s.config.PodRoles.Issuer + " for its role", err
}

// checkRoleToken looks at what AWS would look at, except for the signature.
func (s *suite) checkRoleToken(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%s holds no token", roleToken)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return fmt.Errorf("the token in %s: %w", roleToken, err)
	}
	var claims struct {
		Issuer   string   `json:"iss"`
		Subject  string   `json:"sub"`
		Audience []string `json:"aud"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return fmt.Errorf("the token in %s: %w", roleToken, err)
	}
	subject := "system:serviceaccount:" + s.namespace + ":" + roledName
	if claims.Issuer != s.config.PodRoles.Issuer || claims.Subject != subject ||
		!slices.Contains(claims.Audience, stsAudience) {
		return fmt.Errorf(
			"the token in %s is of issuer %q, for subject %q and audience %q; expected %q, %q and %q", roleToken,
			claims.Issuer, claims.Subject, claims.Audience, s.config.PodRoles.Issuer, subject, stsAudience,
		)
	}
	return nil
}
