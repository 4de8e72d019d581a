package templates

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	issuerURL  = "https://prod-issuer.s3.eu-central-1.amazonaws.com/prod"
	readerRole = "arn:aws:iam::123456789012:role/team/reader"
)

// applyPodRoles applies the manifests of the job pod-roles, as kubernetes-addons does.
func applyPodRoles(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	applyRendered(t, cluster, mustRender(t, "pod-roles", inputFor(t, "pod-roles")), "10-pods.yml")
}

// newAccount creates a ServiceAccount with annotations of eks.amazonaws.com.
func newAccount(t *testing.T, cluster *kubetest.Cluster, name string, annotations map[string]string) error {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for key, value := range annotations {
		account.Annotations["eks.amazonaws.com/"+key] = value
	}
	_, err := cluster.Admin().CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
	return err
}

// TestRefusedKeysAreNotPublished: pre-start publishes only what pre-start of kube-apiserver, which runs at the same
// time, does not refuse. Without the key with which other API servers sign, AWS would refuse the pods of the cluster.
func TestRefusedKeysAreNotPublished(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	calls := func(job, program string) string {
		t.Helper()
		files := map[string][]byte{
			"packages/helpers/bin/kube-tools":    []byte("#!/bin/bash\necho \"$*\" >>" + root + "/calls\n" + program),
			"packages/helpers/bin/kube-launcher": []byte("#!/bin/bash\n"),
			"pre-start":                          below(root, mustRender(t, job, inputFor(t, job))["bin/pre-start"]),
		}
		for path, content := range files {
			path = filepath.Join(root, path)
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o755),
			); err != nil {
				t.Fatal(err)
			}
		}
		err := exec.CommandContext(t.Context(), filepath.Join(root, "pre-start")).Run()
		if refuses := program != ""; refuses != (err != nil) {
			t.Errorf("pre-start of %s with kube-tools that does %q: %v", job, program, err)
		}
		content, err := os.ReadFile(filepath.Join(root, "calls"))
		if err := errors.Join(err, os.Remove(filepath.Join(root, "calls"))); err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	checks := func(calls string) []string {
		return slices.DeleteFunc(strings.Split(calls, "\n"), func(call string) bool {
			return !strings.HasPrefix(call, "check-rotation ")
		})
	}
	want := checks(calls("kube-apiserver", ""))
	accepted := calls("pod-roles", "")
	if got := checks(accepted); len(got) != 1 || !slices.Equal(got, want) {
		t.Errorf("pre-start of pod-roles checks\n%q, that of kube-apiserver\n%q", got, want)
	}
	if !strings.Contains(accepted, "publish-issuer") {
		t.Errorf("nothing is published: %s", accepted)
	}
	if got := calls("pod-roles", `[[ $1 != check-rotation ]]`); strings.Contains(got, "publish-issuer") {
		t.Errorf("refused keys are published: %s", got)
	}
}

// TestPodRolesAreOnVMsOfTheAPIServer: elsewhere pre-start would have nothing to compare the keys with.
func TestPodRolesAreOnVMsOfTheAPIServer(t *testing.T) {
	in := inputFor(t, "pod-roles")
	in.Spec = values{"name": "worker", "id": "w"}
	want := "job pod-roles is on worker/w, which has no job kube-apiserver"
	if _, err := renderJob(t, "pod-roles", in); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v lacks %q", err, want)
	}
}

// TestPodRolesStayOnWhileTheIssuerChanges: in the first deploy of a change from one published issuer to another, tokens
// of the previous one sign on, and AWS accepts them.
func TestPodRolesStayOnWhileTheIssuerChanges(t *testing.T) {
	const own, next = "https://kubernetes.default.svc.cluster.local", "https://next.s3.eu-central-1.amazonaws.com/prod"
	for name, test := range map[string]struct {
		issuer   any
		accepted []any
		want     string
	}{
		"first deploy with pod roles":  {own, []any{issuerURL}, ""},
		"the same, without a property": {nil, []any{issuerURL}, ""},
		"second deploy":                {issuerURL, []any{own}, issuerURL},
		"first deploy of a change":     {issuerURL, []any{next, own}, issuerURL},
		"second deploy of a change":    {next, []any{issuerURL, own}, next},
	} {
		t.Run(name, func(t *testing.T) {
			links := map[string]values{"pod-roles": {}, "cluster": merge(clusterLink(), values{
				"service_account": values{"issuer": test.issuer, "accepted_issuers": test.accepted},
			})}
			apply := mustRender(t, "kubernetes-addons", inputFor(t, "kubernetes-addons").linked(links))["bin/apply"]
			if got := strings.Contains(string(apply), "pod-roles"); got != (test.want != "") {
				t.Errorf("the policies are applied: %t", got)
			}
			smoke := mustRender(t, "smoke-tests", inputFor(t, "smoke-tests").linked(links))["config/config.json"]
			if got := decode[values](t, smoke)["pod_roles"].(values)["issuer"]; got != test.want {
				t.Errorf("the smoke test expects tokens of %q, want %q", got, test.want)
			}
		})
	}
}

