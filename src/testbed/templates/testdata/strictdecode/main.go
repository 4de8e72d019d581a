// Command strictdecode reads a kubelet's CredentialProviderConfig with kubelet's own type and refuses unknown fields.
package main

import (
	"fmt"
	"os"

	config "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var decoded config.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if got := decoded.GroupVersionKind(); got != config.SchemeGroupVersion.WithKind("CredentialProviderConfig") {
		return fmt.Errorf("%s is a %s", path, got)
	}
	for _, provider := range decoded.Providers {
		if provider.DefaultCacheDuration == nil || len(provider.MatchImages) == 0 || provider.APIVersion == "" {
			return fmt.Errorf("%s: provider %s lacks a required field", path, provider.Name)
		}
	}
	return nil
}
