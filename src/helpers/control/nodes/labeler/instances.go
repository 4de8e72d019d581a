// Package labeler makes Nodes say what their instances are: what BOSH and the cloud know of a VM decides, and not what
// the node says of itself. The API and admission policies refuse these labels, taints and provider IDs from nodes, so
// that a compromised node cannot attract the pods of others.
package labeler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/node"
)

// Prefix is that of the labels with which BOSH describes the instance of a Node. An admission policy refuses them from
// nodes.
const Prefix = "bosh.io/"

// roleLabel is on the Nodes of control VMs. NodeRestriction refuses it from kubelets.
const roleLabel = "node-role.kubernetes.io/control-plane"

// formerTaint is what earlier releases had on a Node until its instance was known.
const formerTaint = "bosh.io/instance-unknown"

const (
	// resync is how often all Nodes are looked at again, in case an update was lost.
	resync = 10 * time.Minute
	// findTimeout limits the search for one instance.
	findTimeout = 30 * time.Second
	// firstRetry and maxRetry are the pauses before a failed search is repeated.
	firstRetry, maxRetry = time.Second, time.Minute
	// refreshInterval is how often BOSH's records are looked at for changes.
	refreshInterval = 10 * time.Second
	// workers is how many Nodes are looked for at a time: the answer of a cloud can take seconds.
	workers = 4
	// patchBurst changes of one Node are made at once, and one more every patchInterval. While control VMs are updated,
	// two of them can want different values of a taint, and each would undo what the other has done.
	patchBurst    = 10
	patchInterval = 5 * time.Second
)

// Machines knows VMs by the names of their Nodes; see node.Authority.
type Machines interface {
	Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error)
}

// Instances finds the instance of a Node, whatever the node says of itself.
type Instances struct {
	Deployment boshdns.Deployment
	// Cloud knows the addresses of a Node's VM; nil if the Node's name is that of the instance.
	Cloud Machines
	// Locator knows the VM of an instance, and, if it is a node.Namer, of which instance a Node is; nil if there is
	// none.
	Locator node.Locator
	// ControlGroup is the name in the manifest of the instance group whose Nodes are those of control VMs.
	ControlGroup string
	// Taints are those that the Nodes of an instance group, by its name in the manifest, have at least.
	Taints map[string][]corev1.Taint
}

// Instance is what a Node says of its VM.
type Instance struct {
	Labels     map[string]string // with Prefix, and roleLabel
	ProviderID string            // empty without a cloud
	// Zone is that of BOSH; empty in a cloud that is asked for the VM, whose controller knows the cloud's.
	Zone string
	// Taints are those that the Node has at least.
	Taints []corev1.Taint

	// machine is its VM in Cloud, and instance what Locator is asked for, or a node.Namer has answered.
	machine  node.Machine
	instance node.Instance

	patches *rate.Limiter // of the Node, by Keeper
}

// Find returns the instance of a Node.
func (i *Instances) Find(ctx context.Context, name string) (Instance, error) {
	var machine node.Machine
	if i.Cloud != nil {
		var err error
		if machine, err = i.Cloud.Find(ctx, name, nil); err != nil {
			return Instance{}, fmt.Errorf("find the VM of Node %s: %w", name, err)
		}
	}
	records, err := i.Deployment.Load()
	if err != nil {
		return Instance{}, err
	}
	known := Instance{machine: machine}
	if namer, ok := i.Locator.(node.Namer); ok {
		if known.instance, err = namer.Owner(ctx, name); err != nil {
			return Instance{}, fmt.Errorf("find the instance of Node %s: %w", name, err)
		}
	}
	found, err := i.among(records, name, known)
	if err != nil || i.Locator == nil {
		return found, err
	}
	location, err := i.Locator.Locate(ctx, found.instance)
	if err != nil {
		return Instance{}, fmt.Errorf("find the VM of Node %s: %w", name, err)
	}
	if location.Node != "" && location.Node != name {
		return Instance{}, fmt.Errorf(
			"its VM seems to be that of instance %s, and that instance has the VM %s", found.instance.ID, location.Node,
		)
	}
	found.ProviderID = location.ProviderID
	return found, nil
}

