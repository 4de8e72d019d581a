// Package join lets VMs join the cluster as nodes: as the node that they are, and no other.
//
// A VM sends a certificate request with a proof of which machine it is (package node/join). An authority
// (node.Authority) determines from the proof the machine, and with it the only name that it can have as a node. The
// certificate request is approved by this package alone, and signed by kubelet-signer. From then on, the kubelet renews
// its certificate with the one that it has; see package approver.
package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

const (
	// signTimeout limits the wait for kubelet-signer in a request.
	signTimeout  = 30 * time.Second
	signInterval = 200 * time.Millisecond
	// bodyTimeout limits the time in which a client sends its request, which fits into a few packets.
	bodyTimeout = 5 * time.Second
	// maxConcurrent limits the requests that are served at a time, slotTimeout the time that another one waits.
	maxConcurrent = 16
	slotTimeout   = 5 * time.Second
	// abandonedAfter is how long a Node of a previous VM must not have been Ready before it is deleted here. A cloud
	// controller that runs deletes it before that.
	abandonedAfter = time.Minute
)

// Server is the endpoint at which VMs join. It logs who was admitted, and who was refused what, within limits.
type Server struct {
	Client    kubernetes.Interface
	Authority node.Authority
	Log       *slog.Logger

	slots   chan struct{}
	peers   *peers
	audit   auditLimit
	results results
}

// NewServer returns a server that admits the machines that the authority knows.
func NewServer(client kubernetes.Interface, authority node.Authority, log *slog.Logger) *Server {
	return &Server{
		Client:    client,
		Authority: authority,
		Log:       log,
		slots:     make(chan struct{}, maxConcurrent),
		peers:     &peers{},
		audit:     auditLimit{lines: rate.NewLimiter(logRate, logBurst)},
	}
}

// Serve serves until ctx ends, which is no error. A connection carries one request, so that the limits of connections
// hold for requests too: HTTP/2 and connections that are kept are off.
func (s *Server) Serve(ctx context.Context, listener net.Listener, certificate tls.Certificate, accepted TLS) error {
	tlsConfig, err := accepted.config(certificate)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s,
		TLSConfig:         tlsConfig,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: bodyTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      joinapi.Timeout + 10*time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // failed handshakes, which anyone can cause
	}
	server.SetKeepAlivesEnabled(false)
	listener = &limitedListener{listener, s.peers}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	s.Log.Info("nodes can join", "address", listener.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// statusError is an error with the status of its response.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func withStatus(status int, format string, arguments ...any) error {
	return &statusError{status, fmt.Errorf(format, arguments...)}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), joinapi.Timeout)
	defer cancel()
	audit := s.Log.With("peer", r.RemoteAddr)
	certificate, err := s.serve(ctx, w, r, &audit)
	if err == nil {
		s.results.add(admitted)
		audit.Info("join admitted")
		write(w, http.StatusOK, joinapi.Response{Certificate: string(certificate)})
		return
	}
	status, of := outcome(err)
	if of == failed && r.Context().Err() != nil {
		of = invalid // the client hung up; a VM waits longer than joinapi.Timeout
	}
	s.results.add(of)
	message := "join refused"
	if of == failed {
		message = "join failed"
	}
	reason := joinapi.Clip(err.Error(), maxReason)
	if omitted, ok := s.audit.allow(s.peers, addressOf(r.RemoteAddr)); ok {
		if omitted > 0 {
			audit = audit.With("refusals_not_logged", omitted)
		}
		audit.Warn(message, "status", status, "reason", reason)
	}
	write(w, status, joinapi.Response{Error: reason})
}

func write(w http.ResponseWriter, status int, body joinapi.Response) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// serve returns the certificate. It adds to the audit log what it learns of the request.
func (s *Server) serve(
	ctx context.Context, w http.ResponseWriter, r *http.Request, audit **slog.Logger,
) ([]byte, error) {
	if r.URL.Path != joinapi.Path || r.URL.RawQuery != "" {
		return nil, withStatus(http.StatusNotFound, "only %s exists", joinapi.Path)
	}
	if r.Method != http.MethodPost {
		return nil, withStatus(http.StatusMethodNotAllowed, "method %s; only POST is allowed", r.Method)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, joinapi.MaxRequest))
	if err != nil {
		return nil, withStatus(
			http.StatusRequestEntityTooLarge, "read the request, which can have %d bytes and must arrive within %s: %w",
			joinapi.MaxRequest, bodyTimeout, err,
		)
	}
	peer := addressOf(r.RemoteAddr)
	if !peer.IsValid() {
		return nil, withStatus(http.StatusInternalServerError, "the client has no address")
	}
	done, err := s.takeSlot(ctx, peer)
	if err != nil {
		return nil, err
	}
	defer done()
	var body joinapi.Request
	if err := strictjson.Unmarshal(content, &body); err != nil {
		return nil, withStatus(http.StatusBadRequest, "the request cannot be read: %w", err)
	}
	parsed, err := joinapi.ParseCertificateRequest([]byte(body.CertificateRequest))
	if err != nil {
		return nil, withStatus(http.StatusBadRequest, "certificate request: %w", err)
	}
	name, err := joinapi.NodeOf(parsed)
	if err != nil {
		return nil, withStatus(http.StatusForbidden, "certificate request: %w", err)
	}
	*audit = (*audit).With("user", parsed.Subject.CommonName)
	machine, err := s.Authority.Admit(
		ctx, node.Application{Request: []byte(body.CertificateRequest), Proof: body.Proof, Peer: peer},
	)
	if machine.ID != "" {
		*audit = (*audit).With("machine", machine.ID, "node", machine.Node)
	}
	if err != nil {
		return nil, err
	}
	if name != machine.Node {
		return nil, withStatus(
			http.StatusForbidden, "this machine, %s, can only join as node %s, and not as %s", machine.ID, machine.Node,
			name,
		)
	}
	if err := s.checkHolder(ctx, machine); err != nil {
		return nil, err
	}
	return s.sign(ctx, machine, []byte(body.CertificateRequest))
}

