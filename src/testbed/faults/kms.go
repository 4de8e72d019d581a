package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"kubernetes-release/internal/poll"
)

const (
	// KMSAim is for the time until Secrets can be written again: an API server asks a plugin that does not answer
	// every ten seconds (kmsv2PluginHealthzNegativeInterval in pkg/server/options/encryptionconfig/config.go of
	// k8s.io/apiserver).
	KMSAim = 20 * time.Second
	// refusalTimeout is for the time until an API server refuses to write Secrets: it uses its key for three
	// minutes (kmsv2PluginWriteDEKSourceMaxTTL there).
	refusalTimeout = 5 * time.Minute
	// secretInterval is the time between two attempts to write.
	secretInterval = time.Second
	secretName     = "kms"
)

// loseKMS lets KMS reset all connections until each API server refuses to write Secrets. Meanwhile they read those that
// there are, and write everything else.
func loseKMS(ctx context.Context, c *Cluster) ([]Part, error) {
	// Each API server encrypts with a key of its own, and asks KMS for another's when it first reads with it.
	for _, writer := range c.control() {
		if err := writeSecret(ctx, writer); err != nil {
			return nil, err
		}
		if err := each(c.control(), func(m *machine) error { return readSecret(ctx, m) }); err != nil {
			return nil, err
		}
	}
	lost := time.Now()
	if err := c.resetCalls(ctx, "kms:*"); err != nil {
		return nil, err
	}
	err := poll.Within(ctx, refusalTimeout, secretInterval, func(ctx context.Context) error {
		return each(c.control(), func(m *machine) error {
			if writeSecret(ctx, m) == nil {
				return fmt.Errorf("%s still writes Secrets", m.name)
			}
			return nil
		})
	})
	if err == nil {
		c.say("Secrets were refused after %s", short(time.Since(lost)))
		err = each(c.control(), func(m *machine) error {
			return errors.Join(readSecret(ctx, m), writeOther(ctx, m))
		})
	}
	back := time.Now()
	if err = errors.Join(err, c.answerCalls(ctx)); err != nil {
		return nil, err
	}
	err = poll.Within(ctx, recoverTimeout, secretInterval, func(ctx context.Context) error {
		return each(c.control(), func(m *machine) error { return writeSecret(ctx, m) })
	})
	parts := []Part{{"Secrets can be written", time.Since(back)}}
	return parts, errors.Join(err, c.client.CoreV1().Secrets(namespace).Delete(
		ctx, secretName, metav1.DeleteOptions{},
	))
}

// writeSecret writes the one Secret of this fault anew: hundreds of them, one for each attempt, would take longer to
// delete than a request may. An object that is applied unchanged is not stored, so each attempt writes the time.
func writeSecret(ctx context.Context, m *machine) error {
	secret := applycorev1.Secret(secretName, namespace).
		WithStringData(map[string]string{"written": time.Now().Format(time.RFC3339Nano)})
	options := metav1.ApplyOptions{FieldManager: "faults", Force: true}
	if _, err := m.server.CoreV1().Secrets(namespace).Apply(ctx, secret, options); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

func readSecret(ctx context.Context, m *machine) error {
	if _, err := m.server.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// writeOther writes what is not encrypted.
func writeOther(ctx context.Context, m *machine) error {
	name := fmt.Sprintf("kms-%d", time.Now().UnixNano())
	configs := m.server.CoreV1().ConfigMaps(namespace)
	_, err := configs.Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
	)
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return configs.Delete(ctx, name, metav1.DeleteOptions{})
}
