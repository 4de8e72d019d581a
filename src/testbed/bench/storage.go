package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/vm"
)

const (
	// ClaimAim is the maximum time from a claim to its running pod, relative to what the cloud and a pod without a
	// volume take.
	ClaimAim = 1.3
	// CallsAim is the maximum number of EC2's calls for each attached volume when many are attached at once.
	CallsAim = 6
	// StorageSizeAim is the maximum size of the tarball, relative to the same without storage.
	StorageSizeAim = 1.15
	// StorageMemoryAim is the maximum memory of storage, relative to Kubernetes' own.
	StorageMemoryAim = 0.5

	// manyClaims are made at once.
	manyClaims = 50
	// claimRuns is the minimum number of measurements of one claim: Kubernetes looks for changes once in a second or
	// less often in several places, so that single measurements differ by seconds.
	claimRuns = 7
	// createDelay and attachDelay are those of EC2: the median time of a creation, and the middle of what attachments
	// take (newVwp and its comments in pkg/cloud/cloud.go of the EBS CSI driver).
	createDelay = 1500 * time.Millisecond
	attachDelay = 2500 * time.Millisecond

	benchNamespace = "bench"
	claimTimeout   = 5 * time.Minute
)

// storageShape is three VMs that accept pods, whose limits of volumes suffice.
var storageShape = []string{
	"-o", "ops-files/single-vm.yml", "-o", "ops-files/aws.yml", "-o", "ops-files/lab.yml", "-o",
	"ops-files/lab-aws.yml", "-o", "ops-files/scale-workers.yml", "-v", "worker_instances=2",
}

// Storage measures claims in a lab of their own, and what storage adds to the release.
type Storage struct {
	Deploys
	// ReleaseSize is the size of the release tarball.
	ReleaseSize int64

	client kubernetes.Interface
	cloud  string
	image  string
	// made are the calls of EC2 until the pods of the last run were ready.
	made []awssim.Call
}

// Measure returns the figures: time of a claim, EC2's calls, memory and size. It always removes the lab.
func (s *Storage) Measure(ctx context.Context) ([]Figure, error) {
	return s.inLab(ctx, s.measure)
}

func (s *Storage) measure(ctx context.Context) (figures []Figure, err error) {
	size, err := s.size()
	if err != nil {
		return nil, err
	}
	s.say("storage: deploying three VMs; this is not measured")
	if err := s.lab(ctx, upTimeout, "up", append([]string{"--release", s.release}, storageShape...)...); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	claim, single, err := s.claims(ctx)
	if err != nil {
		return nil, err
	}
	calls, err := s.many(ctx, single)
	if err != nil {
		return nil, err
	}
	memory, err := s.memory(ctx)
	return []Figure{claim, calls, memory, size}, err
}

