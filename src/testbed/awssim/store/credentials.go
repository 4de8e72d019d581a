package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Sealed is the content of a metadata token or a session token; the seal makes it unforgeable.
type Sealed struct {
	Purpose  string `json:"p"` // metadata, session, registry or layer
	Instance string `json:"i"`
	Role     string `json:"r,omitempty"`
	// name of an assumed role's session; default the instance's id. For a layer: its digest
	Session string `json:"s,omitempty"`
	User    string `json:"u,omitempty"` // of the registry, if it is no role
	Issued  int64  `json:"t"`
	Expires int64  `json:"e"`
}

// MAC authenticates the parts with the world's secret.
func (w *World) MAC(parts ...string) []byte {
	h := hmac.New(sha256.New, w.Secret)
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// Seal returns a token that Unseal reads.
func (w *World) Seal(s Sealed) string {
	body, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("awssim: seal: %v", err))
	}
	return base64.URLEncoding.EncodeToString(append(w.MAC("seal", string(body)), body...))
}

// Unseal returns false for anything that this world did not seal for the purpose.
func (w *World) Unseal(token, purpose string) (s Sealed, ok bool) {
	data, err := base64.URLEncoding.DecodeString(token)
	if err != nil || len(data) < sha256.Size {
		return s, false
	}
	body := data[sha256.Size:]
	if !hmac.Equal(data[:sha256.Size], w.MAC("seal", string(body))) || json.Unmarshal(body, &s) != nil {
		return s, false
	}
	return s, s.Purpose == purpose
}

// Credentials are a role's credentials as instance metadata returns them.
type Credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	Issued, Expires                            time.Time
}

// RoleCredentials returns the same credentials for half of their lifetime, and then new ones. Each instance rotates at
// different times.
func (w *World) RoleCredentials(i *Instance, role string, now time.Time) Credentials {
	lifetime := time.Duration(w.Settings.CredentialLifetime)
	period := max(lifetime/2, time.Second)
	issued := i.LaunchTime.Add(now.Sub(i.LaunchTime).Truncate(period))
	token := w.Seal(
		Sealed{
			Purpose:  "session",
			Instance: i.ID,
			Role:     role,
			Issued:   issued.Unix(),
			Expires:  issued.Add(lifetime).Unix(),
		},
	)
	c := Credentials{SessionToken: token, Issued: issued, Expires: issued.Add(lifetime)}
	c.AccessKeyID, c.SecretAccessKey = w.SessionKey(token)
	return c
}

// SessionKey is the access key that belongs to a session token.
func (w *World) SessionKey(token string) (id, secret string) {
	id = "ASIA" + base32.StdEncoding.EncodeToString(w.MAC("id", token))[:16]
	return id, base64.StdEncoding.EncodeToString(w.MAC("secret", token))[:40]
}

// UniqueID is the stable unique id of a user, role or instance profile.
func (w *World) UniqueID(prefix, name string) string {
	return prefix + base32.StdEncoding.EncodeToString(w.MAC("unique", prefix, name))[:17]
}

// ARN is the ARN of a resource of the account; region is "" for global services.
func (w *World) ARN(service, region, resource string) string {
	return strings.Join([]string{"arn", w.Partition, service, region, w.Account, resource}, ":")
}
