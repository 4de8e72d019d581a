package awssim

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/iam"
)

// maxSkew is the maximum difference between a request's date and the simulation's clock.
const maxSkew = 5 * time.Minute

// sealed is the content of a metadata token or a session token; the seal makes it unforgeable.
type sealed struct {
	Purpose  string `json:"p"` // metadata, session, registry or layer
	Instance string `json:"i"`
	Role     string `json:"r,omitempty"`
	Session  string `json:"s,omitempty"` // name of an assumed role's session; default the instance's id. For a layer: its digest
	User     string `json:"u,omitempty"` // of the registry, if it is no role
	Issued   int64  `json:"t"`
	Expires  int64  `json:"e"`
}

func (w *World) mac(parts ...string) []byte {
	h := hmac.New(sha256.New, w.Secret)
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

func (w *World) seal(s sealed) string {
	body, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("awssim: seal: %v", err))
	}
	return base64.URLEncoding.EncodeToString(append(w.mac("seal", string(body)), body...))
}

// unseal returns false for anything that this world did not seal for the purpose.
func (w *World) unseal(token, purpose string) (s sealed, ok bool) {
	data, err := base64.URLEncoding.DecodeString(token)
	if err != nil || len(data) < sha256.Size {
		return s, false
	}
	body := data[sha256.Size:]
	if !hmac.Equal(data[:sha256.Size], w.mac("seal", string(body))) || json.Unmarshal(body, &s) != nil {
		return s, false
	}
	return s, s.Purpose == purpose
}

// credentials are a role's credentials as instance metadata returns them.
type credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	Issued, Expires                            time.Time
}

// roleCredentials returns the same credentials for half of their lifetime, and then new ones. Each instance rotates at different
// times.
func (w *World) roleCredentials(i *Instance, role string, now time.Time) credentials {
	lifetime := time.Duration(w.Settings.CredentialLifetime)
	period := max(lifetime/2, time.Second)
	issued := i.LaunchTime.Add(now.Sub(i.LaunchTime).Truncate(period))
	token := w.seal(sealed{Purpose: "session", Instance: i.ID, Role: role, Issued: issued.Unix(), Expires: issued.Add(lifetime).Unix()})
	c := credentials{SessionToken: token, Issued: issued, Expires: issued.Add(lifetime)}
	c.AccessKeyID, c.SecretAccessKey = w.sessionKey(token)
	return c
}

func (w *World) sessionKey(token string) (id, secret string) {
	id = "ASIA" + base32.StdEncoding.EncodeToString(w.mac("id", token))[:16]
	return id, base64.StdEncoding.EncodeToString(w.mac("secret", token))[:40]
}

// principal is the identity that makes a request.
type principal struct {
	ARN, UserID string
	Role        string // name
	Session     string // of an assumed role, if it is not an instance's
	User        string // name, if it is no role
	Instance    string // for roles of instances
	Policies    []iam.Policy
}

// Reasons why authentication fails; each service has its own error responses for them.
var (
	errNoAuthentication = errors.New("request is not signed")
	errUnknownKey       = errors.New("the access key or its session token is not valid")
	errExpired          = errors.New("the session token has expired")
	errSignature        = errors.New("the signature does not match")
	errPast             = errors.New("the request's date is too far in the past")
	errFuture           = errors.New("the request's date is too far in the future")
)

// authorization is a parsed SigV4 Authorization header.
type authorization struct {
	keyID, date, region, service string
	signedHeaders                []string
	signature                    string
}

const algorithm = "AWS4-HMAC-SHA256"

func parseAuthorization(header string) (a authorization, err error) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return a, errNoAuthentication
	}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			parts := strings.Split(value, "/")
			if len(parts) != 5 || parts[4] != "aws4_request" {
				return a, errNoAuthentication
			}
			a.keyID, a.date, a.region, a.service = parts[0], parts[1], parts[2], parts[3]
		case "SignedHeaders":
			a.signedHeaders = strings.Split(value, ";")
		case "Signature":
			a.signature = value
		}
	}
	if a.keyID == "" || a.signature == "" || !slices.Contains(a.signedHeaders, "host") {
		return a, errNoAuthentication
	}
	return a, nil
}

