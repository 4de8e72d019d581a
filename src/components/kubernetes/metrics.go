package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/pkg/version"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app/options"
	"sigs.k8s.io/metrics-server/pkg/server"
)

// largestMetrics is what a kubelet may answer. A container has about 500 bytes, so it is enough for 16,000 of them.
const largestMetrics = 8 << 20

// metricsServerCommand is that of metrics-server (cmd/metrics-server/app/start.go), which believes each kubelet about
// the pods of its own node only.
func metricsServerCommand(stop <-chan struct{}) *cobra.Command {
	opts := options.NewOptions()
	command := &cobra.Command{
		Use:   "metrics-server",
		Short: "Launch metrics-server",
		RunE: func(*cobra.Command, []string) error {
			if opts.ShowVersion {
				fmt.Println(version.Get().GitVersion)
				os.Exit(0)
			}
			if err := errors.Join(opts.Validate()...); err != nil {
				return err
			}
			config, err := opts.ServerConfig()
			if err != nil {
				return err
			}
			if err := distrustKubelets(config, stop); err != nil {
				return err
			}
			s, err := config.Complete()
			if err != nil {
				return err
			}
			return s.RunUntil(stop)
		},
	}
	sets := opts.Flags()
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	return command
}

// distrustKubelets lets metrics-server take from each kubelet what it says of its node and of the pods that run there.
// As it comes, metrics-server takes whatever a kubelet says of any pod, so a node could have the Deployments of others
// scaled; follows redirects to whatever it reaches itself, on its own VM too; and reads answers without a limit into
// its memory (GetMetrics in pkg/scraper/client/resource/client.go).
func distrustKubelets(config *server.Config, stop <-chan struct{}) error {
	client, err := kubernetes.NewForConfig(config.Rest)
	if err != nil {
		return err
	}
	// As in runningPodMetadataInformer of pkg/server/informer.go, whose objects have no node.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "status.phase=Running" }),
		informers.WithTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				return &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
					},
					Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
				}, nil
			}
			return object, nil
		}),
	)
	pods := factory.Core().V1().Pods()
	synced := pods.Informer().HasSynced
	factory.Start(stop)
	config.Kubelet.Client.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &kubeletTransport{next: next, pods: pods.Lister(), synced: synced}
	})
	return nil
}

// kubeletTransport returns what a kubelet may say.
type kubeletTransport struct {
	next   http.RoundTripper
	pods   corelisters.PodLister
	synced cache.InformerSynced
}

func (t *kubeletTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !cache.WaitForCacheSync(request.Context().Done(), t.synced) {
		return nil, fmt.Errorf("the pods of the cluster are not known yet: %w", context.Cause(request.Context()))
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		if response.StatusCode >= 300 && response.StatusCode < 400 {
			_ = response.Body.Close()
			return nil, fmt.Errorf("%s answers with a redirect, which no kubelet does", request.URL)
		}
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	node, err := nodeOf(response)
	if err != nil {
		return nil, err
	}
	body := &io.LimitedReader{R: response.Body, N: largestMetrics + 1}
	accepted, err := t.accepted(body, node)
	if err != nil {
		return nil, fmt.Errorf("read metrics of node %s: %w", node, err)
	}
	if body.N == 0 {
		return nil, fmt.Errorf("node %s answers with more than %d bytes", node, largestMetrics)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(accepted)), int64(len(accepted))
	return response, nil
}

// nodeOf returns the name of the node whose certificate was verified. kubelet-csr-approver approves its own name only.
func nodeOf(response *http.Response) (string, error) {
	if response.TLS == nil || len(response.TLS.VerifiedChains) == 0 {
		return "", errors.New("the certificate of the kubelet was not verified")
	}
	user := response.TLS.VerifiedChains[0][0].Subject.CommonName
	node, ok := strings.CutPrefix(user, "system:node:")
	if !ok {
		return "", fmt.Errorf("the certificate of the kubelet is that of %q, not of a node", user)
	}
	return node, nil
}

// ofNode and ofContainer are the lines that metrics-server reads (pkg/scraper/client/resource/decode.go), as kubelets
// write them. Anything else is left out, so that metrics-server reads nothing that was read otherwise here.
var (
	ofNode      = regexp.MustCompile(`^node_(?:cpu_usage_seconds_total|memory_working_set_bytes) [^{}"]+$`)
	ofContainer = regexp.MustCompile(
		`^container_(?:cpu_usage_seconds_total|memory_working_set_bytes|start_time_seconds)` +
			`\{container="[^"\\]*",namespace="([^"\\]*)",pod="([^"\\]*)"\} [^{}"]+$`,
	)
)

func (t *kubeletTransport) accepted(body io.Reader, node string) ([]byte, error) {
	var kept bytes.Buffer
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		line := lines.Bytes()
		if !ofNode.Match(line) {
			found := ofContainer.FindSubmatch(line)
			if found == nil {
				continue
			}
			pod, err := t.pods.Pods(string(found[1])).Get(string(found[2]))
			if err != nil || pod.Spec.NodeName != node {
				continue
			}
		}
		kept.Write(line)
		kept.WriteByte('\n')
	}
	return kept.Bytes(), lines.Err()
}
