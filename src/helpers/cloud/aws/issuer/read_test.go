package issuer

import "testing"

// TestObjectsOfPartitions: S3 has another domain in some partitions.
func TestObjectsOfPartitions(t *testing.T) {
	for domain, region := range map[string]string{
		"amazonaws.com": "eu-central-1", "amazonaws.com.cn": "cn-north-1", "amazonaws.eu": "eusc-de-east-1",
	} {
		want := objectName{"prod-issuer", region, "prod/" + DiscoveryPath}
		for _, base := range []string{
			"https://prod-issuer.s3." + region + "." + domain, "https://s3." + region + "." + domain + "/prod-issuer",
		} {
			if got := parseObject(base + "/prod/" + DiscoveryPath); got == nil || *got != want {
				t.Errorf("%s: %+v, want %+v", base, got, want)
			}
		}
	}
	if got := parseObject("https://prod-issuer.s3.eu-central-1.example.eu/prod"); got != nil {
		t.Errorf("another server's URL is object %+v", got)
	}
}