// authenticate verifies a request's signature and returns who signed it. The caller must hold the lock.
func (s *Simulator) authenticate(r *http.Request, a authorization, body []byte) (*principal, error) {
	now := s.now()
	p, secret, err := s.world.identify(a.keyID, r.Header.Get("X-Amz-Security-Token"), now)
	if err != nil {
		return nil, err
	}
	// AWS requires that every header of its own is signed.
	for name := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(a.signedHeaders, name) {
			return nil, errSignature
		}
	}
	date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case err != nil || date.Format("20060102") != a.date:
		return nil, errSignature
	case now.Sub(date) > maxSkew:
		return nil, errPast
	case date.Sub(now) > maxSkew:
		return nil, errFuture
	case a.region != s.world.Region || !hmac.Equal([]byte(a.sign(r, body, secret)), []byte(a.signature)):
		return nil, errSignature
	}
	return p, nil
}

// identify maps an access key to its principal and secret.
func (w *World) identify(keyID, token string, now time.Time) (*principal, string, error) {
	for _, k := range w.StaticKeys {
		if k.AccessKeyID == keyID && token == "" {
			return w.userPrincipal(k), k.SecretAccessKey, nil
		}
	}
	claims, ok := w.unseal(token, "session")
	if !ok {
		return nil, "", errUnknownKey
	}
	id, secret := w.sessionKey(token)
	if id != keyID {
		return nil, "", errUnknownKey
	}
	if now.Unix() >= claims.Expires {
		return nil, "", errExpired
	}
	return w.sealedPrincipal(claims), secret, nil
}

func (w *World) userPrincipal(k StaticKey) *principal {
	return &principal{ARN: w.arn("iam", "", "user/"+k.User), UserID: w.uniqueID("AIDA", k.User), User: k.User, Policies: k.policies()}
}

// sealedPrincipal is the owner of a token, with the policies that it has now.
func (w *World) sealedPrincipal(claims sealed) *principal {
	for _, k := range w.StaticKeys {
		if k.User == claims.User {
			return w.userPrincipal(k)
		}
	}
	session := cmp.Or(claims.Session, claims.Instance)
	p := &principal{
		ARN:      w.arn("sts", "", "assumed-role/"+claims.Role+"/"+session),
		UserID:   w.uniqueID("AROA", claims.Role) + ":" + session,
		Instance: claims.Instance,
		Role:     claims.Role,
		Session:  claims.Session,
	}
	if role := find(w.Roles, claims.Role); role != nil {
		p.Policies = w.policiesOf(role)
	}
	return p
}

// uniqueID is the stable unique id of a user, role or instance profile.
func (w *World) uniqueID(prefix, name string) string {
	return prefix + base32.StdEncoding.EncodeToString(w.mac("unique", prefix, name))[:17]
}

// arn is the ARN of a resource of the account; region is "" for global services.
func (w *World) arn(service, region, resource string) string {
	return strings.Join([]string{"arn", w.Partition, service, region, w.Account, resource}, ":")
}

// sign computes the expected signature of a request, as Signature Version 4 defines it.
func (a authorization) sign(r *http.Request, body []byte, secret string) string {
	digest := sha256.Sum256(body)
	var headers strings.Builder
	for _, name := range a.signedHeaders {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&headers, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	canonical := strings.Join([]string{
		r.Method, path, strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"), headers.String(),
		strings.Join(a.signedHeaders, ";"), hex.EncodeToString(digest[:]),
	}, "\n")
	hash := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{a.date, a.region, a.service, "aws4_request"}, "/")
	toSign := strings.Join([]string{algorithm, r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(hash[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{a.date, a.region, a.service, "aws4_request", toSign} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// redact removes secrets, which must not be recorded.
func redact(form url.Values) map[string]string {
	params := map[string]string{}
	for name := range form {
		switch name {
		case "Action", "Version", "DryRun":
		case "UserData":
			params[name] = "(not recorded)"
		default:
			params[name] = form.Get(name)
		}
	}
	return params
}
