package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
)

// loseKMS lets KMS reset all connections until each API server refuses to write Secrets. Meanwhile they read those that
// there are, and write everything else.
func loseKMS(ctx context.Context, c *Cluster) ([]Part, error) {
	const known = "kms-known"
	if err := writeSecret(ctx, c.control()[0], known); err != nil {
		return nil, err
	}
	for _, m := range c.control() { // reads it into what it has
		if err := readSecret(ctx, m, known); err != nil {
			return nil, err
		}
	}
	lost := time.Now()
	if err := c.resetCalls(ctx, "kms:*"); err != nil {
		return nil, err
	}
	err := poll.Within(ctx, refusalTimeout, secretInterval, func(ctx context.Context) error {
		return each(c.control(), func(m *machine) error {
			if writeSecret(ctx, m, unused()) == nil {
				return fmt.Errorf("%s still writes Secrets", m.name)
			}
			return nil
		})
	})
	if err == nil {
		c.say("Secrets were refused after %s", short(time.Since(lost)))
		err = each(c.control(), func(m *machine) error {
			return errors.Join(readSecret(ctx, m, known), writeOther(ctx, m))
		})
	}
	back := time.Now()
	if err = errors.Join(err, c.answerCalls(ctx)); err != nil {
		return nil, err
	}
	err = poll.Within(ctx, recoverTimeout, secretInterval, func(ctx context.Context) error {
		return each(c.control(), func(m *machine) error { return writeSecret(ctx, m, unused()) })
	})
	parts := []Part{{"Secrets can be written", time.Since(back)}}
	return parts, errors.Join(err, c.client.CoreV1().Secrets(namespace).DeleteCollection(
		ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "fault=kms"},
	))
}

// unused is a name that no object has.
func unused() string { return fmt.Sprintf("kms-%d", time.Now().UnixNano()) }

func writeSecret(ctx context.Context, m *machine, name string) error {
	_, err := m.server.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fault": "kms"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

func readSecret(ctx context.Context, m *machine, name string) error {
	if _, err := m.server.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// writeOther writes what is not encrypted.
func writeOther(ctx context.Context, m *machine) error {
	name := unused()
	configs := m.server.CoreV1().ConfigMaps(namespace)
	_, err := configs.Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
	)
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return configs.Delete(ctx, name, metav1.DeleteOptions{})
}
