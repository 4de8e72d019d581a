// Package approver approves the certificates of kubelets: the serving certificate (serverTLSBootstrap), and each
// renewal of the client certificate.
//
// A kubelet requests them with CertificateSigningRequests for the signers kubernetes.io/kubelet-serving and
// kubernetes.io/kube-apiserver-client-kubelet. Kubernetes signs such a request only after it has been approved. The
// approving controller of kube-controller-manager, which believes what a node says, is off; this one asks the cloud or
// BOSH (see Decide).
//
// The identity that runs the controller, and the endpoint of package join, needs exactly these permissions:
//
//	ClusterRole
//	  certificates.k8s.io  certificatesigningrequests            create (to join), get, list, watch
//	  certificates.k8s.io  certificatesigningrequests/approval   update
//	  certificates.k8s.io  signers                               approve (resourceNames kubernetes.io/kubelet-serving
//	                                                             and kubernetes.io/kube-apiserver-client-kubelet)
//	  ""                   nodes                                 get, list, watch
//	  ""                   pods                                  list (to join)
//	  storage.k8s.io       volumeattachments                     list (to join)
//	  events.k8s.io        events                                create, patch (in namespace default, where Events
//	                                                             of cluster-scoped objects are)
//	Role in the namespace of the lease (kube-system)
//	  coordination.k8s.io  leases                                create
//	  coordination.k8s.io  leases, resourceNames [node-controller]
//	                                                             get, update
package approver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// leaseName is the name of the job. The Events of upstream's own node controller have this source too.
	leaseName   = "node-controller"
	eventSource = "kubernetes.bosh.io/" + leaseName
	// minRetryDelay and maxRetryDelay limit the backoff of pending requests. They are also checked again whenever a
	// Node changes, so the backoff only matters after a lost watch.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
	// decideTimeout limits one decision, which asks the cloud or bosh-dns.
	decideTimeout = time.Minute
	// resync is how often all requests are checked again, in case an update was lost.
	resync = 10 * time.Minute
	// deciders is how many requests are decided at a time.
	deciders = 4
)

// Controller watches requests and Nodes, and decides each request as soon as it can.
type Controller struct {
	client   kubernetes.Interface
	machines Machines
	log      *slog.Logger
	queue    workqueue.TypedRateLimitingInterface[item]
	shares   shares
	metrics  *Metrics
	recorder events.EventRecorder
	requests certificateslisters.CertificateSigningRequestLister
	// startInformers feeds the queue and returns when the caches are filled.
	startInformers func(ctx context.Context) error

	mu sync.Mutex
	// reported is the last message about each pending request, so that a retry does not repeat it.
	reported map[types.UID]string
}

// New returns a controller; Run starts it. It counts its decisions in metrics.
func New(client kubernetes.Interface, machines Machines, metrics *Metrics, log *slog.Logger) *Controller {
	c := &Controller{
		client:   client,
		machines: remember(machines, clock.RealClock{}),
		metrics:  metrics,
		log:      log,
		queue:    newQueue(),
		shares:   shares{clock: clock.RealClock{}, of: map[string]*share{}},
		reported: map[types.UID]string{},
	}
	requestFactory := informers.NewSharedInformerFactory(client, resync)
	nodeFactory := informers.NewSharedInformerFactory(client, resync)
	requests := requestFactory.Certificates().V1().CertificateSigningRequests()
	nodes := nodeFactory.Core().V1().Nodes()
	c.requests = requests.Lister()
	requestsInformer, nodesInformer := requests.Informer(), nodes.Informer()
	c.startInformers = func(ctx context.Context) error {
		if err := c.watch(requestsInformer, nodesInformer); err != nil {
			return err
		}
		requestFactory.Start(ctx.Done())
		nodeFactory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), requestsInformer.HasSynced, nodesInformer.HasSynced) {
			return fmt.Errorf("stopped while listing certificate requests and nodes: %w", ctx.Err())
		}
		return nil
	}
	return c
}

// Run decides requests until ctx ends, which is no error.
func (c *Controller) Run(ctx context.Context) error {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	c.recorder = broadcaster.NewRecorder(scheme.Scheme, eventSource)

	defer c.queue.ShutDown()
	if err := c.startInformers(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.metrics.leading.Store(c)
	defer c.metrics.leading.Store(nil)
	c.log.Info("watching certificate requests of kubelets")
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	var group sync.WaitGroup
	for range deciders {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	group.Wait()
	return nil
}

func (c *Controller) watch(requests, nodes cache.SharedIndexInformer) error {
	_, err := requests.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.enqueue(object) },
		UpdateFunc: func(_, object any) { c.enqueue(object) },
		DeleteFunc: c.forget,
	})
	if err != nil {
		return err
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.enqueuePending() },
		UpdateFunc: func(before, after any) {
			if nodeChanged(before, after) {
				c.enqueuePending()
			}
		},
		DeleteFunc: func(any) { c.enqueuePending() },
	})
	return err
}

// nodeChanged reports whether an update of a Node can change a decision; heartbeats cannot.
func nodeChanged(before, after any) bool {
	old, okOld := before.(*corev1.Node)
	current, okCurrent := after.(*corev1.Node)
	return okOld && okCurrent && (describe(old) != describe(current))
}

func (c *Controller) enqueue(object any) {
	if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok && concerns(request) && pending(request) {
		c.queue.Add(item{request.Spec.Username, request.Name})
	}
}

func (c *Controller) enqueuePending() {
	requests, err := c.requests.List(labels.Everything())
	if err != nil {
		c.log.Error("list certificate requests", "error", err)
		return
	}
	for _, request := range requests {
		c.enqueue(request)
	}
}