func accountPod(account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			InitContainers:     []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers: []corev1.Container{
				{Name: "main", Image: "main:1"},
				{Name: "own", Image: "own:1", Env: []corev1.EnvVar{
					{Name: "AWS_ROLE_ARN", Value: "arn:aws:iam::123456789012:role/own"},
					{Name: "AWS_REGION", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
						FieldPath: "metadata.labels['region']",
					}}},
				}},
			},
		},
	}
}

// tryPod returns a pod as the API server would store it.
func tryPod(t *testing.T, cluster *kubetest.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	return cluster.Admin().CoreV1().Pods("default").Create(
		t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
	)
}

// environmentOf are the variables of AWS in a container, as text.
func environmentOf(c corev1.Container) map[string]string {
	found := map[string]string{}
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "AWS_") {
			found[e.Name] = e.Value
			if e.ValueFrom != nil {
				found[e.Name] = "from " + e.ValueFrom.FieldRef.FieldPath
			}
		}
	}
	return found
}

func tokenVolume(pod *corev1.Pod) *corev1.ServiceAccountTokenProjection {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "aws-iam-token" && v.Projected != nil {
			return v.Projected.Sources[0].ServiceAccountToken
		}
	}
	return nil
}

func hasTokenMount(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "aws-iam-token" && m.ReadOnly &&
			m.MountPath == "/var/run/secrets/eks.amazonaws.com/serviceaccount"
	})
}

// TestPodsGetTheRoleOfTheirServiceAccount looks at what each container of a pod gets, and that nothing else changes.
func TestPodsGetTheRoleOfTheirServiceAccount(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: issuerURL})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(newAccount(t, cluster, "reader", map[string]string{"role-arn": readerRole}))
	must(newAccount(t, cluster, "plain", nil))
	must(newAccount(t, cluster, "writer", map[string]string{
		"role-arn": "arn:aws-cn:iam::123456789012:role/writer", "audience": "other", "token-expiration": "3600",
		"sts-regional-endpoints": "false",
	}))
	must(newAccount(t, cluster, "old", map[string]string{"role-arn": "reader"})) // before the policy refuses it
	must(newAccount(t, cluster, "short", map[string]string{
		"role-arn": readerRole, "audience": "", "token-expiration": "300",
	}))
	before, err := tryPod(t, cluster, accountPod("reader"))
	must(err)
	if tokenVolume(before) != nil {
		t.Fatal("a pod gets a token without the policy")
	}
	applyPodRoles(t, cluster)

	all := map[string]string{
		"AWS_ROLE_ARN":                readerRole,
		"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
		"AWS_REGION":                  "eu-central-1", "AWS_DEFAULT_REGION": "eu-central-1",
		"AWS_STS_REGIONAL_ENDPOINTS": "regional",
	}
	pod, err := tryPod(t, cluster, accountPod("reader"))
	must(err)
	for _, c := range []corev1.Container{pod.Spec.InitContainers[0], pod.Spec.Containers[0]} {
		if got := environmentOf(c); !maps.Equal(got, all) {
			t.Errorf("container %s has %v, want %v", c.Name, got, all)
		}
	}
	own := map[string]string{
		"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/own", "AWS_REGION": "from metadata.labels['region']",
		"AWS_STS_REGIONAL_ENDPOINTS": "regional",
	}
	if got := environmentOf(pod.Spec.Containers[1]); !maps.Equal(got, own) {
		t.Errorf("a container with a role of its own has %v, want %v", got, own)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !hasTokenMount(c) || len(c.VolumeMounts) != 2 { // with that of the API's token
			t.Errorf("container %s has the mounts %v", c.Name, c.VolumeMounts)
		}
	}
	if token := tokenVolume(pod); token == nil || token.Audience != "sts.amazonaws.com" ||
		*token.ExpirationSeconds != 86400 || token.Path != "token" || len(pod.Spec.Volumes) != 2 {
		t.Errorf("the pod has the token %v in the volumes %v", token, pod.Spec.Volumes)
	}

	// A pod that has passed once does not change when it passes again, with all that it has got.
	again := pod.DeepCopy()
	again.ResourceVersion, again.UID, again.Name = "", "", ""
	again, err = tryPod(t, cluster, again)
	must(err)
	if !equality.Semantic.DeepEqual(again.Spec, pod.Spec) {
		t.Errorf("the second time, the pod is\n%v\nwant\n%v", again.Spec, pod.Spec)
	}

	pod, err = tryPod(t, cluster, accountPod("writer"))
	must(err)
	if token := tokenVolume(pod); token == nil || token.Audience != "other" || *token.ExpirationSeconds != 3600 {
		t.Errorf("with annotations, the token is %v", token)
	}
	if got := environmentOf(pod.Spec.Containers[0]); got["AWS_STS_REGIONAL_ENDPOINTS"] != "" ||
		got["AWS_ROLE_ARN"] != "arn:aws-cn:iam::123456789012:role/writer" {
		t.Errorf("with annotations, the environment is %v", got)
	}

	pod, err = tryPod(t, cluster, accountPod("short"))
	must(err)
	if token := tokenVolume(pod); token == nil || token.Audience != "sts.amazonaws.com" ||
		*token.ExpirationSeconds != 600 {
		t.Errorf("with an expiration that is older than the policy, and an empty audience, the token is %v", token)
	}

	for _, account := range []string{"plain", "old"} {
		pod, err := tryPod(t, cluster, accountPod(account))
		must(err)
		if got := environmentOf(pod.Spec.Containers[0]); len(got) > 0 || tokenVolume(pod) != nil {
			t.Errorf("a pod of ServiceAccount %s has %v", account, got)
		}
	}
	// Without the token of the API and without any volume of its own.
	bare := accountPod("reader")
	bare.Spec.AutomountServiceAccountToken = new(bool)
	pod, err = tryPod(t, cluster, bare)
	must(err)
	if len(pod.Spec.Volumes) != 1 || tokenVolume(pod) == nil || !hasTokenMount(pod.Spec.Containers[0]) {
		t.Errorf("a pod without the API's token has the volumes %v", pod.Spec.Volumes)
	}
}

