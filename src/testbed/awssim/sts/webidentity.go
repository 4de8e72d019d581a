package sts

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// webIdentityOperation is STS's AssumeRoleWithWebIdentity. A token takes the place of the signature.
var webIdentityOperation = api.Operation{Unsigned: true, Run: func(c *api.Call, form url.Values) (any, error) {
	var in webIdentityInput
	if err := wire.Decode(form, wire.Query, &in); err != nil {
		return nil, err
	}
	return assumeRoleWithWebIdentity(c, in)
}}

type webIdentityInput struct {
	RoleArn          string
	RoleSessionName  string
	WebIdentityToken string
	DurationSeconds  int
}

type webIdentityOutput struct {
	Credentials                 stsCredentials
	AssumedRoleUser             assumedRoleUser
	SubjectFromWebIdentityToken string
	Provider, Audience          string
}

// assumeRoleWithWebIdentity returns credentials of a role whose trust policy allows the subject of the token. The
// account must have a provider for the token's issuer with its audience, and one of the keys that the issuer publishes
// must have signed it (IAM user guide, "Create an OpenID Connect identity provider in IAM").
func assumeRoleWithWebIdentity(c *api.Call, in webIdentityInput) (*webIdentityOutput, error) {
	token, err := parseToken(in.WebIdentityToken)
	if err != nil {
		return nil, invalidToken("The ID Token provided is not a valid JWT. (%v)", err)
	}
	provider := store.Find(c.OIDCProviders, strings.TrimPrefix(token.Issuer, "https://"))
	if provider == nil || !strings.HasPrefix(token.Issuer, "https://") {
		return nil, invalidToken("No OpenIDConnect provider found in your account for %s", token.Issuer)
	}
	if err := token.verify(c, provider); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.Roles, func(r store.Role) bool { return c.RoleARN(r) == in.RoleArn })
	if i < 0 || !trustsToken(c, c.Roles[i], token) {
		return nil, &wire.Error{
			Code: "AccessDenied", Status: 403, Message: "Not authorized to perform sts:AssumeRoleWithWebIdentity",
		}
	}
	credentials, user := newSession(
		c, c.Roles[i].Name, store.Sealed{Session: in.RoleSessionName}, in.DurationSeconds,
	)
	return &webIdentityOutput{
		Credentials: credentials, AssumedRoleUser: user,
		SubjectFromWebIdentityToken: token.Subject,
		Provider:                    c.ProviderARN(token.Issuer),
		Audience:                    token.Audience[0],
	}, nil
}

func invalidToken(format string, arguments ...any) error {
	return api.Errorf("InvalidIdentityToken", format, arguments...)
}

// trustsToken reports whether a statement of the role's trust policy allows the token.
func trustsToken(c *api.Call, role store.Role, token *webToken) bool {
	name := strings.TrimPrefix(token.Issuer, "https://")
	request := iam.Request{
		Action: "sts:AssumeRoleWithWebIdentity", Resource: c.RoleARN(role),
		Context: map[string][]string{name + ":aud": token.Audience, name + ":sub": {token.Subject}},
	}
	return slices.ContainsFunc(role.Federated, func(f store.FederatedTrust) bool {
		statement := iam.Statement{
			Effect: "Allow", Action: iam.Strings{request.Action}, Resource: iam.Strings{"*"}, Condition: f.Condition,
		}
		return slices.Contains(f.Providers, c.ProviderARN(token.Issuer)) &&
			iam.Evaluate([]iam.Policy{{Statement: iam.Statements{statement}}}, request) == iam.Allowed
	})
}

// webToken is a JWT.
type webToken struct {
	Issuer    string      `json:"iss"`
	Audience  iam.Strings `json:"aud"`
	Subject   string      `json:"sub"`
	Expires   int64       `json:"exp"`
	NotBefore int64       `json:"nbf"`

	algorithm, key string
	signed         string
	signature      []byte
}

func parseToken(text string) (*webToken, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("it has not three parts")
	}
	var header struct {
		Algorithm string `json:"alg"`
		Key       string `json:"kid"`
	}
	token := &webToken{signed: parts[0] + "." + parts[1]}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err := errors.Join(err, decodePart(parts[0], &header), decodePart(parts[1], token)); err != nil {
		return nil, err
	}
	token.signature, token.algorithm, token.key = signature, header.Algorithm, header.Key
	return token, nil
}

func decodePart(part string, into any) error {
	content, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// verify checks the audience, the time and, with the keys that the issuer publishes now, the signature.
func (t *webToken) verify(c *api.Call, provider *store.OIDCProvider) error {
	known := slices.ContainsFunc(t.Audience, func(a string) bool { return slices.Contains(provider.ClientIDs, a) })
	now := c.Now.Unix()
	switch {
	case !known:
		return invalidToken("Incorrect token audience")
	case now >= t.Expires:
		return api.Errorf(
			"ExpiredTokenException", "Token expired: current date/time %d must be before the expiration date/time %d",
			now, t.Expires,
		)
	case now < t.NotBefore:
		return invalidToken("The token is not valid yet")
	}
	keys, err := publishedKeys(c, t.Issuer)
	if err != nil {
		return invalidToken("Couldn't retrieve verification key from your identity provider, please reference "+
			"AssumeRoleWithWebIdentity documentation for requirements (%v)", err)
	}
	key, ok := keys[t.key]
	digest := sha256.Sum256([]byte(t.signed))
	if !ok || t.algorithm != "RS256" || rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], t.signature) != nil {
		return invalidToken("Token signature invalid: no published key of %s has signed it", t.Issuer)
	}
	return nil
}

// publishedKeys reads the keys of an issuer by its discovery document, which must name the issuer.
func publishedKeys(c *api.Call, issuer string) (map[string]*rsa.PublicKey, error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := fetchJSON(c, issuer+"/.well-known/openid-configuration", &discovery); err != nil {
		return nil, err
	}
	if discovery.Issuer != issuer {
		return nil, fmt.Errorf("the discovery document of %s is that of %s", issuer, discovery.Issuer)
	}
	var set struct {
		Keys []struct {
			ID       string `json:"kid"`
			Type     string `json:"kty"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	if err := fetchJSON(c, discovery.Keys, &set); err != nil {
		return nil, err
	}
	keys := map[string]*rsa.PublicKey{}
	for _, k := range set.Keys {
		n, err := base64.RawURLEncoding.DecodeString(k.Modulus)
		e, err2 := base64.RawURLEncoding.DecodeString(k.Exponent)
		if err := errors.Join(err, err2); err != nil || k.Type != "RSA" {
			return nil, fmt.Errorf("key %s is not an RSA key: %w", k.ID, err)
		}
		keys[k.ID] = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	}
	return keys, nil
}

func fetchJSON(c *api.Call, address string, into any) error {
	content, err := c.Fetch(address)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}
