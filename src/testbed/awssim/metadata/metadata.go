// Package metadata answers requests to instance metadata.
package metadata

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/ec2"
	"kubernetes-release/testbed/awssim/store"
)

// Headers of IMDSv2.
const (
	tokenHeader    = "X-Aws-Ec2-Metadata-Token"
	tokenTTLHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL    = 21600
)

// NormalTTL is the IP TTL of all responses except those to token requests.
const NormalTTL = 64

// InstanceAt returns the running instance with the address, or nil.
func InstanceAt(w *store.World, source string) *store.Instance {
	address, err := netip.ParseAddr(source)
	if err != nil {
		return nil
	}
	for i := range w.Instances {
		if w.Instances[i].Address == address && w.Instances[i].State == store.Running {
			return &w.Instances[i]
		}
	}
	return nil
}

// Answer responds to a request from an instance; it is nil if the source is not an instance.
func Answer(w *store.World, i *store.Instance, r *http.Request, now time.Time) Response {
	switch {
	case i == nil:
		return metadataError(http.StatusNotFound)
	case i.Metadata.HTTPEndpoint == "disabled":
		return metadataError(http.StatusForbidden)
	case r.URL.Path == "/latest/api/token":
		return issueToken(w, i, r, now)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return metadataError(http.StatusMethodNotAllowed)
	}
	if token := r.Header.Get(tokenHeader); token != "" {
		claims, ok := w.Unseal(token, "metadata")
		if !ok || claims.Instance != i.ID || now.Unix() >= claims.Expires {
			return metadataError(http.StatusUnauthorized)
		}
	} else if i.Metadata.HTTPTokens == "required" {
		return metadataError(http.StatusUnauthorized)
	}
	path, ok := versionless(r.URL.Path)
	if !ok {
		return metadataError(http.StatusNotFound)
	}
	return read(w, i, path, now)
}

// versionless removes /latest or a dated version from the path.
func versionless(path string) (string, bool) {
	version, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if version == "latest" {
		return rest, true
	}
	_, err := time.Parse("2006-01-02", version)
	return rest, err == nil
}

func issueToken(w *store.World, i *store.Instance, r *http.Request, now time.Time) Response {
	if r.Method != http.MethodPut {
		return metadataError(http.StatusMethodNotAllowed)
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		return metadataError(http.StatusForbidden) // AWS refuses what came through a proxy
	}
	ttl, err := strconv.Atoi(r.Header.Get(tokenTTLHeader))
	if err != nil || ttl < 1 || ttl > maxTokenTTL {
		return metadataError(http.StatusBadRequest)
	}
	return Response{
		Status: http.StatusOK,
		Body: w.Seal(
			store.Sealed{Purpose: "metadata", Instance: i.ID, Issued: now.Unix(), Expires: now.Unix() + int64(ttl)},
		),
		TTL:    i.Metadata.HopLimit,
		Header: map[string]string{tokenTTLHeader: strconv.Itoa(ttl)},
	}
}

// read looks up a path in the instance's tree and returns the text of a leaf or the listing of a directory.
func read(w *store.World, i *store.Instance, path string, now time.Time) Response {
	tree := metadataTree(w, i, now)
	path = strings.TrimPrefix(path, "/")
	if leaf, ok := tree[path]; ok {
		return leaf
	}
	listing := listDirectory(tree, strings.TrimSuffix(path, "/"))
	if listing == "" {
		return metadataError(http.StatusNotFound)
	}
	return Response{Status: http.StatusOK, Body: listing}
}

