package kmstest_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"kubernetes-release/control/kmsplugin"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/kmstest"
)

// dial is the API server's connection.
func dial(t *testing.T, socket string) kmsapi.KeyManagementServiceClient {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return kmsapi.NewKeyManagementServiceClient(connection)
}

func encrypt(t *testing.T, c kmsapi.KeyManagementServiceClient) *kmsapi.EncryptResponse {
	t.Helper()
	out, err := c.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("seed"), Uid: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func decrypt(c kmsapi.KeyManagementServiceClient, in *kmsapi.EncryptResponse) (string, error) {
	out, err := c.Decrypt(
		context.Background(), &kmsapi.DecryptRequest{Ciphertext: in.GetCiphertext(), KeyId: in.GetKeyId(), Uid: "2"},
	)
	return string(out.GetPlaintext()), err
}

// TestPluginWithPolicy has the generated policy alone: it encrypts for the policy's cluster, and reads what a former
// key has encrypted.
func TestPluginWithPolicy(t *testing.T) {
	account := kmstest.New(t, kmstest.Key, kmstest.NextKey)
	former := kmstest.Serve(t, kmstest.Key, kmstest.Cluster, kmstest.NewSocket(t))
	encrypted := encrypt(t, dial(t, former.Socket))
	if strings.Contains(string(encrypted.GetCiphertext()), "seed") || encrypted.GetKeyId() != kmstest.Key {
		t.Errorf("encrypted as %q with %s", encrypted.GetCiphertext(), encrypted.GetKeyId())
	}
	plugin := kmstest.Serve(t, kmstest.NextKey, kmstest.Cluster, kmstest.NewSocket(t))
	for range 2 { // the second time within the time for which the answer counts
		answer, err := dial(t, plugin.Socket).Status(t.Context(), &kmsapi.StatusRequest{})
		if err != nil || answer.GetHealthz() != "ok" || answer.GetVersion() != "v2" ||
			answer.GetKeyId() != kmstest.NextKey {
			t.Errorf("the status is %v, %v", answer, err)
		}
	}
	if calls := account.Calls("kms:*"); len(calls) != 3 {
		t.Errorf("%d calls of KMS, want one for the key and two for the status", len(calls))
	}
	if got, err := decrypt(dial(t, plugin.Socket), encrypted); got != "seed" || err != nil {
		t.Errorf("the former key decrypts to %q, %v", got, err)
	}
	if info, err := os.Stat(plugin.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v, want it for its user only", info, err)
	}
	if err := kmsplugin.Check(t.Context(), plugin.Socket); err != nil {
		t.Error(err)
	}
}

// TestPluginRefuses expects sentences with the key, what KMS says, and what to do.
func TestPluginRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		key, cluster string // defaults: Key, Cluster
		change       func(*kmstest.Account)
		code         codes.Code
		want         string
	}{
		"disabled": {
			change: func(a *kmstest.Account) { a.SetState(store.KeyDisabled) },
			code:   codes.FailedPrecondition, want: "aws kms enable-key --region us-east-1 --key-id 11111111-",
		},
		"pending deletion": {
			change: func(a *kmstest.Account) { a.SetState(store.KeyPendingDeletion) },
			code:   codes.FailedPrecondition, want: "aws kms cancel-key-deletion --region us-east-1 --key-id 11111111-",
		},
		"another key": {
			key: kmstest.NextKey, code: codes.FailedPrecondition, want: "--encryption-key " + kmstest.NextKey,
		},
		"a key for signatures":   {key: kmstest.SignKey, code: codes.FailedPrecondition, want: "SYMMETRIC_DEFAULT"},
		"another cluster's name": {cluster: "staging", code: codes.FailedPrecondition, want: "kms:Encrypt"},
		"unreachable": {
			change: func(a *kmstest.Account) { a.Fail(kmstest.Unreachable) },
			code:   codes.Unavailable, want: "a VPC endpoint for it",
		},
		"wrong clock": {
			change: func(a *kmstest.Account) {
				a.Fail(awssim.Fault{
					Kind: awssim.FaultError, Status: 400, Code: "InvalidSignatureException",
					Message: "Signature expired",
				})
			},
			code: codes.FailedPrecondition, want: "correct the clock of this VM",
		},
		"throttled": {
			change: func(a *kmstest.Account) { a.Fail(kmstest.Throttled) },
			code:   codes.Unavailable, want: "ThrottlingException: Rate exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			account := kmstest.New(t, kmstest.Key, kmstest.SignKey)
			key, cluster := kmstest.Key, kmstest.Cluster
			if test.key != "" {
				key = test.key
			}
			if test.cluster != "" {
				cluster = test.cluster
			}
			plugin := kmstest.Serve(t, key, cluster, kmstest.NewSocket(t))
			if test.change != nil {
				test.change(account)
			}
			_, err := dial(t, plugin.Socket).Status(t.Context(), &kmsapi.StatusRequest{})
			if answer := status.Convert(err); answer.Code() != test.code ||
				!strings.Contains(answer.Message(), test.want) || !strings.Contains(answer.Message(), key) {
				t.Errorf("the status is %v, want %v with %q", err, test.code, test.want)
			}
			err = kmsplugin.Check(t.Context(), plugin.Socket)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the check says %v, want %q", err, test.want)
			}
			if !strings.Contains(plugin.Log.String(), "KMS does not encrypt and decrypt") {
				t.Errorf("the log is\n%s", plugin.Log)
			}
		})
	}
}