func (c *Controller) forget(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reported, request.UID)
	}
}

// concerns reports whether this controller decides the request. First client certificates are requested, and approved,
// by package join.
func concerns(request *certificatesv1.CertificateSigningRequest) bool {
	if request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		return strings.HasPrefix(request.Spec.Username, nodeUserPrefix)
	}
	return purposes[request.Spec.SignerName] != ""
}

// pending reports whether the request is still undecided.
func pending(request *certificatesv1.CertificateSigningRequest) bool {
	if len(request.Status.Certificate) > 0 {
		return false
	}
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		}
	}
	return true
}

func (c *Controller) next(ctx context.Context) bool {
	next, stopped := c.queue.Get()
	if stopped {
		return false
	}
	defer c.queue.Done(next)
	request := c.undecided(next.name)
	if request == nil {
		c.queue.Forget(next)
		return true
	}
	if !c.shares.take(next.requester, func() { c.reportFlood(request) }) {
		c.queue.AddAfter(next, overShareDelay)
		return true
	}
	again, err := c.decide(ctx, request)
	if err != nil && ctx.Err() == nil {
		c.log.Error("deciding certificate request failed; trying again", "request", next.name, "error", err)
	}
	if again || err != nil {
		c.queue.AddRateLimited(next)
	} else {
		c.queue.Forget(next)
	}
	return true
}

// undecided returns the request if this controller has to decide it, or nil.
func (c *Controller) undecided(name string) *certificatesv1.CertificateSigningRequest {
	request, err := c.requests.Get(name) // of the cache, which knows it or not
	if err != nil || !pending(request) || !concerns(request) {
		return nil
	}
	return request
}

// reportFlood says that a requester has sent more than its share. One that has sent a few requests can use up its share
// too: those that stay pending are decided again whenever a Node changes, and why they do is reported already.
func (c *Controller) reportFlood(request *certificatesv1.CertificateSigningRequest) {
	if c.sent(request.Spec.Username) <= shareBurst {
		return
	}
	message := fmt.Sprintf(
		"%s has sent more than %d certificate requests; one is decided every %s, and the others stay pending until "+
			"Kubernetes deletes them after 24 hours: find out what sends them; if the node was taken over, recreate "+
			"its VM",
		request.Spec.Username, shareBurst, shareInterval,
	)
	c.log.Warn(
		"certificate request left pending", "request", request.Name, "requester", request.Spec.Username, "reason",
		"TooManyRequests", "message", message,
	)
	c.recorder.Eventf(
		request, nil, corev1.EventTypeWarning, "TooManyRequests", "Approving", "left pending: %s", message,
	)
}

// sent returns how many requests of a requester this controller still has to decide.
func (c *Controller) sent(requester string) int {
	requests, err := c.requests.List(labels.Everything())
	if err != nil { // a cache returns none
		return 0
	}
	count := 0
	for _, request := range requests {
		if request.Spec.Username == requester && concerns(request) && pending(request) {
			count++
		}
	}
	return count
}

// decide decides one request and updates it. It returns whether the request must be checked again.
func (c *Controller) decide(
	ctx context.Context, request *certificatesv1.CertificateSigningRequest,
) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	decision, err := Decide(ctx, request, c, c.machines)
	if err != nil {
		return false, err
	}
	if decision.Action == LeavePending {
		c.reportPending(request, decision)
		return decision.Retry, nil
	}
	return false, c.update(ctx, request, decision)
}

// reportPending logs and records why a request stays pending, once for each reason.
func (c *Controller) reportPending(request *certificatesv1.CertificateSigningRequest, decision Decision) {
	c.mu.Lock()
	repeated := c.reported[request.UID] == decision.Message
	c.reported[request.UID] = decision.Message
	c.mu.Unlock()
	if repeated {
		return
	}
	c.log.Warn(
		"certificate request left pending", "request", request.Name, "requester", request.Spec.Username, "reason",
		decision.Reason, "message", decision.Message,
	)
	c.recorder.Eventf(
		request, nil, corev1.EventTypeWarning, decision.Reason, "Approving", "left pending: %s", decision.Message,
	)
}

func (c *Controller) update(
	ctx context.Context, request *certificatesv1.CertificateSigningRequest, decision Decision,
) error {
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type:    certificatesv1.CertificateApproved,
		Status:  corev1.ConditionTrue,
		Reason:  decision.Reason,
		Message: decision.Message,
	}
	level, eventType := slog.LevelInfo, corev1.EventTypeNormal
	if decision.Action == Deny {
		condition.Type = certificatesv1.CertificateDenied
		level, eventType = slog.LevelWarn, corev1.EventTypeWarning
	}
	changed := request.DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, condition)
	_, err := c.client.CertificatesV1().
		CertificateSigningRequests().
		UpdateApproval(ctx, request.Name, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s certificate request: %w", decision.Action, err)
	}
	c.metrics.count(decision.Action)
	c.log.Log(ctx, level, "certificate request decided", "action", decision.Action.String(), "request", request.Name,
		"requester", request.Spec.Username, "reason", decision.Reason, "message", decision.Message)
	c.recorder.Eventf(
		request, nil, eventType, decision.Reason, "Approving", "%s: %s", decision.Action, decision.Message,
	)
	return nil
}

// Get implements Nodes. It does not use a cache, which may be stale: an approval cannot be revoked.
func (c *Controller) Get(ctx context.Context, name string) (*corev1.Node, error) {
	object, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	}
	return object, nil
}