// takeSlot waits until the request can be served, and returns what frees its slot. It is called when the body was read:
// a client that sends slowly holds a connection of its own, and no slot.
func (s *Server) takeSlot(ctx context.Context, peer netip.Addr) (func(), error) {
	if !s.peers.begin(peer) {
		return nil, withStatus(
			http.StatusTooManyRequests, "%d requests from %s are being served; try again", maxPeerRequests, peer,
		)
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots; s.peers.end(peer) }, nil
	case <-ctx.Done():
		s.peers.end(peer)
		return nil, withStatus(http.StatusTooManyRequests, "%d requests are being served; try again", maxConcurrent)
	}
}

// checkHolder refuses the name of a node that another machine still has. A new VM with the address of a previous one
// has its name too. If the new VM's kubelet took over the Node of the previous VM, it would lose it when the
// cloud-controller-manager deletes it.
func (s *Server) checkHolder(ctx context.Context, machine node.Machine) error {
	holder, err := s.Client.CoreV1().Nodes().Get(ctx, machine.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return s.checkVolumes(ctx, machine.Node)
	}
	if err != nil {
		return fmt.Errorf("read Node %s: %w", machine.Node, err)
	}
	if id := holder.Spec.ProviderID; id != "" && machine.ProviderID != "" {
		if node.SameVM(id, machine.ProviderID) {
			return nil
		}
		return s.replace(ctx, holder, machine)
	}
	if notReady := nodestatus.CheckReady(holder, false); notReady != nil {
		return nil //nolint:nilerr // a Node that is not Ready belongs to no living VM
	}
	for _, address := range holder.Status.Addresses {
		if (address.Type == corev1.NodeInternalIP) && !machine.Has(address.Address) {
			return withStatus(
				http.StatusConflict,
				"Node %s is Ready with the address %s, which is not of this VM, %s: another VM has this name; delete "+
					"its Node when it is gone: kubectl delete node %[1]s",
				machine.Node, address.Address, machine.ID,
			)
		}
	}
	return nil
}

// replace deletes the Node of a previous VM that has not been Ready for some time, and refuses its name until then. The
// cloud says that the machine has the previous one's place, which therefore does not run any more. A cloud controller
// would delete the Node, but one that runs in pods does not if no node of control VMs has joined, such as after the
// loss of the only one.
func (s *Server) replace(ctx context.Context, holder *corev1.Node, machine node.Machine) error {
	previous := holder.Spec.ProviderID
	if since, ok := nodestatus.NotReadySince(holder); !ok || time.Since(since) < abandonedAfter {
		return withStatus(
			http.StatusConflict,
			"Node %s belongs to a previous VM, %s, and this VM is %s: the cloud-controller-manager deletes the Node "+
				"when it finds the previous VM gone, or this endpoint when it has not been Ready for %s",
			machine.Node, previous, machine.ProviderID, abandonedAfter,
		)
	}
	err := s.Client.CoreV1().Nodes().Delete(
		ctx, holder.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(holder.UID))},
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s of the previous VM %s: %w", machine.Node, previous, err)
	}
	s.Log.Info(
		"deleted the Node of a previous VM", "node", machine.Node, "previous", previous, "vm", machine.ProviderID,
	)
	return s.checkVolumes(ctx, machine.Node)
}

// checkVolumes refuses the name of a deleted Node that has volumes and pods left from a VM that was lost. The kubelet
// of the new VM would run these pods, and Kubernetes would take their volumes for attached: a VolumeAttachment holds
// the name of the node, and is not deleted while a pod on the node needs the volume. The pods would wait for devices
// that never appear. The garbage collector of pods deletes them 40 to 60 s after the Node
// (pkg/controller/podgc/gc_controller.go), and their replacements are free to use the volumes elsewhere.
func (s *Server) checkVolumes(ctx context.Context, name string) error {
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the volumes that are attached to node %s: %w", name, err)
	}
	if !slices.ContainsFunc(
		attachments.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == name },
	) {
		return nil
	}
	pods, err := s.Client.CoreV1().
		Pods(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	var left []string
	for i := range pods.Items {
		if phase := pods.Items[i].Status.Phase; phase != corev1.PodFailed && phase != corev1.PodSucceeded {
			left = append(left, pods.Items[i].Namespace+"/"+pods.Items[i].Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return withStatus(
		http.StatusConflict,
		"the VM that was node %s before has left pods with volumes behind: %s; Kubernetes deletes them about a "+
			"minute after their Node; if it does not, see the log of the job kube-controller-manager, or delete them "+
			"yourself: kubectl delete pod --force",
		name, strings.Join(left, ", "),
	)
}

// sign has the request approved and signed.
func (s *Server) sign(ctx context.Context, machine node.Machine, certificateRequest []byte) ([]byte, error) {
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	created, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "join-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    certificateRequest,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the certificate request in the API: %w", err)
	}
	created.Status.Conditions = append(created.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "MachineProvedItsIdentity",
		Message: fmt.Sprintf("requested by machine %s, which is node %s", machine.ID, machine.Node),
	})
	if _, err := requests.UpdateApproval(ctx, created.Name, created, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approve the certificate request: %w", err)
	}
	var certificate []byte
	err = poll.Within(ctx, signTimeout, signInterval, func(ctx context.Context) error {
		certificate, err = joinapi.CertificateOf(ctx, requests, created.Name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf(
			"wait for kubelet-signer to sign the certificate request %s: %w", created.Name, err,
		)
	}
	return certificate, nil
}