// instance is what a Locator is told of the instance of a record.
func (i *Instances) instance(records []boshdns.Record, r boshdns.Record) node.Instance {
	return node.Instance{
		Deployment: i.Deployment.Name, ID: r.ID, Addresses: addressesOf(records, r.ID), Agent: r.Agent,
	}
}

// among returns what these records say of a Node, of which a cloud knows the VM, or the instance. It asks no cloud.
func (i *Instances) among(records []boshdns.Record, name string, known Instance) (Instance, error) {
	machine := known.machine
	found := Instance{Labels: map[string]string{}, ProviderID: machine.ProviderID, machine: machine}
	is := func(r boshdns.Record) bool { return node.BOSHName(r.InstanceGroup, r.ID) == name }
	what := "this name"
	_, named := i.Locator.(node.Namer)
	switch {
	case i.Cloud != nil:
		is = func(r boshdns.Record) bool { return machine.Has(r.IP.String()) }
		what = fmt.Sprintf("an address of its VM, %s %v", machine.ID, machine.Addresses)
	case named:
		id, agent := known.instance.ID, known.instance.Agent
		is = func(r boshdns.Record) bool {
			return id+agent != "" && (id == "" || r.ID == id) && (agent == "" || r.Agent == agent)
		}
		what = fmt.Sprintf("what its VM has, the ID %q or the agent %q", id, agent)
	}
	for _, r := range records {
		if !is(r) {
			continue
		}
		labels := map[string]string{
			"deployment":     i.Deployment.Name,
			"instance-group": r.InstanceGroup,
			"instance-id":    r.ID,
			"az":             r.AZ,
			"network":        r.Network,
			"addresses":      addresses(records, r.ID),
		}
		for key, value := range labels {
			if value != "" {
				found.Labels[Prefix+key] = value
			}
		}
		if r.InstanceGroup == boshdns.Canonical(i.ControlGroup) {
			found.Labels[roleLabel] = ""
		}
		found.instance = i.instance(records, r)
		if i.Cloud == nil && i.Locator == nil {
			found.Zone = r.AZ
		}
		for group, taints := range i.Taints {
			if boshdns.Canonical(group) == r.InstanceGroup {
				found.Taints = taints
			}
		}
		return found, nil
	}
	return Instance{}, fmt.Errorf(
		"no instance of deployment %s has %s; %d are known", i.Deployment.Name, what, len(records),
	)
}

// addresses returns an instance's IPv4 addresses in all its networks, separated by _ as a label requires, the most that
// fit into one. An admission policy accepts no other address in what a node announces to flannel.
func addresses(records []boshdns.Record, id string) string {
	const longest = 63
	var all []string
	for _, address := range addressesOf(records, id) {
		if address.Is4() {
			all = append(all, address.String())
		}
	}
	slices.Sort(all)
	for len(strings.Join(all, "_")) > longest {
		all = all[:len(all)-1]
	}
	return strings.Join(all, "_")
}

func addressesOf(records []boshdns.Record, id string) []netip.Addr {
	var all []netip.Addr
	for _, r := range records {
		if r.ID == id {
			all = append(all, r.IP)
		}
	}
	return all
}

// Keeper makes Nodes say what their instances are, whatever the nodes say themselves.
type Keeper struct {
	client    kubernetes.Interface
	instances *Instances
	log       *slog.Logger
	queue     workqueue.TypedRateLimitingInterface[string]

	factory informers.SharedInformerFactory
	nodes   corelisters.NodeLister

	mu    sync.Mutex
	known map[types.UID]Instance

	// compared is when the records that refresh has last compared with all that is known were written.
	compared time.Time
}

// NewKeeper returns a Keeper that finds the instances of Nodes as Instances does, once for each Node, and again
// when BOSH's records of it have changed.
func NewKeeper(client kubernetes.Interface, instances *Instances, log *slog.Logger) *Keeper {
	factory := informers.NewSharedInformerFactory(client, resync)
	nodes := factory.Core().V1().Nodes().Lister()
	return &Keeper{
		client:    client,
		instances: instances,
		log:       log,
		queue:     newQueue(nodes),
		factory:   factory,
		nodes:     nodes,
		known:     map[types.UID]Instance{},
	}
}

