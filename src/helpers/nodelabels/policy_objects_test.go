package nodelabels

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate/csr"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	stolen = "worker-3c5e8f1a"
	victim = "worker-0d9b2c4e"
)

// withNodes returns a cluster with two Nodes, and a client for the first.
func withNodes(t *testing.T) (*kubetest.Cluster, kubernetes.Interface) {
	t.Helper()
	cluster := withPolicies(t)
	for _, name := range []string{stolen, victim} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := cluster.Admin().CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return cluster, cluster.ClientFor("system:node:"+stolen, "system:nodes")
}

// event is what kubelet writes (makeEvent in tools/record/event.go of k8s.io/client-go).
func event(name, namespace, host string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web-0", APIVersion: "v1"},
		Reason:         "BackOff", Message: "Back-off pulling image \"example\"", Type: corev1.EventTypeWarning,
		Source:              corev1.EventSource{Component: "kubelet", Host: host},
		ReportingController: "kubelet", ReportingInstance: host,
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
	}
}

// proxyClient is a client with the certificate of kube-proxy, which is on every node.
func proxyClient(t *testing.T, cluster *kubetest.Cluster) kubernetes.Interface {
	t.Helper()
	client := cluster.ClientFor("system:kube-proxy") // to which Kubernetes binds the role system:node-proxier
	eventually.Succeeds(t, 30*time.Second, "kube-proxy may read Nodes", func() error {
		_, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err
	})
	return client
}

// proxyEvent is what kube-proxy writes.
func proxyEvent(name, reporter string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		EventTime:  metav1.NowMicro(), Reason: "Starting", Action: "StartKubeProxy", Type: corev1.EventTypeNormal,
		ReportingController: reporter, ReportingInstance: reporter + "-" + stolen,
		Regarding: corev1.ObjectReference{Kind: "Node", Name: stolen},
	}
}

