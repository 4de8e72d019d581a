package awssim

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/wire"
)

// Repository is a private repository of images. The images themselves are in memory only: they are gone after a restart.
type Repository struct {
	Name string `json:"name"`
	Tags Tags   `json:"tags,omitempty"`
}

// registryTokenLifetime is how long a token of the registry is valid, as on AWS (Amazon ECR user guide, "Private registry
// authentication").
const registryTokenLifetime = 12 * time.Hour

// registryUser is the user name that belongs to every token.
const registryUser = "AWS"

// ecrOperations is the table of the actions of Amazon Elastic Container Registry. Clients of the registry itself need further
// permissions, which registry.go checks.
var ecrOperations = map[string]operation{
	"CreateRepository":      changing(createRepository),
	"GetAuthorizationToken": reading(registryToken),
}

var ecrAuthErrors = map[error]*wire.Error{
	errNoAuthentication: {Code: "MissingAuthenticationTokenException", Message: "Missing Authentication Token", Status: 400},
	errUnknownKey:       {Code: "UnrecognizedClientException", Message: "The security token included in the request is invalid.", Status: 400},
	errExpired:          {Code: "ExpiredTokenException", Message: "The security token included in the request is expired", Status: 400},
	errSignature:        {Code: "InvalidSignatureException", Message: "The request signature we calculated does not match the signature you provided.", Status: 400},
	errPast:             {Code: "InvalidSignatureException", Message: "Signature expired: the date of the request lies more than 5 min. in the past.", Status: 400},
	errFuture:           {Code: "InvalidSignatureException", Message: "Signature not yet current: the date of the request lies more than 5 min. in the future.", Status: 400},
}

type authorizationData struct {
	AuthorizationToken string  `json:"authorizationToken"`
	ExpiresAt          float64 `json:"expiresAt"` // seconds since 1970
	ProxyEndpoint      string  `json:"proxyEndpoint"`
}

type authorizationTokens struct {
	AuthorizationData []authorizationData `json:"authorizationData"`
}

// registryToken returns the user name and password of whoever asks. With the password a client of the registry has the permissions
// that its owner has at the time of each request.
func registryToken(c *call, in struct {
	RegistryIDs []string `param:"registryIds"`
}) (authorizationTokens, error) {
	for _, id := range in.RegistryIDs {
		if id != c.Account {
			return authorizationTokens{}, errorf("InvalidParameterException", "Invalid parameter at 'registryIds' failed to satisfy constraint: 'registry %s is not simulated'", id)
		}
	}
	expires := c.now.Add(registryTokenLifetime)
	password := c.seal(sealed{Purpose: "registry", Instance: c.principal.Instance, Role: c.principal.Role, Session: c.principal.Session, User: c.principal.User, Issued: c.now.Unix(), Expires: expires.Unix()})
	return authorizationTokens{[]authorizationData{{
		AuthorizationToken: base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + password)),
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

func createRepository(c *call, in struct {
	RepositoryName string `param:"repositoryName"`
}) (out createdRepository, err error) {
	arn := c.repositoryARN(in.RepositoryName)
	if err := c.allow(target{arn: arn}); err != nil {
		return out, err
	}
	if in.RepositoryName == "" || strings.ToLower(in.RepositoryName) != in.RepositoryName {
		return out, errorf("InvalidParameterException", "Invalid parameter at 'repositoryName' failed to satisfy constraint: 'must be lower case'")
	}
	if find(c.Repositories, in.RepositoryName) != nil {
		return out, errorf("RepositoryAlreadyExistsException", "The repository with name '%s' already exists in the registry with id '%s'", in.RepositoryName, c.Account)
	}
	if err := c.begin(); err != nil {
		return out, err
	}
	c.Repositories = append(c.Repositories, Repository{Name: in.RepositoryName})
	r := &out.Repository
	r.RepositoryARN, r.RegistryID, r.RepositoryName, r.RepositoryURI, r.CreatedAt = arn, c.Account, in.RepositoryName, c.RegistryHost()+"/"+in.RepositoryName, float64(c.now.Unix())
	return out, nil
}

func (w *World) repositoryARN(name string) string {
	return w.arn("ecr", w.Region, "repository/"+name)
}

// RegistryHost is the host in names of the account's images.
func (w *World) RegistryHost() string {
	return fmt.Sprintf("%s.dkr.ecr.%s.%s", w.Account, w.Region, w.domain())
}

// layersHost is the host that layers are downloaded from (Amazon ECR user guide, "Create the Amazon S3 gateway endpoint").
func (w *World) layersHost() string {
	return fmt.Sprintf("prod-%[1]s-starport-layer-bucket.s3.%[1]s.%[2]s", w.Region, w.domain())
}

// registryHosts are the host of images and that of their layers.
func (w *World) registryHosts() []string { return []string{w.RegistryHost(), w.layersHost()} }

// domain is the partition's.
func (w *World) domain() string {
	if w.Partition == "aws-cn" {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}
