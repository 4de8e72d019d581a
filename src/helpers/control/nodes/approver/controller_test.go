package approver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const timeout = 30 * time.Second

// permissions are those that the package's documentation lists.
func permissions(user string) []any {
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	name := metav1.ObjectMeta{Name: leaseName}
	inSystem := metav1.ObjectMeta{Name: leaseName, Namespace: metav1.NamespaceSystem}
	inDefault := metav1.ObjectMeta{Name: leaseName, Namespace: metav1.NamespaceDefault}
	return []any{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{"certificates.k8s.io"},
				Resources: []string{"certificatesigningrequests"},
				Verbs:     []string{"create", "get", "list", "watch"},
			},
			{
				APIGroups: []string{"certificates.k8s.io"},
				Resources: []string{"certificatesigningrequests/approval"},
				Verbs:     []string{"update"},
			},
			{
				APIGroups:     []string{"certificates.k8s.io"},
				Resources:     []string{"signers"},
				ResourceNames: []string{"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"},
				Verbs:         []string{"approve"},
			},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name,
			Subjects:   subjects,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: leaseName},
		},
		&rbacv1.Role{ObjectMeta: inDefault, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: inDefault,
			Subjects:   subjects,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: leaseName},
		},
		&rbacv1.Role{ObjectMeta: inSystem, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{
				APIGroups:     []string{"coordination.k8s.io"},
				Resources:     []string{"leases"},
				ResourceNames: []string{leaseName},
				Verbs:         []string{"get", "update"},
			},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: inSystem,
			Subjects:   subjects,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: leaseName},
		},
	}
}

func grant(t *testing.T, admin kubernetes.Interface, objects []any) {
	t.Helper()
	ctx, options := context.Background(), metav1.CreateOptions{}
	for _, object := range objects {
		var err error
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = admin.RbacV1().ClusterRoles().Create(ctx, o, options)
		case *rbacv1.ClusterRoleBinding:
			_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, o, options)
		case *rbacv1.Role:
			_, err = admin.RbacV1().Roles(o.Namespace).Create(ctx, o, options)
		case *rbacv1.RoleBinding:
			_, err = admin.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, options)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func setAddresses(
	t *testing.T, admin kubernetes.Interface, name string, isReady bool, addresses ...corev1.NodeAddress,
) {
	t.Helper()
	ctx, nodes := context.Background(), admin.CoreV1().Nodes()
	object := registered(name, isReady, addresses...)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			current, err = nodes.Create(ctx, object, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		current.Status = object.Status
		_, err = nodes.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// state returns "pending", "Approved: …" or "Denied: …".
func state(t *testing.T, admin kubernetes.Interface, name string) string {
	t.Helper()
	request, err := admin.CertificatesV1().
		CertificateSigningRequests().
		Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range request.Status.Conditions {
		return string(condition.Type) + ": " + condition.Reason
	}
	return "pending"
}

// refusals announces that a request was forbidden.
type refusals struct {
	next      http.RoundTripper
	forbidden chan<- struct{}
}

func (r refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		select {
		case r.forbidden <- struct{}{}:
		default:
		}
	}
	return response, err
}

// TestAgainstRealAPIServer sends requests as different users, since the API server sets the requester itself, and
// checks the decisions of a controller that has the documented permissions only.
func TestAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	admin := cluster.Admin()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	setAddresses(t, admin, "node-a", true, internalIP("10.0.0.1"))
	setAddresses(t, admin, "node-b", true, internalIP("10.0.0.2"))
	machines := machineList{
		"node-a":    vm("node-a", "10.0.0.1"),
		"node-b":    vm("node-b", "10.0.0.2"),
		"node-late": vm("node-late", "10.0.0.3"),
	}

	forbidden(t, cluster, "another node's subject", kubeletWith(func(a *ask) { a.name = "system:node:node-b" }))
	forbidden(
		t, cluster, "another node's client certificate", renewalWith(func(a *ask) { a.name = "system:node:node-b" }),
	)
	requests := requestsOfNodes(t, cluster)

	const user = "system:node-controller"
	config, refused := cluster.ConfigFor(user), make(chan struct{}, 1)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusals{next, refused} })
	approver, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ended := make(chan error, 2)
	var firstMetrics, secondMetrics Metrics
	first, stopFirst := context.WithCancel(ctx)
	go func() { ended <- RunElected(first, approver, machines, "one", &firstMetrics, log) }()
	select { // As in a new cluster, the permissions are granted after the controller has started.
	case <-refused:
	case <-time.After(timeout):
		t.Fatal("no request was refused without permissions")
	}
	grant(t, admin, permissions(user))

	for _, name := range []string{"own address", "renewal", "administrators' group", "URI"} {
		eventually.Succeeds(t, timeout, "decision on "+name, func() error {
			if state(t, admin, requests[name].name) == "pending" {
				return errors.New("still pending")
			}
			return nil
		})
	}
	eventually.Succeeds(t, timeout, "Event about the pending request", func() error {
		return hasEvent(ctx, admin, requests["another node's address"].name, "10.0.0.2")
	})
	for name, request := range requests {
		if got := state(t, admin, request.name); got != request.want {
			t.Errorf("%s: got %s, want %s", name, got, request.want)
		}
	}
	eventually.Succeeds(t, timeout, "signed certificate", func() error {
		signed, err := admin.CertificatesV1().
			CertificateSigningRequests().
			Get(ctx, requests["own address"].name, metav1.GetOptions{})
		if err == nil && len(signed.Status.Certificate) == 0 {
			err = errors.New("no certificate")
		}
		return err
	})

	eventually.Succeeds(t, timeout, "metrics of the leader without the signed requests", func() error {
		if got := written(&firstMetrics); !strings.HasPrefix(got, `approver_leader 1
requests_decided_total{decision="approved"} 2
requests_decided_total{decision="denied"} 2
requests_pending 3
requests_oldest_pending_timestamp_seconds `) {
			return errors.New(got)
		}
		return nil
	})

	// The Node registers after it sent the request.
	setAddresses(t, admin, "node-late", false, internalIP("10.0.0.3"))
	approved := func(what, name string) {
		t.Helper()
		eventually.Succeeds(t, timeout, what, func() error {
			if got := state(t, admin, name); got != "Approved: NamesOfMachine" {
				return errors.New(got)
			}
			return nil
		})
	}
	approved("approval after the Node registered", requests["node without Node"].name)

	// Another candidate waits, and takes over when the first releases the lease.
	second, stopSecond := context.WithCancel(ctx)
	go func() {
		ended <- RunElected(second, approver, machines, "two", &secondMetrics, log)
	}()
	stopFirst()
	if err := <-ended; err != nil {
		t.Errorf("first candidate returned %v", err)
	}
	if got := written(&firstMetrics); !strings.HasPrefix(got, "approver_leader 0\n") ||
		strings.Contains(got, "pending") {
		t.Errorf("metrics of a candidate that leads no longer:\n%s", got)
	}
	approved("approval by the second candidate", send(t, cluster, kubeletOf("node-b", "10.0.0.2")))
	lease := leaseHolder(t, admin)
	if lease != "two" {
		t.Errorf("lease is held by %q, want the second candidate", lease)
	}
	stopSecond()
	if err := <-ended; err != nil {
		t.Errorf("second candidate returned %v", err)
	}
	if lease := leaseHolder(t, admin); lease != "" {
		t.Errorf("lease is held by %q after the last candidate has stopped", lease)
	}
}