// newQueue returns a queue of the names of Nodes. First come those that are not Ready until they are labeled: after a
// start of the Keeper, all the others are looked for too.
func newQueue(nodes corelisters.NodeLister) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
					Queue: &unknownFirst{nodes: nodes},
				}),
			}),
		},
	)
}

// unknownFirst is a workqueue.Queue in which Nodes without nodestatus.AddressesLabel are ahead of those with it.
type unknownFirst struct {
	nodes         corelisters.NodeLister
	unknown, rest []string
}

// Touch moves a Node up that was replaced while it waited.
func (q *unknownFirst) Touch(name string) {
	if i := slices.Index(q.rest, name); i >= 0 && q.isUnknown(name) {
		q.rest = slices.Delete(q.rest, i, i+1)
		q.unknown = append(q.unknown, name)
	}
}

// Push implements workqueue.Queue.
func (q *unknownFirst) Push(name string) {
	if q.isUnknown(name) {
		q.unknown = append(q.unknown, name)
		return
	}
	q.rest = append(q.rest, name)
}

// Len implements workqueue.Queue.
func (q *unknownFirst) Len() int { return len(q.unknown) + len(q.rest) }

// Pop implements workqueue.Queue.
func (q *unknownFirst) Pop() string {
	from := &q.unknown
	if len(q.unknown) == 0 {
		from = &q.rest
	}
	name := (*from)[0]
	*from = (*from)[1:]
	return name
}

func (q *unknownFirst) isUnknown(name string) bool {
	object, err := q.nodes.Get(name)
	return err == nil && object.Labels[nodestatus.AddressesLabel] == ""
}

// Run sets the labels with Prefix on all Nodes, removes others with Prefix, sets the role of control VMs, the provider
// ID of Nodes that have none, the zone of those in no cloud, and the taints of their instance groups, until ctx ends.
// A Node with the provider ID of another instance gets no labels, without which it cannot report an address, and be
// Ready.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.queue.ShutDown()
	enqueue := func(object any) {
		if n, ok := object.(*corev1.Node); ok {
			k.queue.Add(n.Name)
		}
	}
	if _, err := k.informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: k.forget,
	}); err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	k.factory.StartWithContext(ctx)
	defer k.factory.Shutdown()
	k.log.Info("keeping the labels of instances", "prefix", Prefix)
	context.AfterFunc(ctx, k.queue.ShutDown)
	go wait.UntilWithContext(ctx, k.refresh, refreshInterval)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	group.Wait()
	return nil
}

func (k *Keeper) informer() cache.SharedIndexInformer {
	return k.factory.Core().V1().Nodes().Informer()
}

func (k *Keeper) forget(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if n, ok := object.(*corev1.Node); ok {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.known, n.UID)
	}
}

func (k *Keeper) next(ctx context.Context) bool {
	name, stopped := k.queue.Get()
	if stopped {
		return false
	}
	defer k.queue.Done(name)
	if err := k.label(ctx, name); err != nil && ctx.Err() == nil {
		k.log.Warn("cannot label the Node yet, retrying", "node", name, "error", err)
		k.queue.AddRateLimited(name)
		return true
	}
	k.queue.Forget(name)
	return true
}

