package templates

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/kmstest"
)

// encrypted is a real API server whose encryption configuration is that of the job, with the real plugin and a
// simulated KMS.
type encrypted struct {
	*testing.T
	*kubetest.Cluster
	config, socket string
}

// render writes the configuration for the API server's next start.
func (e *encrypted) render(active string, kms bool, keys ...any) {
	e.Helper()
	encryption := values{"keys": append([]any{}, keys...), "active_key": active}
	in := inputFor(e.T, "kube-apiserver")
	if kms {
		encryption["kms_key"] = kmstest.Key
		in = in.linked(pluginLink)
	}
	content := mustRender(e.T, "kube-apiserver", in.with(values{"encryption": encryption}))["config/encryption.json"]
	content = bytes.ReplaceAll(content, []byte("/var/vcap/data/kms-plugin-socket/kms.sock"), []byte(e.socket))
	if err := os.WriteFile(e.config, content, 0o600); err != nil {
		e.Fatal(err)
	}
}

// deploy is a deploy with a changed configuration.
func (e *encrypted) deploy(active string, kms bool, keys ...any) {
	e.Helper()
	e.render(active, kms, keys...)
	e.Restart()
	e.AwaitReady()
}

const secretContent = "a word that nobody else knows"

func (e *encrypted) create(name string) error {
	_, err := e.Admin().CoreV1().Secrets("default").Create(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"word": secretContent},
	}, metav1.CreateOptions{})
	return err
}

// rewrite is kubectl get and kubectl replace.
func (e *encrypted) rewrite() {
	e.Helper()
	secrets := e.Admin().CoreV1().Secrets("default")
	list, err := secrets.List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for i := range list.Items {
		if _, err := secrets.Update(e.Context(), &list.Items[i], metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
}

func (e *encrypted) read(name string) error {
	secret, err := e.Admin().CoreV1().Secrets("default").Get(e.Context(), name, metav1.GetOptions{})
	if err == nil && string(secret.Data["word"]) != secretContent {
		err = errors.New("it is another one")
	}
	return err
}

// wantStored expects Secrets that can be read, and that etcd has with a prefix and not in plain text.
func (e *encrypted) wantStored(prefix string, names ...string) {
	e.Helper()
	for _, name := range names {
		if err := e.read(name); err != nil {
			e.Errorf("reading %s: %v", name, err)
		}
		stored := e.Stored("/registry/secrets/default/" + name)
		if !bytes.HasPrefix(stored, []byte(prefix)) || bytes.Contains(stored, []byte(secretContent)) {
			e.Errorf("etcd has %s as %.40q, want it encrypted with %s", name, stored, prefix)
		}
	}
}

func (e *encrypted) readyz() error {
	_, err := e.Admin().CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(e.Context())
	return err
}

const (
	withLocalKey = "k8s:enc:secretbox:v1:key1:"
	withKMS      = "k8s:enc:kms:v2:kms:"
)

var localKey = values{"name": "key1", "secret": "0123456789abcdefghijklmnopqrstuv"}

func startEncrypted(t *testing.T, active string, kms bool, keys ...any) *encrypted {
	t.Helper()
	e := &encrypted{T: t, config: filepath.Join(t.TempDir(), "encryption.json"), socket: kmstest.NewSocket(t)}
	e.render(active, kms, keys...)
	return e
}

func (e *encrypted) start() {
	e.Helper()
	e.Cluster = kubetest.Start(
		e.T, kubetest.Options{APIServerFlags: []string{"--encryption-provider-config=" + e.config}},
	)
}

// TestSecretsMoveToKMSAndBack: each step is one deploy of docs/operations.md.
func TestSecretsMoveToKMSAndBack(t *testing.T) {
	kmstest.New(t, kmstest.Key)
	e := startEncrypted(t, "key1", false, localKey)
	e.start()
	plugin := kmstest.Serve(t, kmstest.Key, kmstest.Cluster, e.socket)
	create := func(name string) {
		t.Helper()
		if err := e.create(name); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	e.wantStored(withLocalKey, "before")

	e.deploy("key1", true, localKey)
	create("kms-reads")
	e.wantStored(withLocalKey, "before", "kms-reads")

	e.deploy("kms", true, localKey)
	create("kms-writes")
	e.wantStored(withLocalKey, "before", "kms-reads")
	e.wantStored(withKMS, "kms-writes")
	e.rewrite()
	e.wantStored(withKMS, "before", "kms-reads", "kms-writes")

	e.deploy("kms", true)
	e.wantStored(withKMS, "before", "kms-reads", "kms-writes")

	e.deploy("kms", true, localKey)
	e.deploy("key1", true, localKey)
	e.wantStored(withKMS, "before", "kms-reads", "kms-writes")
	e.rewrite()
	if err := plugin.Stop(); err != nil {
		t.Error(err)
	}
	e.deploy("key1", false, localKey)
	e.wantStored(withLocalKey, "before", "kms-reads", "kms-writes")
}

// TestSecretsWithoutKMS: what an API server does while KMS does not answer, throttles, or refuses the key.
func TestSecretsWithoutKMS(t *testing.T) {
	account := kmstest.New(t, kmstest.Key)
	e := startEncrypted(t, "kms", true)
	plugin := kmstest.Serve(t, kmstest.Key, kmstest.Cluster, e.socket)
	e.start()
	if err := e.create("before"); err != nil {
		t.Fatal(err)
	}
	e.wantStored(withKMS, "before")

	// Within three minutes, reads and writes go on: the API server has its key in memory. It is not ready.
	account.Fail(kmstest.Unreachable)
	eventually.Succeeds(t, 2*time.Minute, "the API server is not ready", func() error {
		if e.readyz() == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	if err := errors.Join(e.read("before"), e.create("meanwhile")); err != nil {
		t.Errorf("while KMS does not answer: %v", err)
	}
	e.wantStored(withKMS, "meanwhile")
	want := "kms:Encrypt with the KMS key " + kmstest.Key + " fails: "
	if !strings.Contains(plugin.Log.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, plugin.Log)
	}

	// One that starts meanwhile serves everything but Secrets.
	e.Restart()
	eventually.Succeeds(t, time.Minute, "the API server serves what is not encrypted", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := e.Admin().CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for what, err := range map[string]error{
		"reads Secrets": e.read("before"), "writes Secrets": e.create("refused"), "is ready": e.readyz(),
	} {
		if err == nil {
			t.Errorf("an API server that has started without KMS %s", what)
		}
	}
	account.ClearFaults()
	e.AwaitReady()
	e.wantStored(withKMS, "before", "meanwhile")
}
