package metadata

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func FuzzIdentityDocument(f *testing.F) {
	f.Add(
		`{"instanceId": "i-0123456789abcdef0", "region": "us-east-1", "availabilityZone": "us-east-1a", ` +
			`"privateIp": "10.0.16.4"}`,
	)
	f.Add(`{"instanceId": null}`)
	f.Fuzz(func(t *testing.T, content string) {
		m, err := parseIdentityDocument(content)
		if err != nil {
			return
		}
		if _, err := netip.ParseAddr(m.Address); err != nil ||
			strings.ContainsAny(m.InstanceID+m.Zone+m.Region, " \n/'\"") {
			t.Errorf("accepted %+v", m)
		}
	})
}

func FuzzProfile(f *testing.F) {
	f.Add(`{"Code": "Success", "InstanceProfileArn": "arn:aws:iam::123456789012:instance-profile/kubernetes-control"}`)
	f.Fuzz(func(t *testing.T, content string) {
		if arn, err := parseProfile(content); err == nil && !strings.HasPrefix(arn, "arn:") {
			t.Errorf("accepted %q", arn)
		}
	})
}

func FuzzCredentials(f *testing.F) {
	const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLE"
	f.Add(`{"Code": "Success", "AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "` + secret +
		`", "Token": "t", "Expiration": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`)
	f.Add(`{"Code": "Success", "Expiration": "`)
	f.Fuzz(func(t *testing.T, content string) {
		c, err := parseCredentials("role", content, time.Now())
		if err == nil &&
			(c.AccessKeyID == "" || c.SecretAccessKey == "" || !c.Expires.After(time.Now().Add(-time.Minute))) {
			t.Error("unusable credentials are accepted")
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Error("the error shows the secret")
		}
	})
}

func TestHasEC2Name(t *testing.T) {
	for name, c := range map[string]struct {
		region string
		want   bool
	}{
		"ip-10-0-0-1.ec2.internal":                       {"us-east-1", true},
		"ip-10-0-0-1.eu-central-1.compute.internal":      {"eu-central-1", true},
		"i-0123456789abcdef0.us-west-2.compute.internal": {"us-west-2", true},
		"ip-10-0-0-2.ec2.internal":                       {"eu-central-1", false},
		"ip-10-0-0-1.us-east-1.compute.internal":         {"us-east-1", false},
		"ip-10-0-0-1.corp.example.com":                   {"us-east-1", false},
		"ip-10-0-0-1":                                    {"us-east-1", false},
	} {
		if got := (Instance{Hostname: name, Region: c.region}).HasEC2Name(); got != c.want {
			t.Errorf("%s in %s: %v", name, c.region, got)
		}
	}
}

func FuzzHostname(f *testing.F) {
	f.Add("ip-10-0-0-1.ec2.internal example.com")
	f.Add("  ")
	f.Fuzz(func(t *testing.T, content string) {
		if name, err := parseHostname(content); err == nil && (name == "" || len(strings.Fields(name)) != 1) {
			t.Errorf("accepted %q", name)
		}
	})
}
