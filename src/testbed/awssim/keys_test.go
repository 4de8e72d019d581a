package awssim_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"kubernetes-release/testbed/awssim/store"
)

// TestKeys: a key that a volume cannot be encrypted with, what repairs it, and a volume before and after that.
func TestKeys(t *testing.T) {
	const arn = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
	const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:*","kms:*"],"Resource":"*"}]}`
	enable := func(ctx context.Context, c *kms.Client) error {
		_, err := c.EnableKey(ctx, &kms.EnableKeyInput{KeyId: aws.String(arn)})
		return err
	}
	for what, test := range map[string]struct {
		key    store.KMSKey
		name   string
		code   string // of DescribeKey
		state  kmstypes.KeyState
		repair func(context.Context, *kms.Client) error
	}{
		"enabled":     {name: arn, state: kmstypes.KeyStateEnabled},
		"by id":       {name: "11111111-2222-3333-4444-555555555555", state: kmstypes.KeyStateEnabled},
		"by alias":    {key: store.KMSKey{Alias: "alias/s"}, name: "alias/s", state: kmstypes.KeyStateEnabled},
		"no such key": {name: "alias/s", code: "NotFoundException"},
		"disabled": {
			key: store.KMSKey{State: store.KeyDisabled}, name: arn, state: kmstypes.KeyStateDisabled, repair: enable,
		},
		"pending deletion": {
			key: store.KMSKey{State: store.KeyPendingDeletion}, name: arn, state: kmstypes.KeyStatePendingDeletion,
			repair: func(ctx context.Context, c *kms.Client) error {
				if err := enable(ctx, c); code(err) != "KMSInvalidStateException" {
					t.Errorf("a key that will be deleted was enabled: %v", err)
				}
				if _, err := c.CancelKeyDeletion(
					ctx, &kms.CancelKeyDeletionInput{KeyId: aws.String(arn)},
				); err != nil {
					return err
				}
				return enable(ctx, c)
			},
		},
		"the key's policy excludes the role": {
			key: store.KMSKey{ExcludesIAM: true}, name: arn, code: "AccessDeniedException",
			repair: func(ctx context.Context, c *kms.Client) error {
				_, err := c.CreateGrant(ctx, &kms.CreateGrantInput{
					KeyId:            aws.String(arn),
					GranteePrincipal: aws.String("arn:aws:iam::123456789012:role/kubernetes-control"),
					Operations: []kmstypes.GrantOperation{
						kmstypes.GrantOperationDescribeKey, kmstypes.GrantOperationCreateGrant,
						kmstypes.GrantOperationDecrypt, kmstypes.GrantOperationGenerateDataKeyWithoutPlaintext,
					},
				})
				return err
			},
		},
		"for signatures": {key: store.KMSKey{Spec: "RSA_2048"}, name: arn, state: kmstypes.KeyStateEnabled},
	} {
		t.Run(what, func(t *testing.T) {
			v := startVolumes(t, func(w *store.World) {
				test.key.ARN = arn
				w.KMSKeys = []store.KMSKey{test.key}
				if err := w.SetPolicy("kubernetes-control", []byte(policy)); err != nil {
					t.Fatal(err)
				}
			})
			client := func(c aws.Config) *kms.Client {
				s := newSigner(v.clock.now)
				return kms.NewFromConfig(c, func(o *kms.Options) { o.HTTPSignerV4 = s })
			}
			own, operators := client(v.instanceRole(controlID)), client(v.operator())
			out, err := own.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &test.name})
			wantCode(t, "describe", err, test.code)
			if err == nil && (*out.KeyMetadata.Arn != arn || out.KeyMetadata.KeyState != test.state) {
				t.Errorf("described as %+v", *out.KeyMetadata)
			}
			usable := test.code == "" && test.state == kmstypes.KeyStateEnabled && test.key.Spec == ""
			v.wantEncrypted(test.name, usable)
			if test.repair != nil {
				if err := test.repair(t.Context(), operators); err != nil {
					t.Fatal(err)
				}
				v.wantEncrypted(test.name, true)
			}
		})
	}
}

// wantEncrypted creates a volume as the control VM's role, which exists afterwards if its key is usable.
func (v *volumes) wantEncrypted(key string, usable bool) {
	v.t.Helper()
	out, err := newClientsAt(v.instanceRole(controlID), v.clock.now).ec2.CreateVolume(
		v.t.Context(), &ec2.CreateVolumeInput{
			Size: aws.Int32(1), VolumeType: "gp3", AvailabilityZone: aws.String("us-east-1a"),
			Encrypted: aws.Bool(true), KmsKeyId: &key,
		},
	)
	wantCode(v.t, "create", err, "")
	v.clock.advance(time.Second)
	want := "InvalidVolume.NotFound"
	if usable {
		want = "available"
	}
	v.wantState("with the key "+key, *out.VolumeId, want)
}
