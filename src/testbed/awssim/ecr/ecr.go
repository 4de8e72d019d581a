// Package ecr has the actions of Elastic Container Registry.
package ecr

import (
	"encoding/base64"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// registryTokenLifetime is how long a token of the registry is valid, as on AWS (Amazon ECR user guide, "Private
// registry authentication").
const registryTokenLifetime = 12 * time.Hour

// RegistryUser is the user name that belongs to every token.
const RegistryUser = "AWS"

// Operations is the table of the actions of Amazon Elastic Container Registry. Clients of the registry itself need
// further permissions, which registry.go checks.
var Operations = map[string]api.Operation{
	"CreateRepository":      api.Changing(createRepository),
	"GetAuthorizationToken": api.Reading(registryToken),
}

// AuthErrors are the responses to failed authentication.
var AuthErrors = map[error]*wire.Error{
	api.ErrNoAuthentication: {
		Code:    "MissingAuthenticationTokenException",
		Message: "Missing Authentication Token",
		Status:  400,
	},
	api.ErrUnknownKey: {
		Code:    "UnrecognizedClientException",
		Message: "The security token included in the request is invalid.",
		Status:  400,
	},
	api.ErrExpired: {
		Code:    "ExpiredTokenException",
		Message: "The security token included in the request is expired",
		Status:  400,
	},
	api.ErrSignature: {
		Code:    "InvalidSignatureException",
		Message: "The request signature we calculated does not match the signature you provided.",
		Status:  400,
	},
	api.ErrPast: {
		Code:    "InvalidSignatureException",
		Message: "Signature expired: the date of the request lies more than 5 min. in the past.",
		Status:  400,
	},
	api.ErrFuture: {
		Code:    "InvalidSignatureException",
		Message: "Signature not yet current: the date of the request lies more than 5 min. in the future.",
		Status:  400,
	},
}

type authorizationData struct {
	AuthorizationToken string  `json:"authorizationToken"`
	ExpiresAt          float64 `json:"expiresAt"` // seconds since 1970
	ProxyEndpoint      string  `json:"proxyEndpoint"`
}

type authorizationTokens struct {
	AuthorizationData []authorizationData `json:"authorizationData"`
}

// registryToken returns the user name and password of whoever asks. With the password a client of the registry has the
// permissions that its owner has at the time of each request.
func registryToken(c *api.Call, in struct {
	RegistryIDs []string `param:"registryIds"`
}) (authorizationTokens, error) {
	for _, id := range in.RegistryIDs {
		if id != c.Account {
			return authorizationTokens{}, api.Errorf(
				"InvalidParameterException",
				"Invalid parameter at 'registryIds' failed to satisfy constraint: 'registry %s is not simulated'", id,
			)
		}
	}
	expires := c.Now.Add(registryTokenLifetime)
	password := c.Seal(
		store.Sealed{
			Purpose:  "registry",
			Instance: c.Principal.Instance,
			Role:     c.Principal.Role,
			Session:  c.Principal.Session,
			User:     c.Principal.User,
			Issued:   c.Now.Unix(),
			Expires:  expires.Unix(),
		},
	)
	return authorizationTokens{[]authorizationData{{
		AuthorizationToken: base64.StdEncoding.EncodeToString([]byte(RegistryUser + ":" + password)),
		ExpiresAt:          float64(expires.Unix()),
		ProxyEndpoint:      "https://" + c.RegistryHost(),
	}}}, nil
}

type createdRepository struct {
	Repository struct {
		RepositoryARN  string  `json:"repositoryArn"`
		RegistryID     string  `json:"registryId"`
		RepositoryName string  `json:"repositoryName"`
		RepositoryURI  string  `json:"repositoryUri"`
		CreatedAt      float64 `json:"createdAt"` // seconds since 1970
	} `json:"repository"`
}

func createRepository(c *api.Call, in struct {
	RepositoryName string `param:"repositoryName"`
}) (out createdRepository, err error) {
	arn := c.RepositoryARN(in.RepositoryName)
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return out, err
	}
	if in.RepositoryName == "" || strings.ToLower(in.RepositoryName) != in.RepositoryName {
		return out, api.Errorf(
			"InvalidParameterException",
			"Invalid parameter at 'repositoryName' failed to satisfy constraint: 'must be lower case'",
		)
	}
	if store.Find(c.Repositories, in.RepositoryName) != nil {
		return out, api.Errorf(
			"RepositoryAlreadyExistsException",
			"The repository with name '%s' already exists in the registry with id '%s'", in.RepositoryName, c.Account,
		)
	}
	if err := c.Begin(); err != nil {
		return out, err
	}
	c.Repositories = append(c.Repositories, store.Repository{Name: in.RepositoryName})
	r := &out.Repository
	r.RepositoryARN, r.RegistryID, r.RepositoryName = arn, c.Account, in.RepositoryName
	r.RepositoryURI, r.CreatedAt = c.RegistryHost()+"/"+in.RepositoryName, float64(c.Now.Unix())
	return out, nil
}
