# For login shells on nodes: kubectl on control VMs, and crictl and containerd's ctr with kubelet's containers.
PATH=/var/vcap/jobs/kubectl/bin:/var/vcap/packages/containerd/bin:$PATH
export CONTAINERD_NAMESPACE=k8s.io
export CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock
export CRI_CONFIG_FILE=/dev/null # crictl warns if there is none
