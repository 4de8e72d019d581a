package awsapi

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
)

// UseKey encrypts and decrypts a text with a key, as job kms-plugin does. That changes nothing, and only it shows
// whether the policies of the role, of the key and of the organization allow it together. An error is that of the
// action that is returned.
func (a *Client) UseKey(ctx context.Context, key, cluster string) (failed string, err error) {
	bound := map[string]string{iampolicy.ContextKey: cluster}
	encrypted, err := limited(ctx, a, iampolicy.EncryptAction, func(ctx context.Context) (*kms.EncryptOutput, error) {
		return a.kms.Encrypt(ctx, &kms.EncryptInput{
			KeyId: awssdk.String(key), Plaintext: []byte("preflight"), EncryptionContext: bound,
		})
	})
	if err == nil && len(encrypted.CiphertextBlob) == 0 {
		err = awserr.EmptyAnswer("an answer without the ciphertext")
	}
	if err != nil {
		return iampolicy.EncryptAction, err
	}
	_, err = limited(ctx, a, iampolicy.DecryptAction, func(ctx context.Context) (*kms.DecryptOutput, error) {
		return a.kms.Decrypt(ctx, &kms.DecryptInput{
			KeyId: awssdk.String(key), CiphertextBlob: encrypted.CiphertextBlob, EncryptionContext: bound,
		})
	})
	return iampolicy.DecryptAction, err
}

// limited makes a call that is as short as those of IAM: a private subnet may not reach the service.
func limited[T any](
	ctx context.Context, a *Client, action string, call func(context.Context) (T, error),
) (T, error) {
	return Call(ctx, a, action, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, policyTimeout)
		defer cancel()
		return call(ctx)
	})
}
