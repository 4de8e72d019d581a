package awssim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ecr"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// layerURLLifetime is how long a layer can be downloaded from a URL that the registry returned.
const layerURLLifetime = time.Hour

// RegistryHosts are the names that RegistryHandler serves, over TLS: that of the images and that of their layers.
func (s *Simulator) RegistryHosts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.RegistryHosts()
}

// RegistryHandler serves the account's private registry, Amazon Elastic Container Registry: a registry of its own
// library behind tokens, repositories and IAM permissions. As on AWS, it redirects downloads of layers to another host.
func (s *Simulator) RegistryHandler() http.Handler {
	blobs := registry.NewInMemoryBlobHandler()
	images := registry.New(registry.WithBlobHandler(blobs), registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts := s.RegistryHosts()
		switch r.Host {
		case hosts[0]:
			s.serveImages(w, r, images)
		case hosts[1]:
			s.serveLayer(w, r, blobs)
		default:
			http.Error(
				w, fmt.Sprintf("host %q is not simulated; %s are", r.Host, strings.Join(hosts, " and ")),
				http.StatusNotFound,
			)
		}
	})
}

// serveImages lets a request through to the images if its token's owner is allowed to make it.
func (s *Simulator) serveImages(w http.ResponseWriter, r *http.Request, images http.Handler) {
	wait(r.Context(), minLatency)
	user, password, given := r.BasicAuth()
	if !given {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Basic realm="https://%s/",service="ecr.amazonaws.com"`, r.Host))
		http.Error(w, "Not Authorized", http.StatusUnauthorized)
		return
	}
	request := parseRegistryRequest(r)
	redirect, refused := s.admit(request, user, password, host(r.RemoteAddr))
	switch {
	case refused != nil:
		refuse(w, refused)
	case redirect != "":
		http.Redirect(w, r, redirect, http.StatusTemporaryRedirect)
	default:
		images.ServeHTTP(w, r)
	}
}

// registryRequest is a request to the registry as IAM sees it.
type registryRequest struct {
	action     string // without ecr:; empty for the version check, which needs a valid token only
	repository string
	layer      string // digest of the layer to download
}

// parseRegistryRequest finds the permission that a request requires (Amazon ECR user guide, "IAM permissions for
// pushing an image"; the managed policy AmazonEC2ContainerRegistryPullOnly has those for pulling).
func parseRegistryRequest(r *http.Request) registryRequest {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if name, _, ok := strings.Cut(path, "/manifests/"); ok {
		if reads {
			return registryRequest{action: "BatchGetImage", repository: name}
		}
		return registryRequest{action: "PutImage", repository: name}
	}
	name, blob, ok := strings.Cut(path, "/blobs/")
	switch {
	case !ok:
		return registryRequest{}
	case r.Method == http.MethodGet:
		return registryRequest{action: "GetDownloadUrlForLayer", repository: name, layer: blob}
	case r.Method == http.MethodHead:
		return registryRequest{action: "BatchCheckLayerAvailability", repository: name}
	case r.Method == http.MethodPost:
		return registryRequest{action: "InitiateLayerUpload", repository: name}
	case r.Method == http.MethodPatch:
		return registryRequest{action: "UploadLayerPart", repository: name}
	}
	return registryRequest{action: "CompleteLayerUpload", repository: name}
}

// admit checks the token and the permissions of its owner, and records the request. It returns the URL to download a
// layer from.
func (s *Simulator) admit(
	request registryRequest, user, password, source string,
) (redirect string, refused *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	claims, ok := s.world.Unseal(password, "registry")
	switch {
	case user != ecr.RegistryUser || !ok:
		return "", &wire.Error{
			Code:    "DENIED",
			Message: "Your Authorization Token is invalid.",
			Status:  http.StatusForbidden,
		}
	case now.Unix() >= claims.Expires:
		return "", &wire.Error{
			Code:    "DENIED",
			Message: "Your authorization token has expired. Reauthenticate and try again.",
			Status:  http.StatusForbidden,
		}
	case request.action == "":
		return "", nil
	}
	c := &api.Call{
		World:     s.world,
		Service:   serviceFor("ecr", ""),
		Action:    request.action,
		Principal: sealedPrincipal(s.world, claims),
		Now:       now,
	}
	entry := Call{
		Time:      now,
		Service:   c.Service.Name,
		Action:    request.action,
		Params:    map[string]string{"repositoryName": request.repository},
		Principal: c.Principal.ARN,
		Instance:  c.Principal.Instance,
		Source:    source,
		RequestID: requestID(),
		Status:    http.StatusOK,
	}
	refused = s.asAPIError(c.Service, useRepository(c, request.repository))
	entry.Permissions = c.Required
	if refused != nil {
		entry.Status, entry.Code = refused.HTTPStatus(), refused.Code
	} else if request.layer != "" {
		token := s.world.Seal(
			store.Sealed{Purpose: "layer", Session: request.layer, Expires: now.Add(layerURLLifetime).Unix()},
		)
		redirect = "https://" + s.world.LayersHost() + "/" + url.PathEscape(
			request.layer,
		) + "?X-Amz-Signature=" + url.QueryEscape(token)
	}
	s.remember(entry)
	return redirect, refused
}

// useRepository checks the permission for the action on a repository, and that the repository exists.
func useRepository(c *api.Call, name string) error {
	var refused *wire.Error
	if err := c.Allow(api.Target{ARN: c.RepositoryARN(name)}); errors.As(err, &refused) {
		return &wire.Error{Code: "DENIED", Message: refused.Message, Status: http.StatusForbidden}
	}
	if store.Find(c.Repositories, name) == nil {
		message := fmt.Sprintf(
			"The repository with name '%s' does not exist in the registry with id '%s'", name, c.Account,
		)
		return &wire.Error{Code: "NAME_UNKNOWN", Message: message, Status: http.StatusNotFound}
	}
	return nil
}

// refuse sends an error as registries do (OCI distribution specification, "Error Codes").
func refuse(w http.ResponseWriter, e *wire.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	type entry struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.NewEncoder(w).
		Encode(map[string][]entry{"errors": {{e.Code, e.Message}}})
	// fails if the client has closed the connection
}

// serveLayer is the download from a URL that the registry returned. Its signature is the permission.
func (s *Simulator) serveLayer(w http.ResponseWriter, r *http.Request, blobs registry.BlobHandler) {
	digest := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	claims, ok := s.world.Unseal(r.URL.Query().Get("X-Amz-Signature"), "layer")
	ok = ok && claims.Session == digest && s.now().Unix() < claims.Expires
	s.mu.Unlock()
	if !ok {
		http.Error(w, "AccessDenied", http.StatusForbidden)
		return
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	content, err := blobs.Get(r.Context(), "", hash)
	if err != nil {
		http.Error(w, "NoSuchKey", http.StatusNotFound)
		return
	}
	defer func() { _ = content.Close() }()
	data, err := io.ReadAll(content)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}
