// Package signer signs the certificates of kubelets, in the place of the signing controller of
// kube-controller-manager: its process alone can read the private key of the CA. The API server accepts certificates of
// this CA for any user, so whoever reads the key is an administrator of the cluster.
//
// It signs approved requests for the signers kubernetes.io/kubelet-serving and
// kubernetes.io/kube-apiserver-client-kubelet, and checks again, by the rules of package approver, that a kubelet
// could have sent them: an approver that was taken over gets certificates of nodes from it, and nothing else. All
// instances sign; the API keeps the first certificate of a request.
//
// The identity that runs it needs exactly these permissions:
//
//	ClusterRole
//	  certificates.k8s.io  certificatesigningrequests          get, list, watch
//	  certificates.k8s.io  certificatesigningrequests/status   update
//	  certificates.k8s.io  signers                             sign
//	                       (kubernetes.io/kubelet-serving and kubernetes.io/kube-apiserver-client-kubelet)
package signer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Minute
	// updateTimeout limits one update in the API.
	updateTimeout = 30 * time.Second
	// resync is how often all requests are looked at again, in case an update was lost.
	resync = 10 * time.Minute
	// workers is how many requests are signed at a time.
	workers = 2
)

// controller signs what is due.
type controller struct {
	client    kubernetes.Interface
	authority *Authority
	clock     clock.PassiveClock
	log       *slog.Logger
	requests  certificateslisters.CertificateSigningRequestLister
	queue     workqueue.TypedRateLimitingInterface[string]
}

// Run signs requests until ctx ends, which is no error.
func Run(ctx context.Context, client kubernetes.Interface, authority *Authority, log *slog.Logger) error {
	factory := informers.NewSharedInformerFactory(client, resync)
	requests := factory.Certificates().V1().CertificateSigningRequests()
	c := &controller{
		client: client, authority: authority, clock: clock.RealClock{}, log: log, requests: requests.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay),
		),
	}
	defer c.queue.ShutDown()
	informer := requests.Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, object any) { c.enqueue(object) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	log.Info("signing certificates of kubelets", "ca", authority.certificate.Subject.String(),
		"ca_valid_until", authority.certificate.NotAfter.UTC().Format(time.RFC3339))
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	group.Wait()
	return nil
}

func (c *controller) enqueue(object any) {
	if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok && Due(request) {
		c.queue.Add(request.Name)
	}
}

func (c *controller) next(ctx context.Context) bool {
	name, stopped := c.queue.Get()
	if stopped {
		return false
	}
	defer c.queue.Done(name)
	request, err := c.requests.Get(name) // of the cache, which knows it or not
	if err != nil || !Due(request) {
		c.queue.Forget(name)
		return true
	}
	err = c.sign(ctx, request.DeepCopy())
	switch {
	case err == nil, apierrors.IsNotFound(err):
		c.queue.Forget(name)
	case apierrors.IsConflict(err): // another instance was first, or the cache is late
		c.queue.AddRateLimited(name)
	default:
		if ctx.Err() == nil {
			c.log.Error("signing failed; trying again", "request", name, "error", err)
		}
		c.queue.AddRateLimited(name)
	}
	return true
}

// sign writes the certificate, or why there is none, to the status of the request.
func (c *controller) sign(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	log := c.log.With("request", request.Name, "requester", request.Spec.Username, "signer", request.Spec.SignerName)
	certificate, err := c.authority.Sign(request, c.clock.Now())
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		request.Status.Conditions = append(
			request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
				Reason: "SignerValidationFailure", Message: refusal.Reason,
			},
		)
	case err != nil:
		return err
	default:
		request.Status.Certificate = certificate
	}
	_, err = c.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update the status of the certificate request: %w", err)
	}
	if refusal != nil {
		log.Warn("certificate refused, though the request was approved", "reason", refusal.Reason)
		return nil
	}
	log.Info("certificate signed")
	return nil
}