// TestThrottledOnce is a friend: a short burst is repeated by the SDK, and nobody notices.
func TestThrottledOnce(t *testing.T) {
	account := kmstest.New(t, kmstest.Key)
	fault := kmstest.Throttled
	fault.Count = 2
	account.Fail(fault)
	plugin := kmstest.Serve(t, kmstest.Key, kmstest.Cluster, kmstest.NewSocket(t))
	if _, err := dial(t, plugin.Socket).Status(t.Context(), &kmsapi.StatusRequest{}); err != nil {
		t.Error(err)
	}
}

// TestCallerThatStopsWaiting: a request for /readyz that its client has given up says nothing about KMS to others.
func TestCallerThatStopsWaiting(t *testing.T) {
	kmstest.New(t, kmstest.Key)
	plugin := kmstest.NewPlugin(t, kmstest.Key, kmstest.Cluster, &kmstest.Log{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, _ = plugin.Status(gone, &kmsapi.StatusRequest{})
	if _, err := plugin.Status(t.Context(), &kmsapi.StatusRequest{}); err != nil {
		t.Error(err)
	}
}

// TestPluginDecryptsOnlyItsOwn: what was tampered with, what another cluster has encrypted, and what is not the
// plugin's.
func TestPluginDecryptsOnlyItsOwn(t *testing.T) {
	account := kmstest.New(t, kmstest.Key)
	c := dial(t, kmstest.Serve(t, kmstest.Key, kmstest.Cluster, kmstest.NewSocket(t)).Socket)
	encrypted := encrypt(t, c)
	changed := &kmsapi.EncryptResponse{KeyId: kmstest.Key, Ciphertext: bytes.Clone(encrypted.GetCiphertext())}
	changed.Ciphertext[len(changed.Ciphertext)-1]++
	elsewhere := &kmsapi.EncryptResponse{KeyId: kmstest.NextKey, Ciphertext: encrypted.GetCiphertext()}
	for what, test := range map[string]struct {
		in   *kmsapi.EncryptResponse
		code codes.Code
	}{
		"changed":              {changed, codes.InvalidArgument},
		"named by another key": {elsewhere, codes.FailedPrecondition}, // the policy does not allow it
		"of another plugin": {
			&kmsapi.EncryptResponse{KeyId: "key-1", Ciphertext: []byte("x")}, codes.InvalidArgument,
		},
		"not a ciphertext of KMS": {
			&kmsapi.EncryptResponse{KeyId: kmstest.Key, Ciphertext: []byte("x")}, codes.InvalidArgument,
		},
	} {
		if got, err := decrypt(c, test.in); status.Code(err) != test.code || got != "" {
			t.Errorf("%s: %q, %v, want %v", what, got, err, test.code)
		}
	}
	// A process that was killed leaves its socket behind.
	left := kmstest.NewSocket(t)
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := kmstest.Serve(t, kmstest.Key, kmstest.Cluster, left)
	// A fault that ends is noticed.
	account.Fail(awssim.Fault{Kind: awssim.FaultReset, Count: 1})
	if got, err := decrypt(dial(t, again.Socket), encrypted); got != "seed" || err != nil {
		t.Errorf("after a connection that was reset: %q, %v", got, err)
	}
}
