package acceptance

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issuer is an OpenID Connect provider, at an address that VMs reach.
type issuer struct {
	url, ca string
	key     *rsa.PrivateKey
}

func (l *lab) newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	encode := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	i.url, i.ca = l.serve(t, mux)
	return i
}

// token returns a signed id token.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]any{"alg": "RS256", "kid": "1"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// ops writes an ops-file such as add-oidc.yml with this issuer, and its certificate.
func (i *issuer) ops(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal([]any{
		map[string]any{
			"type": "replace",
			"path": "/instance_groups/name=control/jobs/name=kube-apiserver/properties/authentication?/jwt",
			"value": []any{
				map[string]any{
					"issuer": map[string]any{
						"url":                  i.url,
						"audiences":            []string{"kubernetes"},
						"certificateAuthority": i.ca,
					},
					"claimMappings": map[string]any{
						"username": map[string]any{
							"claim":  "email",
							"prefix": "oidc:",
						},
						"groups": map[string]any{"claim": "groups", "prefix": "oidc:"},
					},
					"userValidationRules": []any{
						map[string]any{
							"expression": "!user.username.startsWith('system:')",
							"message":    "the prefix system belongs to Kubernetes",
						},
					},
				},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "oidc.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkSignIn signs in through the load balancer with a token of the issuer, which kubectl gets from a plugin in place
// of kubelogin.
func (l *lab) checkSignIn(t *testing.T, p *laptop, i *issuer) {
	p.write(t, "bin/kubectl-oidc_login", `#!/bin/bash
[[ $* == "get-token --oidc-issuer-url=`+i.url+` --oidc-client-id=kubernetes --oidc-extra-scope=groups" ]] ||
  { echo "arguments: $*" >&2; exit 1; }
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {"token": "$(cat `+p.dir+`/token)"}}
END
`, 0o755)
	kubeconfig := p.writeKubeconfig(
		t,
		"https://"+balancerName+":6443",
		"--oidc-issuer",
		i.url,
		"--oidc-client-id",
		"kubernetes",
		"--oidc-scope",
		"groups",
	)
	claims := map[string]any{
		"iss":    i.url,
		"aud":    "kubernetes",
		"email":  "ada@example.com",
		"groups": []string{"shop"},
		"exp":    time.Now().Add(time.Hour).Unix(),
	}
	p.write(t, "token", i.token(t, claims), 0o600)
	l.mustKubectl(t, "", "create", "clusterrolebinding", "oidc-shop", "--clusterrole=view", "--group=oidc:shop")
	kubectl := func(arguments ...string) (string, error) {
		return p.run(append([]string{"kubectl", "--kubeconfig", kubeconfig}, arguments...)...)
	}
	waitFor(
		t,
		time.Minute,
		"sign-in with a token",
		func() error { // an API server tries every ten seconds to read the issuer's keys
			out, err := kubectl(
				"auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
			)
			if err == nil && out != `oidc:ada@example.com ["oidc:shop","system:authenticated"]` {
				err = errors.New("another user")
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	)
	if out, err := kubectl("get", "pods", "-A"); err != nil {
		t.Errorf("what the group's role allows: %v\n%s", err, out)
	}
	if out, err := kubectl("get", "secrets", "-A"); err == nil ||
		!strings.Contains(out, `User "oidc:ada@example.com" cannot list resource "secrets"`) {
		t.Errorf("what the group's role does not allow: %v\n%s", err, out)
	}
	claims["exp"] = time.Now().Add(-time.Hour).Unix()
	p.write(t, "token", i.token(t, claims), 0o600)
	if out, err := kubectl("get", "pods", "-A"); err == nil ||
		!strings.Contains(out, "Unauthorized") && !strings.Contains(out, "logged in") {
		t.Errorf("with an expired token: %v\n%s", err, out)
	}
}