// label makes the Node's labels and its provider ID those of its instance.
func (k *Keeper) label(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	object, err := k.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	instance, err := k.instance(ctx, object)
	if err != nil {
		return err
	}
	if id := object.Spec.ProviderID; id != "" && instance.ProviderID != "" && !node.SameVM(id, instance.ProviderID) {
		return fmt.Errorf(
			"it has the provider ID %s, and its VM is %s; if the cloud-controller-manager does not delete it: "+
				"kubectl delete node %s", id, instance.ProviderID, name,
		)
	}
	changes := changed(object.Labels, instance.Labels)
	// A controller of a cloud that node.Authority does not know sets the zone together with the provider ID.
	zone, hasZone := instance.Zone, object.Labels[corev1.LabelTopologyZone] == instance.Zone
	if zone != "" && object.Spec.ProviderID == "" && !hasZone {
		changes[corev1.LabelTopologyZone] = zone
	}
	spec := map[string]any{}
	if object.Spec.ProviderID == "" && instance.ProviderID != "" {
		spec["providerID"] = instance.ProviderID
	}
	// With its UID, the patch does not label another Node of the same name, which may be registered meanwhile.
	metadata := map[string]any{"uid": object.UID, "labels": changes}
	if taints := tainted(object.Spec.Taints, instance.Taints); !slices.Equal(taints, object.Spec.Taints) {
		// The list is replaced, so none that another controller sets meanwhile may be lost.
		spec["taints"], metadata["resourceVersion"] = taints, object.ResourceVersion
	}
	if len(changes) == 0 && len(spec) == 0 {
		return nil
	}
	if instance.patches != nil && !instance.patches.Allow() {
		k.queue.AddAfter(name, patchInterval)
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // an event about the Node that is there now follows
	}
	if err == nil {
		k.log.Info(
			"labeled the Node", "node", name, "uid", object.UID, "labels", changes, "provider_id", instance.ProviderID,
			"taints", spec["taints"],
		)
	}
	return err
}

func (k *Keeper) instance(ctx context.Context, object *corev1.Node) (Instance, error) {
	k.mu.Lock()
	known, ok := k.known[object.UID]
	k.mu.Unlock()
	if ok {
		return known, nil
	}
	found, err := k.instances.Find(ctx, object.Name)
	if err != nil {
		return Instance{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// forget is called after the Node is gone from the list: what was deleted meanwhile would stay, and a node can
	// register again and again.
	if current, err := k.nodes.Get(object.Name); err == nil && current.UID == object.UID {
		found.patches = rate.NewLimiter(rate.Every(patchInterval), patchBurst)
		k.known[object.UID] = found
		k.compared = time.Time{} // the records may have changed while the cloud was asked
	}
	return found, nil
}

// refresh labels the Nodes whose instances BOSH's records now describe otherwise. A VM that was lost is replaced by one
// with the same name, which can have another address. Where no cloud controller deletes its Node, the new VM takes the
// Node over, and could never report an address that its label does not have. An instance can get another group
// (migrated_from in a manifest). A cloud is asked for the VMs of these Nodes only.
func (k *Keeper) refresh(context.Context) {
	info, err := os.Stat(k.instances.Deployment.Records)
	if err != nil { // label reports a missing file
		return
	}
	k.mu.Lock()
	done := info.ModTime().Equal(k.compared)
	k.mu.Unlock()
	if done {
		return
	}
	records, err := k.instances.Deployment.Load()
	if err != nil {
		k.log.Warn("cannot compare Nodes with instances", "error", err)
		return
	}
	nodes, err := k.nodes.List(labels.Everything())
	if err != nil { // a cache returns none
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range nodes {
		known, ok := k.known[n.UID]
		if !ok {
			continue
		}
		found, err := k.instances.among(records, n.Name, known)
		if err != nil { // BOSH has no VM of it now, and may have one later
			continue
		}
		if known.Zone != found.Zone || !maps.Equal(known.Labels, found.Labels) {
			delete(k.known, n.UID)
			k.queue.Add(n.Name)
		}
	}
	k.compared = info.ModTime()
}

// changed returns the labels to set, and nil for those to remove.
func changed(current, wanted map[string]string) map[string]any {
	changes := map[string]any{}
	for name, value := range wanted {
		if was, ok := current[name]; !ok || was != value {
			changes[name] = value
		}
	}
	for name := range current {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, Prefix) {
			changes[name] = nil
		}
	}
	return changes
}

// tainted returns the taints of a Node that is known: those that it has, and those that it must have.
func tainted(current, wanted []corev1.Taint) []corev1.Taint {
	taints := slices.DeleteFunc(slices.Clone(current), func(t corev1.Taint) bool {
		return t.Key == formerTaint
	})
	for _, taint := range wanted {
		// A Node has one of each key and effect.
		i := slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		switch {
		case i < 0:
			taints = append(taints, taint)
		case taints[i].Value != taint.Value:
			taints[i] = taint
		}
	}
	return taints
}
