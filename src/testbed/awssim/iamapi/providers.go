package iamapi

import (
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

type createProviderInput struct {
	Url            string
	ClientIDList   []string
	ThumbprintList []string // AWS does not use it for issuers whose certificate is of a public CA
}

type createProviderOutput struct{ OpenIDConnectProviderArn string }

func createProvider(c *api.Call, in createProviderInput) (*createProviderOutput, error) {
	issuer, https := strings.CutPrefix(in.Url, "https://")
	arn := c.ProviderARN(issuer)
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	switch {
	case !https || issuer == "" || strings.ContainsAny(issuer, "?#"):
		return nil, api.Errorf("InvalidInput", "Invalid Open ID Connect Provider URL")
	case store.Find(c.OIDCProviders, issuer) != nil:
		return nil, conflict("EntityAlreadyExists", "Provider with url %s already exists.", in.Url)
	}
	c.OIDCProviders = append(c.OIDCProviders, store.OIDCProvider{URL: issuer, ClientIDs: in.ClientIDList})
	return &createProviderOutput{arn}, nil
}

type providerInput struct{ OpenIDConnectProviderArn string }

type providerOutput struct {
	Url            string
	ClientIDList   []string `xml:"ClientIDList>member"`
	ThumbprintList []string `xml:"ThumbprintList>member"`
}

// provider finds a provider and checks the permission.
func provider(c *api.Call, arn string) (*store.OIDCProvider, error) {
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	for i := range c.OIDCProviders {
		if c.ProviderARN(c.OIDCProviders[i].URL) == arn {
			return &c.OIDCProviders[i], nil
		}
	}
	return nil, &wire.Error{
		Code: "NoSuchEntity", Status: 404,
		Message: "OpenIDConnect Provider not found for arn " + arn,
	}
}

func getProvider(c *api.Call, in providerInput) (*providerOutput, error) {
	p, err := provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	return &providerOutput{Url: p.URL, ClientIDList: p.ClientIDs}, nil
}

func deleteProvider(c *api.Call, in providerInput) (*api.Nothing, error) {
	p, err := provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	url := p.URL
	c.OIDCProviders = slices.DeleteFunc(c.OIDCProviders, func(p store.OIDCProvider) bool { return p.URL == url })
	return &api.Nothing{}, nil
}

type clientIDInput struct{ OpenIDConnectProviderArn, ClientID string }

func addClientID(c *api.Call, in clientIDInput) (*api.Nothing, error) {
	p, err := provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.ClientIDs, in.ClientID) {
		p.ClientIDs = append(p.ClientIDs, in.ClientID)
	}
	return &api.Nothing{}, nil
}
