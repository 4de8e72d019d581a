# For login shells on nodes: kubectl on control VMs, and containerd's ctr with kubelet's containers.
PATH=/var/vcap/jobs/kubectl/bin:/var/vcap/packages/containerd/bin:$PATH
export CONTAINERD_NAMESPACE=k8s.io
