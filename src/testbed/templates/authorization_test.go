package templates

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/control/jobfiles"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const filesOfAPIServer = "/var/vcap/jobs/kube-apiserver/config/files"

// TestAuthorizationWebhooks lets the real API server ask webhooks before and after Node and RBAC: one that denies and
// permits, and one that is down, with each failurePolicy. Then it reads the file again while it runs.
func TestAuthorizationWebhooks(t *testing.T) {
	t.Parallel()
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Denied = review.Spec.User == "denied"
		review.Status.Allowed = review.Spec.User == "permitted"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()

	kubeconfig := func(server string) string {
		return `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "` + server +
			`"}}], contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}`
	}
	authorizer := func(name, file, policy, user string) values {
		return values{"type": "Webhook", "name": name, "webhook": values{
			"timeout": "1s", "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
			"failurePolicy": policy, "unauthorizedTTL": "1s",
			"connectionInfo":  values{"type": "KubeConfigFile", "kubeConfigFile": file},
			"matchConditions": []any{values{"expression": "request.user == '" + user + "'"}},
		}}
	}
	node, rbac := values{"type": "Node", "name": "node"}, values{"type": "RBAC", "name": "rbac"}
	authorizers := []any{
		authorizer("deny", "up.yaml", "Deny", "denied"),
		authorizer("down-denies", "down.yaml", "Deny", "down-denied"),
		authorizer("down-ignored", "down.yaml", "NoOpinion", "down-ignored"),
		node, rbac, authorizer("permit", "up.yaml", "NoOpinion", "permitted"),
	}
	dir := t.TempDir()
	render := func(authorizers ...any) []byte {
		in := inputFor(t, "kube-apiserver").with(values{
			"authorization": values{"authorizers": authorizers},
			"files":         values{"up.yaml": kubeconfig(webhook.URL), "down.yaml": kubeconfig(down.URL)},
		})
		rendered := mustRender(t, "kube-apiserver", in)
		writeAll(t, dir, map[string][]byte{"files.json": rendered["config/files.json"]})
		if err := jobfiles.Write(filepath.Join(dir, "files.json"), filepath.Join(dir, "files")); err != nil {
			t.Fatal(err)
		}
		config := rendered["config/authorization.json"]
		return bytes.ReplaceAll(config, []byte(filesOfAPIServer), []byte(filepath.Join(dir, "files")))
	}
	path := filepath.Join(dir, "authorization.json")
	// replace puts the file in place at once, as the API server reads it as soon as it changes.
	replace := func(config []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", config, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	replace(render(authorizers...))
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--authorization-config=" + path}})
	admin := cluster.Admin()
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operators"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "operators"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const permitted = metav1.StatusReason("")
	expect := func(user string, want metav1.StatusReason, groups ...string) {
		t.Helper()
		client := cluster.ClientFor(user, groups...)
		eventually.Succeeds(t, time.Minute, user+" gets the expected answer", func() error {
			_, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if got := apierrors.ReasonForError(err); got != want || (err == nil) != (want == permitted) {
				return fmt.Errorf("the list of config maps has the error %s, not %q", fmt.Sprint(err), want)
			}
			return nil
		})
	}
	expect("operator", permitted, "operators")
	expect("denied", metav1.StatusReasonForbidden, "operators")
	expect("down-denied", metav1.StatusReasonInternalError, "operators")
	expect("down-ignored", permitted, "operators")
	expect("permitted", permitted)
	expect("stranger", metav1.StatusReasonForbidden)
	expect("denied", permitted, "system:masters")

	reloads := func(status string, count int) {
		t.Helper()
		want := fmt.Sprintf(`status="%s"} %d`, status, count)
		eventually.Succeeds(t, 3*time.Minute, "reload "+want, func() error {
			metrics, err := admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(metrics)) {
				if strings.HasPrefix(line, "apiserver_authorization_config_controller_automatic_reloads_total{") &&
					strings.Contains(line, want) {
					return nil
				}
			}
			return errors.New("the API server did not count it")
		})
	}
	replace(render(node, rbac))
	reloads("success", 1)
	expect("denied", permitted, "operators")
	expect("permitted", metav1.StatusReasonForbidden)
	// Without RBAC the file is refused, and the one before remains.
	replace([]byte(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
"authorizers": [{"type": "Node", "name": "node"}]}`))
	reloads("failure", 1)
	expect("operator", permitted, "operators")
	expect("stranger", metav1.StatusReasonForbidden)
}
