package awssim

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iamapi"
	"kubernetes-release/testbed/awssim/store"
)

// maxSkew is the maximum difference between a request's date and the simulation's clock.
const maxSkew = 5 * time.Minute

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
		return a, api.ErrNoAuthentication
	}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			parts := strings.Split(value, "/")
			if len(parts) != 5 || parts[4] != "aws4_request" {
				return a, api.ErrNoAuthentication
			}
			a.keyID, a.date, a.region, a.service = parts[0], parts[1], parts[2], parts[3]
		case "SignedHeaders":
			a.signedHeaders = strings.Split(value, ";")
		case "Signature":
			a.signature = value
		}
	}
	if a.keyID == "" || a.signature == "" || !slices.Contains(a.signedHeaders, "host") {
		return a, api.ErrNoAuthentication
	}
	return a, nil
}

// authenticate verifies a request's signature and returns who signed it. The caller must hold the lock.
func (s *Simulator) authenticate(r *http.Request, a authorization, body []byte) (*api.Principal, error) {
	now := s.now()
	p, secret, err := identify(s.world, a.keyID, r.Header.Get("X-Amz-Security-Token"), now)
	if err != nil {
		return nil, err
	}
	// AWS requires that every header of its own is signed.
	for name := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(a.signedHeaders, name) {
			return nil, api.ErrSignature
		}
	}
	date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case err != nil || date.Format("20060102") != a.date:
		return nil, api.ErrSignature
	case now.Sub(date) > maxSkew:
		return nil, api.ErrPast
	case date.Sub(now) > maxSkew:
		return nil, api.ErrFuture
	case a.region != s.world.Region || !hmac.Equal([]byte(a.sign(r, body, secret)), []byte(a.signature)):
		return nil, api.ErrSignature
	}
	return p, nil
}

// identify maps an access key to its principal and secret.
func identify(w *store.World, keyID, token string, now time.Time) (*api.Principal, string, error) {
	for _, k := range w.StaticKeys {
		if k.AccessKeyID == keyID && token == "" {
			return userPrincipal(w, k), k.SecretAccessKey, nil
		}
	}
	claims, ok := w.Unseal(token, "session")
	if !ok {
		return nil, "", api.ErrUnknownKey
	}
	id, secret := w.SessionKey(token)
	if id != keyID {
		return nil, "", api.ErrUnknownKey
	}
	if now.Unix() >= claims.Expires {
		return nil, "", api.ErrExpired
	}
	return sealedPrincipal(w, claims), secret, nil
}

func userPrincipal(w *store.World, k store.StaticKey) *api.Principal {
	return &api.Principal{
		ARN:      w.ARN("iam", "", "user/"+k.User),
		UserID:   w.UniqueID("AIDA", k.User),
		User:     k.User,
		Policies: iamapi.Policies(k),
	}
}

// sealedPrincipal is the owner of a token, with the policies that it has now.
func sealedPrincipal(w *store.World, claims store.Sealed) *api.Principal {
	for _, k := range w.StaticKeys {
		if k.User == claims.User {
			return userPrincipal(w, k)
		}
	}
	session := cmp.Or(claims.Session, claims.Instance)
	p := &api.Principal{
		ARN:      w.ARN("sts", "", "assumed-role/"+claims.Role+"/"+session),
		UserID:   w.UniqueID("AROA", claims.Role) + ":" + session,
		Instance: claims.Instance,
		Role:     claims.Role,
		Session:  claims.Session,
	}
	if role := store.Find(w.Roles, claims.Role); role != nil {
		p.Policies = w.PoliciesOf(role)
	}
	return p
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
