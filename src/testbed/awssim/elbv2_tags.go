package awssim

import (
	"strings"
)

// v2Tags finds the tags of any resource of the API by its ARN.
func (w *World) v2Tags(arn string) (tags *Tags, missing error) {
	switch {
	case strings.Contains(arn, ":loadbalancer/net/"):
		if l := find(w.LoadBalancers, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, errorf("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	case strings.Contains(arn, ":targetgroup/"):
		if g := find(w.TargetGroups, arn); g != nil {
			return &g.Tags, nil
		}
		return nil, errorf("TargetGroupNotFound", "Target group '%s' not found", arn)
	case strings.Contains(arn, ":listener/net/"):
		if l := find(w.Listeners, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, errorf("ListenerNotFound", "Listener '%s' not found", arn)
	}
	return nil, errorf("ValidationError", "'%s' is not a valid load balancer, target group or listener ARN", arn)
}

// touch checks that the resources exist and that the principal can change them.
func (c *call) touch(arns ...string) error {
	for _, arn := range arns {
		subject := target{arn: arn}
		tags, missing := c.v2Tags(arn)
		if tags != nil {
			subject.tags = *tags
		}
		if err := c.allow(subject); err != nil {
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
	Tags         []elbTag
}

func (c *call) v2AddTags(in v2TagsInput) (*nothing, error) {
	request := Tags{}
	for _, t := range in.Tags {
		request[t.Key] = t.Value
	}
	for _, arn := range in.ResourceArns {
		tags, missing := c.v2Tags(arn)
		subject := target{arn: arn, requestTags: request}
		if tags != nil {
			subject.tags = *tags
		}
		if err := c.allow(subject); err != nil {
			return nil, err
		}
		if missing != nil {
			return nil, missing
		}
		merged, err := mergeTags(*tags, in.Tags)
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

func (c *call) v2RemoveTags(in v2RemoveTagsInput) (*nothing, error) {
	if err := c.touch(in.ResourceArns...); err != nil {
		return nil, err
	}
	for _, arn := range in.ResourceArns {
		tags, _ := c.v2Tags(arn)
		for _, key := range in.TagKeys {
			delete(*tags, key)
		}
	}
	return nil, nil
}

type v2TagDescription struct {
	ResourceArn string
	Tags        []elbTag `xml:"Tags>member"`
}

type v2DescribeTagsOutput struct {
	Descriptions []v2TagDescription `xml:"TagDescriptions>member"`
}

type v2DescribeTagsInput struct{ ResourceArns []string }

func (c *call) v2DescribeTags(in v2DescribeTagsInput) (*v2DescribeTagsOutput, error) {
	out := &v2DescribeTagsOutput{}
	for _, arn := range in.ResourceArns {
		tags, missing := c.v2Tags(arn)
		if missing != nil {
			return nil, missing
		}
		out.Descriptions = append(out.Descriptions, v2TagDescription{arn, elbTags(*tags)})
	}
	return out, nil
}