// requestsOfNodes sends requests, and says what becomes of each before the Node of node-late registers.
func requestsOfNodes(t *testing.T, cluster *kubetest.Cluster) map[string]struct{ name, want string } {
	t.Helper()
	forged := kubeletWith(func(a *ask) { a.orgs = []string{"system:nodes", "system:masters"} })
	byAdmin := kubeletWith(func(a *ask) { a.user, a.groups = "kubernetes-admin", []string{"system:masters"} })
	withURI := kubeletWith(func(a *ask) { a.uris = []string{"https://kubernetes.default.svc"} })
	return map[string]struct{ name, want string }{
		"renewal":                {send(t, cluster, renewalOf("node-a")), "Approved: RenewalOfNode"},
		"own address":            {send(t, cluster, kubeletOf("node-a", "10.0.0.1")), "Approved: NamesOfMachine"},
		"another node's address": {send(t, cluster, kubeletOf("node-a", "10.0.0.2")), "pending"},
		"administrators' group":  {send(t, cluster, forged), "Denied: ForgedRequest"},
		"URI":                    {send(t, cluster, withURI), "Denied: ForgedRequest"},
		"not a node":             {send(t, cluster, byAdmin), "pending"},
		"node without Node":      {send(t, cluster, kubeletOf("node-late", "10.0.0.3")), "pending"},
	}
}

// create sends a request as its requester.
func create(t *testing.T, cluster *kubetest.Cluster, a ask) (*certificatesv1.CertificateSigningRequest, error) {
	t.Helper()
	groups := a.groups
	if groups == nil {
		groups = []string{"system:nodes"}
	}
	return cluster.ClientFor(a.user, groups...).CertificatesV1().CertificateSigningRequests().
		Create(t.Context(), a.request(t), metav1.CreateOptions{})
}

// send creates a request and returns its name.
func send(t *testing.T, cluster *kubetest.Cluster, a ask) string {
	t.Helper()
	created, err := create(t, cluster, a)
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}

func forbidden(t *testing.T, cluster *kubetest.Cluster, what string, a ask) {
	t.Helper()
	_, err := create(t, cluster, a)
	kubetest.MustForbid(t, what, err)
}

func hasEvent(ctx context.Context, admin kubernetes.Interface, object, text string) error {
	list, err := admin.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, event := range list.Items {
		if event.Regarding.Name == object && strings.Contains(event.Note, text) {
			return nil
		}
	}
	return errors.New("no such Event")
}

func leaseHolder(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	var lease *coordinationv1.Lease
	lease, err := admin.CoordinationV1().
		Leases("kube-system").
		Get(context.Background(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func TestConcerns(t *testing.T) {
	joining := renewalOf("node-a")
	joining.user = "system:node-controller"
	other := renewalOf("node-a")
	other.signer = certificatesv1.KubeAPIServerClientSignerName
	for name, test := range map[string]struct {
		ask  ask
		want bool
	}{
		"serving":        {kubeletOf("node-a"), true},
		"renewal":        {renewalOf("node-a"), true},
		"join":           {joining, false},
		"another signer": {other, false},
	} {
		if got := concerns(test.ask.request(t)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPendingRequests(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: kind}}}}
	}
	if !pending(&certificatesv1.CertificateSigningRequest{}) {
		t.Error("a new request is pending")
	}
	for _, kind := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
	} {
		if pending(condition(kind)) {
			t.Errorf("a request that is %s is not pending", kind)
		}
	}
}