// listDirectory lists a directory, with a slash after subdirectories; "" if it does not exist.
func listDirectory(tree map[string]Response, dir string) string {
	prefix := dir + "/"
	if dir == "" {
		prefix = ""
	}
	var names []string
	for path := range tree {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		name, _, isDir := strings.Cut(rest, "/")
		if isDir {
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\n")
}

// metadataTree is all that an instance can read, by path below the version.
func metadataTree(w *store.World, i *store.Instance, now time.Time) map[string]Response {
	subnet := w.Place(i)
	name, mac, address := w.HostName(subnet.VPC, i.Address), ec2.Mac(i.Address), i.Address.String()
	tree := map[string]Response{}
	add := func(prefix string, leaves map[string]string) {
		for path, value := range leaves {
			tree[prefix+path] = text(value)
		}
	}
	var groupNames []string
	for _, g := range ec2.GroupViews(w, i.SecurityGroups) {
		groupNames = append(groupNames, g.Name)
	}
	groups, groupIDs := strings.Join(groupNames, "\n"), strings.Join(i.SecurityGroups, "\n")
	add("meta-data/", map[string]string{
		"ami-id":                         i.Image,
		"ami-launch-index":               "0",
		"hostname":                       name,
		"instance-action":                "none",
		"instance-id":                    i.ID,
		"instance-life-cycle":            "on-demand",
		"instance-type":                  i.Type,
		"local-hostname":                 name,
		"local-ipv4":                     address,
		"mac":                            mac,
		"reservation-id":                 "r-" + i.ID[len("i-"):],
		"security-groups":                groups,
		"placement/availability-zone":    subnet.AvailabilityZone,
		"placement/availability-zone-id": w.ZoneID(cmp.Or(subnet.AvailabilityZone, "a")),
		"placement/region":               w.Region,
		// What is attached later is not shown until the instance is stopped and started.
		"block-device-mapping/ami":  "sda1",
		"block-device-mapping/root": "/dev/sda1",
		"services/domain":           w.Domain(),
		"services/partition":        w.Partition,
	})
	add("meta-data/network/interfaces/macs/"+mac+"/", map[string]string{
		"device-number":          "0",
		"interface-id":           ec2.InterfaceID(i.ID),
		"local-hostname":         name,
		"local-ipv4s":            address,
		"mac":                    mac,
		"owner-id":               w.Account,
		"security-group-ids":     groupIDs,
		"security-groups":        groups,
		"subnet-id":              i.Subnet,
		"vpc-id":                 subnet.VPC,
		"subnet-ipv4-cidr-block": subnet.CIDR.String(),
		"vpc-ipv4-cidr-block":    vpcCIDR(w, subnet.VPC),
		"vpc-ipv4-cidr-blocks":   vpcCIDR(w, subnet.VPC),
	})
	tree["dynamic/instance-identity/document"] = document(map[string]any{
		"accountId":        w.Account,
		"architecture":     "x86_64",
		"availabilityZone": subnet.AvailabilityZone,
		"imageId":          i.Image,
		"instanceId":       i.ID,
		"instanceType":     i.Type,
		"pendingTime": i.LaunchTime.UTC().
			Format(time.RFC3339),
		"privateIp":               address,
		"region":                  w.Region,
		"version":                 "2017-09-30",
		"billingProducts":         nil,
		"devpayProductCodes":      nil,
		"marketplaceProductCodes": nil,
		"kernelId":                nil,
		"ramdiskId":               nil,
	})
	if i.UserData != "" {
		tree["user-data"] = userData(i.UserData)
	}
	addIAM(w, tree, i, now)
	addNotices(tree, i.Notices)
	return tree
}

func vpcCIDR(w *store.World, id string) string {
	if v := store.Find(w.VPCs, id); v != nil {
		return v.CIDR.String()
	}
	return ""
}

// addIAM adds the profile and its role's credentials. A profile without a role has info without credentials; without a
// profile there is neither.
func addIAM(w *store.World, tree map[string]Response, i *store.Instance, now time.Time) {
	profile := store.Find(w.InstanceProfiles, i.InstanceProfile)
	if profile == nil {
		return
	}
	const stamp = "2006-01-02T15:04:05Z"
	info := map[string]string{
		"Code":               "Success",
		"LastUpdated":        now.Format(stamp),
		"InstanceProfileArn": w.ProfileARN(profile.Name),
		"InstanceProfileId":  w.UniqueID("AIPA", profile.Name),
	}
	defer func() { tree["meta-data/iam/info"] = document(info) }()
	if profile.Role == "" {
		info["Code"] = "InstanceProfileNotFound"
		info["Message"] = "Instance Profile does not contain a role. Please see documentation at " +
			"http://docs.amazonwebservices.com/IAM/latest/UserGuide/RolesTroubleshooting.html."
		return
	}
	leaf := "meta-data/iam/security-credentials/" + profile.Role
	status := i.CredentialStatus
	if role := store.Find(w.Roles, profile.Role); role.Untrusted {
		status = "AssumeRoleUnauthorizedAccess"
	}
	if status != "" && status != "Success" {
		tree[leaf] = document(
			map[string]string{
				"Code":        status,
				"Message":     "EC2 cannot assume the role " + profile.Role + ".",
				"LastUpdated": now.Format(stamp),
			},
		)
		return
	}
	c := w.RoleCredentials(i, profile.Role, now)
	tree[leaf] = document(map[string]string{
		"Code":            "Success",
		"Type":            "AWS-HMAC",
		"LastUpdated":     c.Issued.UTC().Format(stamp),
		"Expiration":      c.Expires.UTC().Format(stamp),
		"AccessKeyId":     c.AccessKeyID,
		"SecretAccessKey": c.SecretAccessKey,
		"Token":           c.SessionToken,
	})
}