// TestAnnotationsOfRolesAreChecked expects a refusal where the value is written.
func TestAnnotationsOfRolesAreChecked(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: issuerURL})
	if err := newAccount(t, cluster, "old", map[string]string{"role-arn": "reader"}); err != nil {
		t.Fatal(err)
	}
	applyPodRoles(t, cluster)
	for n, test := range []struct{ key, value, want string }{
		{"role-arn", "reader", "it must be the ARN of a role"},
		{"role-arn", "arn:aws:iam::1234:role/reader", "it must be the ARN of a role"},
		{"role-arn", "arn:aws:iam::123456789012:user/reader", "it must be the ARN of a role"},
		{"role-arn", readerRole + "\n", "it must be the ARN of a role"},
		{"token-expiration", "1h", "600 to 86400"},
		{"token-expiration", "599", "600 to 86400"},
		{"token-expiration", "86401", "600 to 86400"},
		{"token-expiration", "99999999999999999999", "600 to 86400"},
		{"sts-regional-endpoints", "yes", "true or false"},
		{"role-arn", "arn:aws:iam::123456789012:role/teams/", "it must be the ARN of a role"},
		{"role-arn", readerRole, ""},
		{"role-arn", "arn:aws:iam::123456789012:role/teams/blue#1/reader", ""},
		{"role-arn", "", ""},
		{"token-expiration", "600", ""},
		{"sts-regional-endpoints", "true", ""},
		{"anything", "else", ""},
	} {
		err := newAccount(t, cluster, fmt.Sprint("account-", n), map[string]string{test.key: test.value})
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %q is refused: %v", test.key, test.value, err)
		case test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), fmt.Sprintf("eks.amazonaws.com/%s is %q", test.key, test.value))):
			t.Errorf("%s: %q: %v, want %q", test.key, test.value, err, test.want)
		}
	}
	// The friend: someone who changes something else in an account that was there before.
	accounts := cluster.Admin().CoreV1().ServiceAccounts("default")
	old, err := accounts.Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Labels = map[string]string{"team": "red"}
	if _, err := accounts.Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a label of an account with an old annotation: %v", err)
	}
}