// connect prepares the clients, the cloud's delays, and the namespace.
func (s *Storage) connect(ctx context.Context) error {
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.state, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	env, err := os.ReadFile(filepath.Join(s.state, "aws.env"))
	if err != nil {
		return err
	}
	endpoint := regexp.MustCompile(`AWS_ENDPOINT_URL=(\S+)`).FindSubmatch(env)
	if endpoint == nil {
		return errors.New("aws.env of the lab has no endpoint")
	}
	s.cloud = string(endpoint[1]) + "/_sim/"
	delays := fmt.Sprintf(`{"volumes":{"create":%q,"attach":%q}}`, createDelay, attachDelay)
	if err := s.simulator(ctx, http.MethodPatch, "settings", delays, nil); err != nil {
		return err
	}
	names, err := vm.List(s.state)
	if err != nil {
		return err
	}
	first, err := vm.Open(s.state, names[0])
	if err != nil {
		return err
	}
	text, err := inVM(ctx, first, `cat "$1"`, bosh.DefaultRoot.Package("images", "images.json"))
	if err != nil {
		return err
	}
	var images map[string]string
	if err := json.Unmarshal(text, &images); err != nil {
		return fmt.Errorf("references of the release's images: %w", err)
	}
	s.image = images["smoke-test"]
	if err := s.checkLimits(ctx); err != nil {
		return err
	}
	_, err = s.client.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return poll.Within(ctx, readyTimeout, readyPoll, func(ctx context.Context) error {
		_, err := s.client.CoreV1().ServiceAccounts(benchNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// checkLimits expects that the nodes can attach all volumes.
func (s *Storage) checkLimits(ctx context.Context) error {
	nodes, err := s.client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var limit int32
	for _, node := range nodes.Items {
		for _, driver := range node.Spec.Drivers {
			if driver.Allocatable != nil && driver.Allocatable.Count != nil {
				limit += *driver.Allocatable.Count
			}
		}
	}
	if limit < manyClaims {
		return fmt.Errorf(
			"the nodes can attach %d volumes, fewer than %d: use more nodes or another instance type", limit,
			manyClaims,
		)
	}
	return nil
}

// simulator calls the simulator's own API.
func (s *Storage) simulator(ctx context.Context, method, path, body string, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, s.cloud+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// claims measures one claim at a time, and a pod without one, and returns EC2's calls for a claim.
func (s *Storage) claims(ctx context.Context) (f Figure, calls float64, err error) {
	delays := (createDelay + attachDelay).Seconds()
	f = Figure{
		Name: "storage-claim", What: "time from a claim to its running pod", Unit: Seconds, Aim: ClaimAim, Busy: busy(),
		Subject: "claim and pod", Against: "the cloud's delays and a pod without a volume",
	}
	var plain, counted, driver []float64
	var timelines [][]stage
	runs := max(s.Runs, claimRuns)
	for run := range runs {
		without, _, err := s.timed(ctx, fmt.Sprintf("plain-%d", run), false)
		if err != nil {
			return f, 0, err
		}
		with, timeline, err := s.timed(ctx, fmt.Sprintf("claim-%d", run), true)
		if err != nil {
			return f, 0, err
		}
		s.say(
			"storage: %d of %d: pod with a claim %.1f s, without %.1f s", run+1, runs, with.Seconds(),
			without.Seconds(),
		)
		plain, counted = append(plain, without.Seconds()), append(counted, float64(len(s.made)))
		driver, timelines = append(driver, driverWaits(timeline)), append(timelines, timeline)
		f.OursRuns, f.BaseRuns = append(f.OursRuns, with.Seconds()), append(f.BaseRuns, delays+without.Seconds())
	}
	f.Ours, f.Base = median(f.OursRuns), median(f.BaseRuns)
	f.Parts = claimParts(timelines)
	f.Note = fmt.Sprintf(
		"A pod without a volume takes %.1f s. The EBS CSI driver itself waits %.1f s of the time, in its fixed "+
			"intervals between calls of EC2 and to collect calls; without them, the ratio is %.2f.",
		median(plain), median(driver), (f.Ours-median(driver))/f.Base,
	)
	return f, median(counted), nil
}

// timed measures a single pod, and divides the time if it has a claim.
func (s *Storage) timed(
	ctx context.Context, name string, claim bool,
) (took time.Duration, timeline []stage, err error) {
	if err := s.forgetCalls(ctx); err != nil {
		return 0, nil, err
	}
	seen, stop, err := watchMoments(ctx, s.client)
	if err != nil {
		return 0, nil, err
	}
	defer stop()
	started := time.Now()
	if _, err := s.run(ctx, name, 1, claim); err != nil {
		return 0, nil, err
	}
	if claim {
		timeline, err = divide(started, seen, s.made)
	}
	return seen.at(podRunning).Sub(started), timeline, err
}

// many measures many claims at once.
func (s *Storage) many(ctx context.Context, single float64) (Figure, error) {
	load := busy()
	if err := s.forgetCalls(ctx); err != nil {
		return Figure{}, err
	}
	took, err := s.run(ctx, "many", manyClaims, true)
	if err != nil {
		return Figure{}, err
	}
	f := Figure{
		Name:    "storage-calls",
		What:    fmt.Sprintf("calls of EC2 for each attached volume, %d claims at once", manyClaims),
		Unit:    Calls,
		Aim:     1,
		Busy:    load,
		Subject: "calls for each volume",
		Ours:    float64(len(s.made)) / manyClaims,
		Against: "aim",
		Base:    CallsAim,
		Note: fmt.Sprintf(
			"A single claim takes %.0f calls. All pods ran after %.0f s. The cloud controller's few calls are "+
				"counted too.",
			single, took.Seconds(),
		),
	}
	actions := map[string]float64{}
	for _, call := range s.made {
		actions[call.Action]++
	}
	for _, action := range slices.Sorted(maps.Keys(actions)) {
		f.Parts = append(f.Parts, Part{Name: action, Value: actions[action] / manyClaims})
	}
	return f, nil
}

func (s *Storage) forgetCalls(ctx context.Context) error {
	return s.simulator(ctx, http.MethodDelete, "calls", "", nil)
}

// run creates pods, each with a claim of its own or without a volume, and returns when all are ready, after it has
// removed them with their volumes.
func (s *Storage) run(ctx context.Context, name string, count int, claims bool) (took time.Duration, err error) {
	started := time.Now()
	for n := range count {
		if err := s.create(ctx, fmt.Sprintf("%s-%d", name, n), claims); err != nil {
			return 0, err
		}
	}
	err = poll.Within(ctx, claimTimeout, readyPoll, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(benchNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running < count {
			return fmt.Errorf("%d of %d pods run", running, count)
		}
		return nil
	})
	took = time.Since(started)
	if err != nil {
		return took, err
	}
	s.made = nil
	if err := s.simulator(
		ctx, http.MethodGet, "calls?match=ec2:*", "", &s.made,
	); err != nil { // without those of the removal
		return took, err
	}
	return took, s.remove(ctx)
}

func (s *Storage) create(ctx context.Context, name string, withClaim bool) error {
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: s.image}},
		},
	}
	if withClaim {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			},
		}
		if _, err := s.client.CoreV1().
			PersistentVolumeClaims(benchNamespace).
			Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
	}
	_, err := s.client.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// remove deletes all pods and claims, and waits until their volumes are deleted.