// TestNodesWriteOnlyTheirOwnEvents is root on a worker that writes Events in the name of others, and changes theirs.
func TestNodesWriteOnlyTheirOwnEvents(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	write := func(client kubernetes.Interface, object *corev1.Event) error {
		_, err := client.CoreV1().Events(object.Namespace).Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	patch := func(client kubernetes.Interface, name, text string) error {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Patch(
			t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{},
		)
		return err
	}
	kubetest.MustForbid(
		t, "as another node", write(worker, event("other", "default", victim)), "of "+victim+" and "+victim,
	)
	scheduler := event("scheduler", "default", "")
	scheduler.Source.Component = "default-scheduler"
	kubetest.MustForbid(t, "as the scheduler", write(worker, scheduler), "without one")
	modern := proxyEvent("modern", "kubelet") // which has no source
	_, err := worker.EventsV1().Events(metav1.NamespaceDefault).Create(t.Context(), modern, metav1.CreateOptions{})
	kubetest.MustForbid(t, "by the other API", err, "without one")
	if err := write(admin, event("evidence", "default", victim)); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(t, "another node's Event", patch(worker, "evidence", `{"message": "all is well"}`), victim)
	kubetest.MustForbid(t, "another node's Event, taken over",
		patch(worker, "evidence", `{"message": "all is well", "source": {"host": "`+stolen+`"}}`), victim)

	proxy := proxyClient(t, cluster)
	kubetest.MustForbid(
		t, "as kubelet, by kube-proxy", write(proxy, event("by-proxy", "default", stolen)), "kube-proxy can",
	)
	kubetest.MustForbid(
		t, "another's Event, by kube-proxy", patch(proxy, "evidence", `{"message": "all is well"}`), "kube-proxy",
	)

	// The friends: kubelet writes about its pods in each namespace and counts, kube-proxy says that it starts.
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if err := write(worker, event("own", namespace, stolen)); err != nil {
			t.Errorf("kubelet's Event in namespace %s: %v", namespace, err)
		}
	}
	if err := patch(worker, "own", `{"count": 2, "message": "Back-off again"}`); err != nil {
		t.Errorf("kubelet counts: %v", err)
	}
	events := proxy.EventsV1().Events(metav1.NamespaceDefault)
	if _, err := events.Create(t.Context(), proxyEvent("proxy", "kube-proxy"), metav1.CreateOptions{}); err != nil {
		t.Errorf("kube-proxy's Event: %v", err)
	}
	_, err = events.Patch(t.Context(), "proxy", types.MergePatchType,
		[]byte(`{"series": {"count": 2, "lastObservedTime": "2026-11-24T12:00:00.000000Z"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("kube-proxy counts: %v", err)
	}
	if err := write(admin, event("by-others", "default", "")); err != nil {
		t.Errorf("an Event of a controller: %v", err)
	}
}

// TestEventsAreSmall is a user whose few Events fill etcd, because each is as large as etcd permits: a node,
// kube-proxy, or a tenant's pod. An operator's controller, which may write Events about the objects of all tenants, may
// write long ones.
func TestEventsAreSmall(t *testing.T) {
	cluster, worker := withNodes(t)
	controller := accountWithEvents(t, cluster, "controller", "")
	tenant := accountWithEvents(t, cluster, "tenant", metav1.NamespaceDefault)
	write := func(client kubernetes.Interface, name string, change func(*corev1.Event)) error {
		object := event(name, "default", stolen)
		change(object)
		_, err := client.CoreV1().Events("default").Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	large := strings.Repeat("x", 1<<20)
	for what, change := range map[string]func(*corev1.Event){
		"message": func(e *corev1.Event) { e.Message = large },
		"reason":  func(e *corev1.Event) { e.Reason = large },
		"object":  func(e *corev1.Event) { e.InvolvedObject.FieldPath = large },
		"source":  func(e *corev1.Event) { e.Source.Component = large },
		"annotations": func(e *corev1.Event) {
			e.Annotations = map[string]string{"example.com/note": large[:200<<10]}
		},
		"related": func(e *corev1.Event) { e.Related = &corev1.ObjectReference{Name: large} },
	} {
		for who, client := range map[string]kubernetes.Interface{"node": worker, "tenant": tenant} {
			kubetest.MustForbid(
				t, who+": a large "+what, write(client, what, change), "an Event can have 4096 characters",
			)
		}
	}
	kubetest.MustForbid(t, "kube-proxy", write(proxyClient(t, cluster), "proxy", func(e *corev1.Event) {
		e.Source, e.ReportingController, e.Message = corev1.EventSource{}, "kube-proxy", large
	}), "4096")

	// The friends.
	long := func(e *corev1.Event) { e.Message = large[:20<<10] }
	if err := write(controller, "report", long); err != nil {
		t.Errorf("a controller's Event of 20 KiB: %v", err)
	}
	if err := write(cluster.Admin(), "note", long); err != nil {
		t.Errorf("an administrator's Event of 20 KiB: %v", err)
	}
	for name, client := range map[string]kubernetes.Interface{"node": worker, "tenant": tenant} {
		if err := write(client, "longest-"+name, func(e *corev1.Event) { e.Message = large[:2<<10] }); err != nil {
			t.Errorf("a message of 2 KiB, %s: %v", name, err)
		}
	}
	_, err := worker.CoreV1().Events("default").Patch(t.Context(), "longest-node", types.MergePatchType,
		fmt.Appendf(nil, `{"message": %q}`, large), metav1.PatchOptions{})
	kubetest.MustForbid(t, "one that grows", err, "4096")
}

// accountWithEvents is a client of a ServiceAccount that may create Events in a namespace, or in all.
func accountWithEvents(t *testing.T, cluster *kubetest.Cluster, name, namespace string) kubernetes.Interface {
	t.Helper()
	user := "system:serviceaccount:default:" + name
	admin, create := cluster.Admin().RbacV1(), metav1.CreateOptions{}
	metadata := metav1.ObjectMeta{Name: name, Namespace: namespace}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	_, err := admin.ClusterRoles().Create(
		t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, create,
	)
	if err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		_, err = admin.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metadata, RoleRef: role, Subjects: subjects,
		}, create)
	} else {
		_, err = admin.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metadata, RoleRef: role, Subjects: subjects,
		}, create)
	}
	if err != nil {
		t.Fatal(err)
	}
	client := cluster.ClientFor(user, "system:serviceaccounts", "system:serviceaccounts:default")
	eventually.Succeeds(t, 30*time.Second, name+" may create Events", func() error {
		small := event(name, metav1.NamespaceDefault, "")
		_, err := client.CoreV1().Events(small.Namespace).Create(t.Context(), small, create)
		return err
	})
	return client
}

// TestNodesCannotKeepObjects is root on a worker that keeps objects from being deleted, and what owns them or what they
// are in: a tenant's namespace, by an Event in it, or a Node of another, by its own that the other owns.
func TestNodesCannotKeepObjects(t *testing.T) {
	cluster, worker := withNodes(t)
	node, err := cluster.Admin().CoreV1().Nodes().Get(t.Context(), stolen, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	stay := metav1.ObjectMeta{Finalizers: []string{"example.com/stay"}}
	owned := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: victim, UID: node.UID, BlockOwnerDeletion: &yes,
	}}}
	blocking := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: stolen, UID: node.UID, BlockOwnerDeletion: &yes,
	}}}
	plain := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: stolen, UID: node.UID,
	}}}
	request := certificateRequest(t)
	kinds := map[string]func(metav1.ObjectMeta) error{
		"events": func(m metav1.ObjectMeta) error {
			object := event("held", "default", stolen)
			object.Finalizers, object.OwnerReferences = m.Finalizers, m.OwnerReferences
			_, err := worker.CoreV1().Events("default").Create(t.Context(), object, metav1.CreateOptions{})
			return err
		},
		"leases": func(m metav1.ObjectMeta) error {
			m.Name = stolen
			_, err := worker.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(
				t.Context(), &coordinationv1.Lease{ObjectMeta: m}, metav1.CreateOptions{},
			)
			return err
		},
		"certificatesigningrequests": func(m metav1.ObjectMeta) error {
			m.GenerateName = "csr-"
			_, err := worker.CertificatesV1().CertificateSigningRequests().Create(
				t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: m, Spec: request},
				metav1.CreateOptions{},
			)
			return err
		},
		"resourceslices": func(m metav1.ObjectMeta) error {
			return publish(t, worker, m, stolen)
		},
	}
	for kind, create := range kinds {
		kubetest.MustForbid(t, kind+" with a finalizer", create(stay), "finalizers to "+kind)
		kubetest.MustForbid(
			t, kind+" of another owner", create(owned), "only its own Node as the owner of "+kind, "Node "+victim,
		)
		kubetest.MustForbid(t, kind+" that block", create(blocking), "without blockOwnerDeletion")
		if err := create(plain); err != nil {
			t.Errorf("%s of the own Node: %v", kind, err)
		}
	}
	patch := []byte(`{"metadata": {"finalizers": ["example.com/stay"]}}`)
	merge, options := types.MergePatchType, metav1.PatchOptions{}
	_, err = worker.CoreV1().Events("default").Patch(t.Context(), "held", merge, patch, options)
	kubetest.MustForbid(t, "a finalizer added to an Event", err, "finalizers to events")
	proxy := proxyClient(t, cluster)
	_, err = proxy.EventsV1().Events("default").Create(
		t.Context(), proxyEvent("p", "kube-proxy"), metav1.CreateOptions{},
	)
	if err != nil {
		t.Errorf("kube-proxy's Event: %v", err)
	}
	_, err = proxy.EventsV1().Events("default").Patch(t.Context(), "p", merge, patch, options)
	kubetest.MustForbid(t, "a finalizer added to an Event, by kube-proxy", err, "finalizers to events")

	// The Node itself: it is created anew.
	if err := cluster.Admin().CoreV1().Nodes().Delete(t.Context(), stolen, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: owned}
	object.Name = stolen
	_, err = worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	kubetest.MustForbid(t, "a Node that another owns", err, "only its own Node as the owner of nodes")
}

func certificateRequest(t *testing.T) certificatesv1.CertificateSigningRequestSpec {
	t.Helper()
	return certificateRequestFor(t)
}

func certificateRequestFor(t *testing.T, names ...string) certificatesv1.CertificateSigningRequestSpec {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + stolen, Organization: []string{"system:nodes"}},
		DNSNames: names,
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// TestNodesRequestSmallCertificates is root on a worker that fills etcd with requests that nobody approves.
func TestNodesRequestSmallCertificates(t *testing.T) {
	_, worker := withNodes(t)
	create := func(request []byte, annotations map[string]string) error {
		object := &certificatesv1.CertificateSigningRequest{Spec: certificateRequest(t)}
		object.GenerateName, object.Annotations = "csr-", annotations
		object.Spec.Request = append(object.Spec.Request, request...)
		_, err := worker.CertificatesV1().CertificateSigningRequests().Create(
			t.Context(), object, metav1.CreateOptions{},
		)
		return err
	}
	large := strings.Repeat("x", 200<<10)
	kubetest.MustForbid(
		t, "a large annotation", create(nil, map[string]string{"example.com/note": large}), "8192 characters",
	)
	kubetest.MustForbid(t, "text behind the request", create([]byte(large), nil), "unable to parse csr")
	if err := create(nil, nil); err != nil {
		t.Errorf("kubelet's request: %v", err)
	}
}

// TestRequestsCannotKeepAPIServersBusy is root on a worker: an API server verifies the signature of a request, which
// takes minutes with this key.
func TestRequestsCannotKeepAPIServersBusy(t *testing.T) {
	cluster, worker := withNodes(t)
	subject := pkix.Name{CommonName: "system:node:" + stolen, Organization: []string{"system:nodes"}}
	create := func(client kubernetes.Interface, request []byte) error {
		object := &certificatesv1.CertificateSigningRequest{Spec: certificateRequest(t)}
		object.GenerateName, object.Spec.Request = "csr-", request
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	for name, client := range map[string]kubernetes.Interface{"node": worker, "administrator": cluster.Admin()} {
		err := create(client, kubetest.RequestOfLargeKey(t, subject, 1<<20))
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	// The friend: somebody with a key that is large, and in use.
	key, err := rsa.GenerateKey(rand.Reader, 4096)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := create(worker, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})); err != nil {
		t.Errorf("a key of 4096 bits: %v", err)
	}
}

// TestNodesUseAllNamesOfCertificateRequests has requests of all lengths, which decide where their lines end. The second
// character was the same in every second request of some nodes: their kubelets would have had to try often.
func TestNodesUseAllNamesOfCertificateRequests(t *testing.T) {
	const (
		lineLength = 48 // of DER, in a line of PEM
		requests   = 24
		mostOfOne  = 12 // by chance, a character comes about once, and this often once in 100 million times
	)
	_, worker := withNodes(t)
	for length := range lineLength {
		name := strings.Repeat("w", 1+length)
		counts := [2]map[byte]int{{}, {}}
		for range requests {
			object := &certificatesv1.CertificateSigningRequest{Spec: certificateRequestFor(t, name)}
			object.GenerateName = "csr-"
			created, err := worker.CertificatesV1().CertificateSigningRequests().Create(
				t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
			)
			if err != nil {
				t.Fatal(err)
			}
			slot := created.Name[len(created.Name)-len(counts):]
			for place := range counts {
				counts[place][slot[place]]++
			}
		}
		for place, of := range counts {
			for character, count := range of {
				if count >= mostOfOne {
					t.Errorf(
						"%s: character %d of the slot is %q in %d of %d requests",
						name, place+1, character, count, requests,
					)
				}
			}
		}
	}
}

// TestNodesHaveFewCertificateRequests is root on a worker that fills etcd with many small requests.
func TestNodesHaveFewCertificateRequests(t *testing.T) {
	cluster, worker := withNodes(t)
	requests, create := worker.CertificatesV1().CertificateSigningRequests(), metav1.CreateOptions{}
	slot := regexp.MustCompile("^csr-" + stolen + "-[a-z0-9]{2}$")
	names := map[string]bool{}
	for i := range 40 {
		object := &certificatesv1.CertificateSigningRequest{Spec: certificateRequest(t)}
		if object.GenerateName = "csr-"; i%2 == 0 {
			object.Name = fmt.Sprintf("flood-%d", i)
		}
		created, err := requests.Create(t.Context(), object, create)
		if apierrors.IsAlreadyExists(err) {
			continue // by chance
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slot.MatchString(created.Name) {
			t.Fatalf("a node's request has the name %s, of which there are more than 1,296", created.Name)
		}
		names[created.Name] = true
		again := &certificatesv1.CertificateSigningRequest{Spec: object.Spec}
		again.GenerateName = "csr-"
		if _, err := requests.Create(t.Context(), again, create); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the same request again: %v, want it to exist", err)
		}
	}
	if len(names) < 30 {
		t.Errorf("of 40 requests with keys of their own %d were accepted: kubelet would have to try often", len(names))
	}

	// The friends: kubelet, with its own function, and whoever joins, which is no node yet.
	spec := certificateRequest(t)
	eventually.Succeeds(t, 30*time.Second, "kubelet requests a certificate, with another key if need be", func() error {
		name, _, err := csr.RequestCertificateWithContext(
			t.Context(), worker, certificateRequest(t).Request, "", spec.SignerName, nil, spec.Usages, nil,
		)
		if err == nil && !slot.MatchString(name) {
			t.Errorf("kubelet waits for the request %s", name)
		}
		return err
	})
	object := &certificatesv1.CertificateSigningRequest{Spec: certificateRequest(t)}
	object.GenerateName = "join-"
	created, err := cluster.Admin().CertificatesV1().CertificateSigningRequests().Create(t.Context(), object, create)
	if err != nil || !strings.HasPrefix(created.Name, "join-") {
		t.Errorf("the request of another: %v, %v", created.Name, err)
	}
}

// publish creates a ResourceSlice of the first node.
func publish(t *testing.T, client kubernetes.Interface, metadata metav1.ObjectMeta, pool string) error {
	t.Helper()
	metadata.GenerateName = "slice-"
	name := stolen
	_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
		ObjectMeta: metadata,
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &name,
			Pool:    resourcev1.ResourcePool{Name: pool, Generation: 1 << 40, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}},
		},
	}, metav1.CreateOptions{})
	return err
}

// TestNodesCannotHideDevicesOfOthers is root on a worker that publishes devices in the pool of another node.
func TestNodesCannotHideDevicesOfOthers(t *testing.T) {
	_, worker := withNodes(t)
	for _, pool := range []string{victim, "gpus", stolen + "-gpus", victim + "/" + stolen} {
		err := publish(t, worker, metav1.ObjectMeta{}, pool)
		kubetest.MustForbid(t, "pool "+pool, err, "only in the pool "+stolen, "not in "+pool)
	}
	// As drivers do that use k8s.io/dynamic-resource-allocation.
	for _, pool := range []string{stolen, stolen + "/gpus"} {
		if err := publish(t, worker, metav1.ObjectMeta{}, pool); err != nil {
			t.Errorf("pool %s: %v", pool, err)
		}
	}
}

// TestNodesCannotTakeTheZoneOfAnother is root on a worker that labels its Node with the zone of volumes that pods of
// others have: these pods would come with their Secrets.
func TestNodesCannotTakeTheZoneOfAnother(t *testing.T) {
	cluster, worker := withNodes(t)
	const ebs, cinder = "topology.ebs.csi.aws.com/zone", "topology.cinder.csi.openstack.org/zone"
	admin := cluster.Admin()
	set := func(client kubernetes.Interface, label string, value any) error {
		return patchLabels(t, client, stolen, "", map[string]any{label: value})
	}
	kubetest.MustForbid(t, "before the zone is known", set(worker, ebs, "us-east-1a"), "which is not known yet", ebs)
	if err := set(admin, corev1.LabelTopologyZone, "us-east-1a"); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(t, "another zone", set(worker, ebs, "us-east-1b"), "us-east-1a, as the label", "not us-east-1b")
	kubetest.MustForbid(t, "another zone of OpenStack", set(worker, cinder, "az2"), "us-east-1a, as the label "+cinder)
	kubetest.MustForbid(t, "another zone of either", patchLabels(t, worker, stolen, "status", map[string]any{
		ebs: "us-east-1a", cinder: "az2",
	}), "az2")
	kubetest.MustForbid(t, "both", patchLabels(t, worker, stolen, "status", map[string]any{
		ebs: "us-east-1b", corev1.LabelTopologyZone: "us-east-1b",
	}), "labels of its instance")
	kubetest.MustForbid(
		t, "what only AWS knows", set(worker, "topology.k8s.aws/zone-id", "use1-az2"), "labels of its instance",
	)
	// The friend: kubelet, by the subresource (PatchNodeStatus), and after its driver has gone.
	for _, label := range []string{ebs, cinder} {
		if err := patchLabels(t, worker, stolen, "status", map[string]any{label: "us-east-1a"}); err != nil {
			t.Errorf("kubelet's label %s: %v", label, err)
		}
	}
	kubetest.MustForbid(t, "another zone, later", set(worker, ebs, "us-east-1b"), "not us-east-1b")
	if err := set(worker, ebs, nil); err != nil {
		t.Errorf("no label: %v", err)
	}

	// One that registers with it.
	if err := admin.CoreV1().Nodes().Delete(t.Context(), stolen, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stolen, Labels: map[string]string{ebs: "us-east-1b"}}}
	_, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	kubetest.MustForbid(t, "at the registration", err, "which is not known yet")
	object.Labels = map[string]string{"topology.k8s.aws/zone-id": "use1-az2", "disk": "fast"}
	created, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil || len(created.Labels) != 1 {
		t.Errorf("registered with labels %v: %v, want the own one alone", created.Labels, err)
	}
}

// TestNodesCannotClaimVolumes is root on a worker that says that volumes of others are attached to it:
// kube-controller-manager believes it when it starts.
func TestNodesCannotClaimVolumes(t *testing.T) {
	cluster, worker := withNodes(t)
	patch := func(client kubernetes.Interface, text string) error {
		_, err := client.CoreV1().Nodes().Patch(
			t.Context(), stolen, types.MergePatchType, []byte(text), metav1.PatchOptions{}, "status",
		)
		return err
	}
	const volume = `"kubernetes.io/csi/ebs.csi.aws.com^vol-1"`
	const attached = `{"status": {"volumesAttached": [{"name": ` + volume + `, "devicePath": ""}]}}`
	kubetest.MustForbid(t, "a volume of others", patch(worker, attached), "volumesAttached")
	if err := patch(cluster.Admin(), attached); err != nil {
		t.Errorf("kube-controller-manager: %v", err)
	}
	kubetest.MustForbid(t, "none", patch(worker, `{"status": {"volumesAttached": null}}`), "volumesAttached")
	if err := patch(worker, `{"status": {"volumesInUse": [`+volume+`]}}`); err != nil {
		t.Errorf("kubelet's volumes in use: %v", err)
	}
}
