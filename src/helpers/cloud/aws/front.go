package aws

import "kubernetes-release/cloud/aws/clustertags"

// TagPrefix starts the key of the tag that assigns a resource to a cluster; the cluster's name follows.
const TagPrefix = clustertags.Prefix
