// Package ec2api is what EC2 and EBS share of their API: filters, pages, tags, ids, and addresses in subnets.
package ec2api

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// CheckInstanceID refuses what is not an id of an instance.
func CheckInstanceID(id string) error {
	digits, ok := strings.CutPrefix(id, "i-")
	if !ok || strings.Trim(digits, "0123456789abcdef") != "" || len(digits) != 8 && len(digits) != 17 {
		return api.Errorf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
	}
	return nil
}

// Instance finds an instance for a changing action and checks the permission, with additional condition keys.
func Instance(c *api.Call, id string, context map[string][]string) (*store.Instance, error) {
	if err := CheckInstanceID(id); err != nil {
		return nil, err
	}
	i := store.Find(c.Instances, id)
	subject := api.Target{ARN: ARN(c, "instance", id), Context: context}
	if i != nil {
		subject.Tags = i.Tags
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	if i == nil {
		return nil, NotFound("InvalidInstanceID", "instance", id)
	}
	return i, nil
}

// Done is the response of actions that only report success.
type Done struct {
	Return bool `xml:"return"`
}

// Filter is an element of a Describe call's Filter list.
type Filter struct {
	Name  string
	Value []string
}

// Page has the parameters that all paginated Describe calls share.
type Page struct {
	Filter     []Filter
	MaxResults *int
	NextToken  string
}

// Attributes are the values of a resource by filter name.
type Attributes map[string]func() []string

// One is an attribute with a single value.
func One[T ~string](value T) func() []string {
	return func() []string { return []string{string(value)} }
}

// Each returns a function that gives a value of each element of a list, for a filter that any of them can match.
func Each[E any](list []E, value func(E) string) func() []string {
	return func() []string {
		values := make([]string, 0, len(list))
		for _, e := range list {
			values = append(values, value(e))
		}
		return values
	}
}

// maxFilterValues is EC2's limit for all filters of a call together.
const maxFilterValues = 200

// SelectBy returns the resources that match all filters, in the order of the list. describe returns a resource's
// attributes and tags; the filters tag:KEY and tag-key work on all resources.
func SelectBy[T any](list []T, filters []Filter, describe func(*T) (Attributes, store.Tags)) ([]*T, error) {
	var zero T
	known, _ := describe(&zero)
	values := 0
	for _, f := range filters {
		if values += len(f.Value); values > maxFilterValues {
			return nil, api.Errorf(
				"FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d",
				maxFilterValues,
			)
		}
		if known[f.Name] == nil && f.Name != "tag-key" && !strings.HasPrefix(f.Name, "tag:") {
			return nil, api.Errorf("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
		}
		if len(f.Value) == 0 {
			return nil, api.Errorf("InvalidParameterValue", "The filter '%s' has no values", f.Name)
		}
	}
	var selected []*T
	for i := range list {
		attrs, tags := describe(&list[i])
		if !slices.ContainsFunc(filters, func(f Filter) bool { return !f.matches(attrs, tags) }) {
			selected = append(selected, &list[i])
		}
	}
	return selected, nil
}

func (f Filter) matches(attrs Attributes, tags store.Tags) bool {
	if key, ok := strings.CutPrefix(f.Name, "tag:"); ok {
		value, has := tags[key]
		return has && f.matchesValue(value)
	}
	if f.Name == "tag-key" {
		for key := range tags {
			if f.matchesValue(key) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(attrs[f.Name](), f.matchesValue)
}

// matchesValue matches EC2's wildcards * and ?, which can be escaped with a backslash.
func (f Filter) matchesValue(value string) bool {
	return slices.ContainsFunc(f.Value, func(pattern string) bool {
		if strings.Contains(pattern, `\`) {
			return strings.NewReplacer(`\*`, "*", `\?`, "?", `\\`, `\`).Replace(pattern) == value
		}
		return iam.Match(pattern, value)
	})
}

// Paginate returns a page. MaxResults must be between minimum and maximum, as documented for each action; without it
// EC2 returns everything.
func Paginate[T any](list []T, p Page, minimum, maximum int) (part []T, next string, err error) {
	start := 0
	if p.NextToken != "" {
		data, err := base64.URLEncoding.DecodeString(p.NextToken)
		if start, _ = strconv.Atoi(string(data)); err != nil || start <= 0 {
			return nil, "", api.Errorf("InvalidParameterValue", "Invalid value '%s' for nextToken", p.NextToken)
		}
	}
	start = min(start, len(list))
	if p.MaxResults == nil {
		return list[start:], "", nil
	}
	if *p.MaxResults < minimum || *p.MaxResults > maximum {
		return nil, "", api.Errorf(
			"InvalidParameterValue",
			"Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", *p.MaxResults,
			minimum, maximum,
		)
	}
	end := min(start+*p.MaxResults, len(list))
	if end < len(list) {
		next = base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(end)))
	}
	return list[start:end], next, nil
}

// Described returns the page of a Describe call: of the resources that match its filters, as the call's output shows
// them. MaxResults must be between 5 and maximum.
func Described[T, V any](
	c *api.Call, list []T, in Page, maximum int, describe func(*api.Call, *T) (Attributes, store.Tags),
	view func(*api.Call, *T) V,
) (views []V, next string, err error) {
	selected, err := SelectBy(list, in.Filter, func(r *T) (Attributes, store.Tags) { return describe(c, r) })
	if err != nil {
		return nil, "", err
	}
	part, next, err := Paginate(selected, in, 5, maximum)
	for _, r := range part {
		views = append(views, view(c, r))
	}
	return views, next, err
}

// WithIDs returns the resources with the ids that a call names. It is an error if one does not exist.
func WithIDs[T store.Resource](list []T, ids []string, code, kind string) ([]T, error) {
	if len(ids) == 0 {
		return list, nil
	}
	var found []T
	for _, id := range ids {
		r := store.Find(list, id)
		if r == nil {
			return nil, NotFound(code, kind, id)
		}
		if store.Find(found, id) == nil {
			found = append(found, *r)
		}
	}
	return found, nil
}

// NotFound is EC2's error about an id, with one code for malformed and one for missing ids.
func NotFound(code, kind, id string) error {
	return api.Errorf(code+".NotFound", "The %s ID '%s' does not exist", kind, id)
}

// TagSpecification is the tags parameter of creating actions.
type TagSpecification struct {
	ResourceType string
	Tag          []store.Tag
}

// MaxTags is the maximum number of tags of a resource.
const MaxTags = 50

// TagsFor collects and validates the tags for one type of resource.
func TagsFor(specs []TagSpecification, resourceType string) (store.Tags, error) {
	tags := store.Tags{}
	for _, spec := range specs {
		if spec.ResourceType != resourceType {
			continue
		}
		for _, t := range spec.Tag {
			if _, twice := tags[t.Key]; twice {
				return nil, api.Errorf("InvalidParameterValue", "Duplicate tag key '%s' specified.", t.Key)
			}
			tags[t.Key] = t.Value
		}
	}
	return tags, CheckTags(nil, tags)
}

// CheckTags validates tags that are added to others.
func CheckTags(old, added store.Tags) error {
	count := len(old)
	for key, value := range added {
		switch {
		case key == "" || len([]rune(key)) > 127:
			return api.Errorf("InvalidParameterValue", "Tag key exceeds the maximum length of 127 characters")
		case len([]rune(value)) > 255:
			return api.Errorf("InvalidParameterValue", "Tag value exceeds the maximum length of 255 characters")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return api.Errorf("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		}
		if _, has := old[key]; !has {
			count++
		}
	}
	if count > MaxTags {
		return api.Errorf("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
	}
	return nil
}

// AllowTagsOnCreate checks the permission ec2:CreateTags (or elasticloadbalancing:AddTags) on a resource that the
// action creates with tags.
func AllowTagsOnCreate(c *api.Call, action, createActionKey, arn string, tags store.Tags) error {
	if len(tags) == 0 {
		return nil
	}
	return c.AllowAction(
		action, api.Target{ARN: arn, RequestTags: tags, Context: map[string][]string{createActionKey: {c.Action}}},
	)
}

// ARN is the ARN of an EC2 resource.
func ARN(c *api.Call, kind, id string) string {
	if kind == "snapshot" { // snapshots have no account in their ARN
		return strings.Join([]string{"arn", c.Partition, "ec2", c.Region, "", kind + "/" + id}, ":")
	}
	return c.ARN("ec2", c.Region, kind+"/"+id)
}

// ReservedAddresses is how many addresses AWS reserves at the start of a subnet; it also reserves the last one.
const ReservedAddresses = 4

// FreeAddress is the highest free address of a subnet. BOSH assigns addresses itself, from the lowest.
func FreeAddress(w *store.World, s *store.Subnet) (netip.Addr, error) {
	last := LastAddress(s.CIDR)
	for a := last.Prev(); s.CIDR.Contains(a) && store.Offset(s.CIDR, a) >= ReservedAddresses; a = a.Prev() {
		if w.AddressInUse(a) == "" {
			return a, nil
		}
	}
	return netip.Addr{}, api.Errorf(
		"InsufficientFreeAddressesInSubnet",
		"The specified subnet '%s' does not have enough free addresses to satisfy the request.", s.ID,
	)
}

// LastAddress is the broadcast address of a network.
func LastAddress(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}
