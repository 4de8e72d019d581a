// Package kmsplugin has the API server's encryption keys encrypted and decrypted by a key of AWS KMS. The API server
// asks for that through version 2 of Kubernetes' KMS plugin API (k8s.io/kms): once when it starts, and once for each
// key of an API server that it finds in etcd and does not know.
package kmsplugin

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/iampolicy"
)

const (
	// callTimeout ends before the API server's own (timeout in encryption.json of the job kube-apiserver), which could
	// not say why.
	callTimeout = 4 * time.Second
	maxBackoff  = callTimeout / 8
	// goodFor and badFor are how long an answer to Status counts. The API server asks once a minute, or every 10
	// seconds while the answer is an error, and for each request of /livez and /readyz at most every 20 or 3 seconds
	// (k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go).
	goodFor = 30 * time.Second
	badFor  = 5 * time.Second
)

// Cipher is what the plugin uses of KMS.
type Cipher interface {
	Encrypt(context.Context, *kms.EncryptInput, ...func(*kms.Options)) (*kms.EncryptOutput, error)
	Decrypt(context.Context, *kms.DecryptInput, ...func(*kms.Options)) (*kms.DecryptOutput, error)
}

// Plugin answers the API server.
type Plugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	key     arn.Key
	cluster string
	cipher  Cipher
	log     *slog.Logger
	now     func() time.Time

	mu      sync.Mutex // is held while KMS is asked about its health, so that one request at a time asks
	checked time.Time
	health  error
}

// New returns a plugin that encrypts with the key of an ARN, for the cluster of a name.
func New(key arn.Key, cluster string, cipher Cipher, log *slog.Logger) *Plugin {
	return &Plugin{key: key, cluster: cluster, cipher: cipher, log: log.With("key", key.String()), now: time.Now}
}

// Connect returns a client of KMS that authenticates as the instance's role.
func Connect(ctx context.Context, key arn.Key) (Cipher, error) {
	// Three attempts must fit into the time of a call.
	quick := func() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), maxBackoff) }
	config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(key.Region), awsconfig.WithRetryer(quick),
		awsconfig.WithSharedConfigFiles([]string{}), awsconfig.WithSharedCredentialsFiles([]string{}))
	if err != nil {
		return nil, err
	}
	return kms.NewFromConfig(config), nil
}

// Status says whether KMS encrypts and decrypts with the key. An error stops the API server's writes after three
// minutes (kmsv2PluginWriteDEKSourceMaxTTL), which it would otherwise encrypt with a key that nobody may be able to
// decrypt.
func (p *Plugin) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	if err := p.checkHealth(ctx); err != nil {
		return nil, err
	}
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.key.String()}, nil
}

func (p *Plugin) checkHealth(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	valid := goodFor
	if p.health != nil {
		valid = badFor
	}
	if age := p.now().Sub(p.checked); !p.checked.IsZero() && age < valid {
		return p.health
	}
	// The answer counts for others than the caller, who may have stopped waiting: the API server asks with the context
	// of a request for /readyz (kmsv2PluginProbe in the same file).
	err := p.roundTrip(context.WithoutCancel(ctx))
	switch {
	case err != nil && (p.checked.IsZero() || p.health == nil):
		p.log.Error("KMS does not encrypt and decrypt", "error", status.Convert(err).Message())
	case err == nil && (p.checked.IsZero() || p.health != nil):
		p.log.Info("KMS encrypts and decrypts")
	}
	p.health, p.checked = err, p.now()
	return err
}

// roundTrip encrypts and decrypts a text.
func (p *Plugin) roundTrip(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	probe := []byte("health")
	encrypted, err := p.encrypt(ctx, probe)
	if err != nil {
		return err
	}
	decrypted, err := p.decrypt(ctx, p.key, encrypted)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(probe, decrypted) != 1 {
		return status.Errorf(codes.Internal, "KMS key %s does not decrypt to what was encrypted with it", p.key)
	}
	return nil
}

// Encrypt encrypts a key of the API server.
func (p *Plugin) Encrypt(ctx context.Context, request *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	encrypted, err := p.encrypt(ctx, request.GetPlaintext())
	if err != nil {
		p.log.Error("not encrypted", "uid", request.GetUid(), "error", status.Convert(err).Message())
		return nil, err
	}
	return &kmsapi.EncryptResponse{Ciphertext: encrypted, KeyId: p.key.String()}, nil
}

// Decrypt decrypts a key that an API server has written into etcd with the ARN of the KMS key, which can be a former
// one. The instance's role decides which keys can be used.
func (p *Plugin) Decrypt(ctx context.Context, request *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key, err := arn.ParseKey(request.GetKeyId())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "what is in etcd was encrypted with another plugin: %v", err)
	}
	plaintext, err := p.decrypt(ctx, key, request.GetCiphertext())
	if err != nil {
		p.log.Error("not decrypted", "uid", request.GetUid(), "with", key.String(),
			"error", status.Convert(err).Message())
		return nil, err
	}
	return &kmsapi.DecryptResponse{Plaintext: plaintext}, nil
}

func (p *Plugin) encrypt(ctx context.Context, plaintext []byte) ([]byte, error) {
	out, err := p.cipher.Encrypt(ctx, &kms.EncryptInput{
		KeyId: aws.String(p.key.String()), Plaintext: plaintext, EncryptionContext: p.context(),
	})
	if err != nil {
		return nil, explain(err, iampolicy.EncryptAction, p.key)
	}
	return out.CiphertextBlob, nil
}

func (p *Plugin) decrypt(ctx context.Context, key arn.Key, ciphertext []byte) ([]byte, error) {
	out, err := p.cipher.Decrypt(ctx, &kms.DecryptInput{
		KeyId: aws.String(key.String()), CiphertextBlob: ciphertext, EncryptionContext: p.context(),
	}, func(o *kms.Options) { o.Region = key.Region })
	if err != nil {
		return nil, explain(err, iampolicy.DecryptAction, key)
	}
	return out.Plaintext, nil
}

func (p *Plugin) context() map[string]string {
	return map[string]string{iampolicy.ContextKey: p.cluster}
}
