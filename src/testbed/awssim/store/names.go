package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Clone returns a deep, validated copy of a world.
func (w *World) Clone() (*World, error) {
	data, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("copy world: %w", err)
	}
	c := &World{}
	if err := json.Unmarshal(data, c); err != nil { // YAML takes several times as long
		return nil, fmt.Errorf("copy world: %w", err)
	}
	c.SetDefaults()
	return c, c.Validate()
}

// CheckInterval is the interval to probe at, given the configured seconds.
func (w *World) CheckInterval(seconds int) time.Duration {
	return cmp.Or(time.Duration(w.Settings.HealthCheckInterval), time.Duration(seconds)*time.Second)
}

// SortedAddresses returns the addresses of a load balancer in order.
func SortedAddresses(bySubnet map[string]netip.Addr) []netip.Addr {
	var list []netip.Addr
	for _, a := range bySubnet {
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// PrivateDNSName is the DNS name that EC2 gives to an address.
func (w *World) PrivateDNSName(a netip.Addr) string {
	domain := w.Region + ".compute.internal"
	if w.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domain
}

// HostName is the name that instance metadata gives to an address in a VPC.
func (w *World) HostName(vpc string, a netip.Addr) string {
	name := w.PrivateDNSName(a)
	if v := Find(w.VPCs, vpc); v != nil && v.DomainName != "" {
		host, _, _ := strings.Cut(name, ".")
		return host + "." + v.DomainName
	}
	return name
}

// NewID returns a new id in EC2's form: a prefix and 17 hexadecimal digits.
func (w *World) NewID(prefix string) string {
	w.Serial++
	return fmt.Sprintf("%s-%x", prefix, w.MAC("id", prefix, fmt.Sprint(w.Serial)))[:len(prefix)+18]
}

// RepositoryARN is the ARN of a repository.
func (w *World) RepositoryARN(name string) string {
	return w.ARN("ecr", w.Region, "repository/"+name)
}

// RegistryHost is the host in names of the account's images.
func (w *World) RegistryHost() string {
	return fmt.Sprintf("%s.dkr.ecr.%s.%s", w.Account, w.Region, w.Domain())
}

// LayersHost is the host that layers are downloaded from (Amazon ECR user guide, "Create the Amazon S3 gateway
// endpoint").
func (w *World) LayersHost() string {
	return fmt.Sprintf("prod-%[1]s-starport-layer-bucket.s3.%[1]s.%[2]s", w.Region, w.Domain())
}

// RegistryHosts are the host of images and that of their layers.
func (w *World) RegistryHosts() []string { return []string{w.RegistryHost(), w.LayersHost()} }

// Domain is the partition's.
func (w *World) Domain() string {
	switch w.Partition {
	case "aws-cn":
		return "amazonaws.com.cn"
	case "aws-eusc":
		return "amazonaws.eu"
	}
	return "amazonaws.com"
}
