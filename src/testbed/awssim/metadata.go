package awssim

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Headers of IMDSv2.
const (
	tokenHeader    = "X-Aws-Ec2-Metadata-Token"
	tokenTTLHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL    = 21600
)

// normalTTL is the IP TTL of all responses except those to token requests.
const normalTTL = 64

type connKey struct{}

// MetadataServer serves instance metadata on a listener. It must own the connections, because the response to a token request is sent
// with the instance's hop limit as TTL. Set its address or pass it a listener, as with any http.Server.
func (s *Simulator) MetadataServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveMetadata),
		ReadHeaderTimeout: 5 * time.Second,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// setTTL sets the IP TTL of packets that are sent from now on.
func setTTL(r *http.Request, ttl int) {
	tcp, ok := r.Context().Value(connKey{}).(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // the connection is gone
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
}

// metadataResponse is the response to a request.
type metadataResponse struct {
	status int
	body   string
	json   bool
	ttl    int
	header map[string]string
}

func metadataError(status int) metadataResponse {
	return metadataResponse{status: status, body: fmt.Sprintf("%d - %s\n", status, http.StatusText(status))}
}

func (s *Simulator) serveMetadata(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	path := r.URL.Path
	entry := Call{Service: "metadata", Action: r.Method + " " + path, Source: host(r.RemoteAddr), RequestID: requestID()}
	qualified := "metadata:" + path
	wait(r.Context(), s.latency(qualified))
	fault := s.faults.take(qualified, entry.Source)
	s.mu.Lock()
	now := s.now()
	instance := s.world.instanceAt(entry.Source)
	var answer metadataResponse
	if e := fault.error(); e != nil {
		answer = metadataResponse{status: e.Status, body: e.Message}
	} else {
		answer = s.world.metadata(instance, r, now)
	}
	if instance != nil {
		entry.Instance = instance.ID
	}
	s.mu.Unlock()
	if fault.is(FaultEmpty) {
		answer.body = ""
	}
	if fault != nil {
		entry.Fault = fault.Kind
	}
	entry.Time, entry.Status = now, answer.status
	entry.Milliseconds = float64(time.Since(start).Microseconds()) / 1000
	s.remember(entry)

	w.Header().Set("Server", "EC2ws")
	w.Header().Set("Date", now.Format(http.TimeFormat))
	w.Header().Set("Content-Type", "text/plain")
	if answer.json {
		w.Header().Set("Content-Type", "application/json")
	}
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	setTTL(r, cmp.Or(answer.ttl, normalTTL))
	fault.write(w, answer.status, []byte(answer.body))
}

// instanceAt returns the running instance with the address, or nil.
func (w *World) instanceAt(source string) *Instance {
	address, err := netip.ParseAddr(source)
	if err != nil {
		return nil
	}
	for i := range w.Instances {
		if w.Instances[i].Address == address && w.Instances[i].State == Running {
			return &w.Instances[i]
		}
	}
	return nil
}

// metadata responds to a request from an instance; it is nil if the source is not an instance.
func (w *World) metadata(i *Instance, r *http.Request, now time.Time) metadataResponse {
	switch {
	case i == nil:
		return metadataError(http.StatusNotFound)
	case i.Metadata.HTTPEndpoint == "disabled":
		return metadataError(http.StatusForbidden)
	case r.URL.Path == "/latest/api/token":
		return w.issueToken(i, r, now)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return metadataError(http.StatusMethodNotAllowed)
	}
	if token := r.Header.Get(tokenHeader); token != "" {
		claims, ok := w.unseal(token, "metadata")
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
	return w.document(i, path, now)
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

func (w *World) issueToken(i *Instance, r *http.Request, now time.Time) metadataResponse {
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
	return metadataResponse{
		status: http.StatusOK,
		body:   w.seal(sealed{Purpose: "metadata", Instance: i.ID, Issued: now.Unix(), Expires: now.Unix() + int64(ttl)}),
		ttl:    i.Metadata.HopLimit,
		header: map[string]string{tokenTTLHeader: strconv.Itoa(ttl)},
	}
}

// document looks up a path in the instance's tree and returns the text of a leaf or the listing of a directory.
func (w *World) document(i *Instance, path string, now time.Time) metadataResponse {
	tree := w.metadataTree(i, now)
	path = strings.TrimPrefix(path, "/")
	if leaf, ok := tree[path]; ok {
		return leaf
	}
	listing := listDirectory(tree, strings.TrimSuffix(path, "/"))
	if listing == "" {
		return metadataError(http.StatusNotFound)
	}
	return metadataResponse{status: http.StatusOK, body: listing}
}

// listDirectory lists a directory, with a slash after subdirectories; "" if it does not exist.
func listDirectory(tree map[string]metadataResponse, dir string) string {
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

func text(value string) metadataResponse {
	return metadataResponse{status: http.StatusOK, body: value}
}

func document(v any) metadataResponse {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("awssim: metadata document: %v", err))
	}
	return metadataResponse{status: http.StatusOK, body: string(data), json: true}
}

// metadataTree is all that an instance can read, by path below the version.
func (w *World) metadataTree(i *Instance, now time.Time) map[string]metadataResponse {
	subnet := w.place(i)
	name, mac, address := w.privateDNSName(i.Address), mac(i.Address), i.Address.String()
	tree := map[string]metadataResponse{}
	add := func(prefix string, leaves map[string]string) {
		for path, value := range leaves {
			tree[prefix+path] = text(value)
		}
	}
	var groupNames []string
	for _, g := range w.groupViews(i.SecurityGroups) {
		groupNames = append(groupNames, g.Name)
	}
	groups, groupIDs := strings.Join(groupNames, "\n"), strings.Join(i.SecurityGroups, "\n")
	domain := "amazonaws.com"
	if w.Partition == "aws-cn" {
		domain += ".cn"
	}
	add("meta-data/", map[string]string{
		"ami-id": i.Image, "ami-launch-index": "0", "hostname": name, "instance-action": "none", "instance-id": i.ID, "instance-life-cycle": "on-demand",
		"instance-type": i.Type, "local-hostname": name, "local-ipv4": address, "mac": mac, "reservation-id": "r-" + i.ID[len("i-"):], "security-groups": groups,
		"placement/availability-zone": subnet.AvailabilityZone, "placement/availability-zone-id": w.zoneID(cmp.Or(subnet.AvailabilityZone, "a")), "placement/region": w.Region,
		// What is attached later is not shown until the instance is stopped and started.
		"block-device-mapping/ami": "sda1", "block-device-mapping/root": "/dev/sda1",
		"services/domain": domain, "services/partition": w.Partition,
	})
	add("meta-data/network/interfaces/macs/"+mac+"/", map[string]string{
		"device-number": "0", "interface-id": interfaceID(i.ID), "local-hostname": name, "local-ipv4s": address, "mac": mac, "owner-id": w.Account,
		"security-group-ids": groupIDs, "security-groups": groups, "subnet-id": i.Subnet, "vpc-id": subnet.VPC,
		"subnet-ipv4-cidr-block": subnet.CIDR.String(), "vpc-ipv4-cidr-block": w.vpcCIDR(subnet.VPC), "vpc-ipv4-cidr-blocks": w.vpcCIDR(subnet.VPC),
	})
	tree["dynamic/instance-identity/document"] = document(map[string]any{
		"accountId": w.Account, "architecture": "x86_64", "availabilityZone": subnet.AvailabilityZone, "imageId": i.Image, "instanceId": i.ID, "instanceType": i.Type,
		"pendingTime": i.LaunchTime.UTC().Format(time.RFC3339), "privateIp": address, "region": w.Region, "version": "2017-09-30",
		"billingProducts": nil, "devpayProductCodes": nil, "marketplaceProductCodes": nil, "kernelId": nil, "ramdiskId": nil,
	})
	if i.UserData != "" {
		tree["user-data"] = userData(i.UserData)
	}
	w.addIAM(tree, i, now)
	return tree
}

func (w *World) vpcCIDR(id string) string {
	if v := find(w.VPCs, id); v != nil {
		return v.CIDR.String()
	}
	return ""
}

// addIAM adds the profile and its role's credentials. A profile without a role has info without credentials; without a profile there
// is neither.
func (w *World) addIAM(tree map[string]metadataResponse, i *Instance, now time.Time) {
	profile := find(w.InstanceProfiles, i.InstanceProfile)
	if profile == nil {
		return
	}
	const stamp = "2006-01-02T15:04:05Z"
	info := map[string]string{
		"Code": "Success", "LastUpdated": now.Format(stamp), "InstanceProfileArn": w.profileARN(profile.Name), "InstanceProfileId": w.uniqueID("AIPA", profile.Name),
	}
	defer func() { tree["meta-data/iam/info"] = document(info) }()
	if profile.Role == "" {
		info["Code"] = "InstanceProfileNotFound"
		info["Message"] = "Instance Profile does not contain a role. Please see documentation at http://docs.amazonwebservices.com/IAM/latest/UserGuide/RolesTroubleshooting.html."
		return
	}
	leaf := "meta-data/iam/security-credentials/" + profile.Role
	status := i.CredentialStatus
	if role := find(w.Roles, profile.Role); role.Untrusted {
		status = "AssumeRoleUnauthorizedAccess"
	}
	if status != "" && status != "Success" {
		tree[leaf] = document(map[string]string{"Code": status, "Message": "EC2 cannot assume the role " + profile.Role + ".", "LastUpdated": now.Format(stamp)})
		return
	}
	c := w.roleCredentials(i, profile.Role, now)
	tree[leaf] = document(map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": c.Issued.UTC().Format(stamp), "Expiration": c.Expires.UTC().Format(stamp),
		"AccessKeyId": c.AccessKeyID, "SecretAccessKey": c.SecretAccessKey, "Token": c.SessionToken,
	})
}

// userData is decoded from the base64 of RunInstances.
func userData(encoded string) metadataResponse {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		data = []byte(encoded)
	}
	return metadataResponse{status: http.StatusOK, body: string(data)}
}
