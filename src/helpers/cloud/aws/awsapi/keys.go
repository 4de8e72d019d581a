package awsapi

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/resource"
)

// DescribeKey returns a key by its id, alias or ARN. A private subnet may not reach KMS, with which EBS works without
// the nodes, so a call is as short as those of IAM.
func (a *Client) DescribeKey(ctx context.Context, name string) (resource.Key, error) {
	out, err := Call(ctx, a, iampolicy.DescribeKeyAction, func(ctx context.Context) (*kms.DescribeKeyOutput, error) {
		ctx, cancel := context.WithTimeout(ctx, policyTimeout)
		defer cancel()
		return a.kms.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: awssdk.String(name)})
	})
	if err != nil {
		return resource.Key{}, err
	}
	if out.KeyMetadata == nil {
		return resource.Key{}, awserr.EmptyAnswer("an answer without the key")
	}
	return resource.Key{
		ARN:   awssdk.ToString(out.KeyMetadata.Arn),
		State: string(out.KeyMetadata.KeyState), Spec: string(out.KeyMetadata.KeySpec),
		Usage: string(out.KeyMetadata.KeyUsage),
	}, nil
}
