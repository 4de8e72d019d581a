package elbv2

import (
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/store"
)

// v2Tags finds the tags of any resource of the API by its ARN.
func v2Tags(w *store.World, arn string) (tags *store.Tags, missing error) {
	switch {
	case strings.Contains(arn, ":loadbalancer/"):
		if l := store.Find(w.LoadBalancers, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, api.Errorf("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	case strings.Contains(arn, ":targetgroup/"):
		if g := store.Find(w.TargetGroups, arn); g != nil {
			return &g.Tags, nil
		}
		return nil, api.Errorf("TargetGroupNotFound", "Target group '%s' not found", arn)
	case strings.Contains(arn, ":listener-rule/"):
		if r := store.Find(w.ListenerRules, arn); r != nil {
			return &r.Tags, nil
		}
		return nil, api.Errorf("RuleNotFound", "Rule '%s' not found", arn)
	case strings.Contains(arn, ":listener/"):
		if l := store.Find(w.Listeners, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, api.Errorf("ListenerNotFound", "Listener '%s' not found", arn)
	}
	return nil, api.Errorf(
		"ValidationError", "'%s' is not a valid load balancer, target group, listener or rule ARN", arn,
	)
}

// touch checks that the resources exist and that the principal can change them.
func touch(c *api.Call, arns ...string) error {
	for _, arn := range arns {
		subject := api.Target{ARN: arn}
		tags, missing := v2Tags(c.World, arn)
		if tags != nil {
			subject.Tags = *tags
		}
		if err := c.Allow(subject); err != nil {
			return err
		}
		if missing != nil {
			return missing
		}
	}
	return nil
}

type v2TagsInput struct {
	ResourceArns []string
	Tags         []store.Pair
}

func v2AddTags(c *api.Call, in v2TagsInput) (*api.Nothing, error) {
	request := store.Tags{}
	for _, t := range in.Tags {
		request[t.Key] = t.Value
	}
	for _, arn := range in.ResourceArns {
		tags, missing := v2Tags(c.World, arn)
		subject := api.Target{ARN: arn, RequestTags: request}
		if tags != nil {
			subject.Tags = *tags
		}
		if err := c.Allow(subject); err != nil {
			return nil, err
		}
		if missing != nil {
			return nil, missing
		}
		merged, err := balancing.MergeTags(*tags, in.Tags)
		if err != nil {
			return nil, err
		}
		*tags = merged
	}
	return nil, nil
}

type v2RemoveTagsInput struct {
	ResourceArns []string
	TagKeys      []string
}

func v2RemoveTags(c *api.Call, in v2RemoveTagsInput) (*api.Nothing, error) {
	if err := touch(c, in.ResourceArns...); err != nil {
		return nil, err
	}
	for _, arn := range in.ResourceArns {
		tags, _ := v2Tags(c.World, arn)
		for _, key := range in.TagKeys {
			delete(*tags, key)
		}
	}
	return nil, nil
}

type v2TagDescription struct {
	ResourceArn string
	Tags        []store.Pair `xml:"Tags>member"`
}

type v2DescribeTagsOutput struct {
	Descriptions []v2TagDescription `xml:"TagDescriptions>member"`
}

type v2DescribeTagsInput struct{ ResourceArns []string }

func v2DescribeTags(c *api.Call, in v2DescribeTagsInput) (*v2DescribeTagsOutput, error) {
	out := &v2DescribeTagsOutput{}
	if err := balancing.CheckDescribed(in.ResourceArns); err != nil {
		return nil, err
	}
	for _, arn := range in.ResourceArns {
		tags, missing := v2Tags(c.World, arn)
		if missing != nil {
			return nil, missing
		}
		out.Descriptions = append(out.Descriptions, v2TagDescription{arn, balancing.Pairs(*tags)})
	}
	return out, nil
}
