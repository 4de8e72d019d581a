package kubetest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FillEtcd creates objects until etcd refuses them. With etcd's own quota, of 2 GiB, that takes too long: see
// Options.EtcdFlags.
func (c *Cluster) FillEtcd() {
	c.t.Helper()
	objects := c.Admin().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	content := map[string]string{"content": strings.Repeat("x", 900_000)}
	for n := range 100 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("filler-", n)}, Data: content}
		_, err := objects.Create(c.t.Context(), object, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "database space exceeded") {
			return
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.t.Fatal("etcd still accepts objects")
}