// TestManyServiceAccounts measures what a pod costs in a namespace with a thousand ServiceAccounts.
func TestManyServiceAccounts(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("set SOAK=1")
	}
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: issuerURL})
	create := func(from, to int, annotations map[string]string) {
		for n := from; n < to; n++ {
			name := fmt.Sprintf("account-%04d", n)
			if err := newAccount(t, cluster, name, annotations); err != nil {
				t.Fatal(err)
			}
		}
	}
	role := map[string]string{"role-arn": readerRole}
	measure := func(what string) time.Duration {
		const pods = 50
		start := time.Now()
		for range pods {
			if _, err := tryPod(t, cluster, accountPod("account-0000")); err != nil {
				t.Fatal(err)
			}
		}
		each := time.Since(start) / pods
		t.Logf("%s: %s for a pod", what, each.Round(10*time.Microsecond))
		return each
	}
	create(0, 1, role)
	measure("without the policy")
	applyPodRoles(t, cluster)
	measure("1 ServiceAccount")
	create(1, 1000, nil)
	measure("1 ServiceAccount with a role, 999 without")
	create(1000, 1100, role)
	measure("101 with a role, 999 without")
	create(1100, 2000, role)
	measure("1,001 with a role, 999 without")
}

// TestServiceAccountsWithoutRoleAreLabelled: those cost the pods of their namespace nothing, until they get a role.
func TestServiceAccountsWithoutRoleAreLabelled(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: issuerURL})
	for name, annotations := range map[string]map[string]string{"old-plain": nil, "old": {"role-arn": readerRole}} {
		if err := newAccount(t, cluster, name, annotations); err != nil {
			t.Fatal(err)
		}
	}
	applyPodRoles(t, cluster)
	accounts := cluster.Admin().CoreV1().ServiceAccounts("default")
	label := func(name string) string {
		t.Helper()
		account, err := accounts.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return account.Labels["pod-roles.kubernetes.bosh.io/role"]
	}
	patch := func(name, change string) {
		t.Helper()
		if _, err := accounts.Patch(
			t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{},
		); err != nil {
			t.Fatal(err)
		}
	}
	hasRole := func(name string, want bool) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, fmt.Sprintf("a pod of %s has a role: %v", name, want), func() error {
			pod, err := tryPod(t, cluster, accountPod(name))
			if err == nil && (tokenVolume(pod) != nil) != want {
				err = fmt.Errorf("token %v", tokenVolume(pod))
			}
			return err
		})
	}
	hasRole("old", true)
	if err := newAccount(t, cluster, "plain", nil); err != nil {
		t.Fatal(err)
	}
	const annotated = `{"metadata": {"annotations": {"eks.amazonaws.com/role-arn": %s}, "labels": {"a": "b"}}}`
	role := fmt.Sprintf(annotated, strconv.Quote(readerRole))
	for _, name := range []string{"plain", "old-plain"} {
		if name == "old-plain" {
			patch(name, `{"metadata": {"annotations": {"example.com/a": "b"}}}`)
		}
		if got := label(name); got != "none" {
			t.Errorf("ServiceAccount %s is labeled %q", name, got)
		}
		hasRole(name, false)
		patch(name, role)
		if got := label(name); got != "" {
			t.Errorf("with a role, ServiceAccount %s is labeled %q", name, got)
		}
		hasRole(name, true)
		patch(name, `{"metadata": {"labels": {"pod-roles.kubernetes.bosh.io/role": "none"}}}`)
		hasRole(name, true)
		patch(name, fmt.Sprintf(annotated, "null"))
		if got := label(name); got != "none" {
			t.Errorf("without its role, ServiceAccount %s is labeled %q", name, got)
		}
		hasRole(name, false)
	}
}

// TestNewServiceAccountsAreSeen creates pods right after their ServiceAccounts.
func TestNewServiceAccountsAreSeen(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: issuerURL})
	applyPodRoles(t, cluster)
	missed := 0
	for n := range 100 {
		name := fmt.Sprint("new-", n)
		if err := newAccount(t, cluster, name, map[string]string{"role-arn": readerRole}); err != nil {
			t.Fatal(err)
		}
		pod, err := tryPod(t, cluster, accountPod(name))
		if err != nil {
			t.Fatal(err)
		}
		if tokenVolume(pod) == nil {
			missed++
		}
		eventually.Succeeds(t, 30*time.Second, "the new ServiceAccount is seen", func() error {
			pod, err := tryPod(t, cluster, accountPod(name))
			if err == nil && tokenVolume(pod) == nil {
				err = fmt.Errorf("no token")
			}
			return err
		})
	}
	t.Logf("%d of 100 pods that were created right after their ServiceAccount have no token", missed)
}