func (s *Storage) remove(ctx context.Context) error {
	core := s.client.CoreV1()
	if err := core.Pods(benchNamespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := core.PersistentVolumeClaims(benchNamespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return poll.Within(ctx, claimTimeout, readyPoll, func(ctx context.Context) error {
		pods, err := core.Pods(benchNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		volumes, err := core.PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items)+len(volumes.Items) > 0 {
			err = fmt.Errorf("%d pods and %d volumes still exist", len(pods.Items), len(volumes.Items))
		}
		return err
	})
}

// memory compares the processes of storage on all VMs with Kubernetes' own.
func (s *Storage) memory(ctx context.Context) (Figure, error) {
	names, err := vm.List(s.state)
	if err != nil {
		return Figure{}, err
	}
	var processes []memory
	for _, name := range names {
		machine, err := vm.Open(s.state, name)
		if err != nil {
			return Figure{}, err
		}
		list, err := memoryOf(ctx, machine)
		if err != nil {
			return Figure{}, err
		}
		processes = append(processes, list...)
	}
	return storageMemory(processes), nil
}

func storageMemory(processes []memory) Figure {
	parts := map[string]float64{}
	f := Figure{
		Name: "storage-memory",
		What: "memory of storage on a control VM and two workers, shared pages divided by the number of processes " +
			"that share them (PSS)",
		Unit:    Bytes,
		Aim:     StorageMemoryAim,
		Subject: "driver and sidecars",
		Against: "Kubernetes",
		Note:    "Without ebs-csi-registrar, which is part of kube-tools.",
	}
	for _, p := range processes {
		switch name, ours := strings.CutPrefix(p.program, bosh.DefaultRoot.Package("csi", "bin")+"/"); {
		case ours:
			parts[name] += float64(p.pss)
			f.Ours += float64(p.pss)
		case ownerOf(p.program) == kubernetesOwner:
			f.Base += float64(p.pss)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		f.Parts = append(f.Parts, Part{Name: name, Value: parts[name]})
	}
	return f
}

// size compares the tarball with the same without the package of storage.
func (s *Storage) size() (Figure, error) {
	return addedSize(s.Root, s.ReleaseSize, Figure{
		Name: "storage-size", What: "size that storage adds to the release tarball", Aim: StorageSizeAim,
	}, "csi")
}
