#!/bin/bash
# Starts a cluster on one machine as a person would who has the programs, the configuration files and the command lines:
# everything in parallel, except where one program depends on another. It runs until it is stopped.
set -euo pipefail
cd "$(dirname "$0")"
packages=/var/vcap/packages jobs=/var/vcap/jobs

begin() { for name; do ./"$name" >"$name.log" 2>&1 & done; }
await() { # WHAT COMMAND…: repeats the command until it succeeds, for two minutes
  local what=$1 deadline=$((SECONDS + 120))
  shift
  until "$@" >await.log 2>&1; do
    ((SECONDS < deadline)) || { echo "waited 120 s for $what: $(tail -n 3 await.log)" >&2; exit 1; }
    sleep 0.1
  done
  echo "$what after ${SECONDS} s"
}
kubectl() { "$packages/kubernetes/bin/kubectl" "$@"; }
ctr() { "$packages/containerd/bin/ctr" --address /run/containerd/containerd.sock --namespace k8s.io "$@"; }
listens() { : <"/dev/tcp/127.0.0.1/$1"; }
join() { ./join >join.log 2>&1; }
import_images() {
  await containerd ctr version
  for archive in "$packages"/images/*.tar; do ctr images import "$archive"; done
  ctr images tag --force "$(grep -o 'kubernetes\.bosh\.io/pause:[^"]*' "$packages/images/images.json")" kubernetes.bosh.io/pause:current
}

sysctl -q -w net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
mkdir -p /var/vcap/data/containerd /var/vcap/data/cni/{bin,conf}
install -d -o root -g root -m 755 /var/vcap/data/{kubelet,cloud-provider} # root's alone, or the programs refuse them
cp /etc/resolv.conf /var/vcap/data/kubelet/resolv.conf
# Those of the processes' users, as pre-start does.
install -d -o 1900000003 -g 1900000003 -m 700 /var/vcap/store/etcd
install -d -o 1900000004 -g 1900000004 -m 700 /var/vcap/sys/log/kubernetes-audit
install -d -o 1900000008 -g 1900000008 -m 700 /var/vcap/data/ebs-csi-controller-socket
for flags in "$jobs"/*/config/flags.json; do # the group of the process's user, as its launcher does
  user=$(sed -n 's/^ *"user_id": \([0-9]*\),\?$/\1/p' "$flags")
  [[ -z $user ]] || chgrp -R "$user" "${flags%/*}"
done

begin etcd containerd
import_images >images.log 2>&1 &
await etcd listens 2379
begin kube-apiserver
await kube-apiserver kubectl --kubeconfig $jobs/kubectl/config/kubeconfig.json get --raw /readyz
"$packages/helpers/bin/kube-tools" apply-addons --kubeconfig=$jobs/kubernetes-addons/config/kubeconfig.json \
  --dir=$jobs/kubernetes-addons/config/manifests --images=$packages/images/images.json --timeout=5m >addons.log 2>&1 &
begin kube-controller-manager kube-scheduler node-controller kubelet-signer kube-proxy
await node-controller listens 6444
await certificate join # kubelet's, and its kubeconfig
begin kubelet
# The cloud controller manager and flannel exit if they lack permissions.
await addons kubectl --kubeconfig $jobs/kubectl/config/kubeconfig.json --namespace kube-system get deployment coredns
begin cloud-controller-manager flannel network-policy
for program in *; do # the others of the deployed VM, such as those of storage
  [[ $program == start || $program == *.log || -e $program.log ]] || begin "$program"
done
wait
