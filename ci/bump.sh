#!/bin/bash
# Pins the newest patch version of each program in src/components, and of what its own packages require of it. Minor versions are a
# decision: Renovate proposes them (renovate.json). A version whose modules cannot be fetched is left out. So are two programs:
# * aws-load-balancer-controller is pinned by commit, because its module path lacks the major version of its tags.
# * network-policy has the version of a `replace`, k3s' fork of kube-router.
set -euo pipefail
cd "$(dirname "$0")/../src/components"
saved=$(mktemp -d)

# save keeps the files that a step of COMPONENT edits, until the step is complete or undone.
save() {
  tar -C ../.. -cf "$saved/new.tar" "src/components/$1" src/{helpers,release,testbed,tools/conformance}/go.{mod,sum} \
    CHANGELOG.md docs/versions.md
  mv "$saved/new.tar" "$saved/files.tar" # never half of it, which would empty a file
}

undo() {
  if [[ -e $saved/files.tar ]]; then tar -C ../.. -xf "$saved/files.tar"; fi
  complete
}

complete() {
  rm -f "$saved/files.tar"
}

# A step that is interrupted, also by a signal, is undone: half of it could be committed.
trap 'undo; rm -rf "$saved"' EXIT

# newest MODULE VERSION: the newest version with the same minor version. The module query v1.37 means the newest v1.37.x.
newest() {
  go list -m -f '{{.Version}}' "$1@${2%.*}"
}

# bump COMPONENT MODULE…: the first is the one whose version docs/versions.md lists.
bump() {
  local component=$1 module current next
  shift
  for module; do
    current=$(cd "$component" && go list -m -f '{{.Version}}' "$module")
    if ! next=$(cd "$component" && newest "$module" "$current"); then
      echo "bump: $component: $module stays at $current, because its versions cannot be listed" >&2
      continue
    fi
    if [[ $current == "$next" ]]; then continue; fi
    # The proxy's list of versions may lack the newest ones, while it answers for each of them. With a tilde, a
    # pre-release sorts before its release.
    if [[ $(printf '%s\n' "$current" "$next" | tr - '~' | sort -V | tail -n 1 | tr '~' -) != "$next" ]]; then
      echo "bump: $component: $module stays at $current, because the newest version that is listed is $next" >&2
      continue
    fi
    save "$component"
    if ! (cd "$component" && edit "$module" "$current" "$next" && go mod tidy); then
      undo
      echo "bump: $component: $module stays at $current, because the modules that $next requires cannot be fetched" >&2
      continue
    fi
    echo "bump: $component: $module $current -> $next"
    if [[ $module == "$1" ]]; then
      sed -i "\\|src/components/$component/go.mod|s/| ${current#v} |/| ${next#v} |/" ../../docs/versions.md
    fi
    complete
  done
}

# edit MODULE OLD NEW. The staging modules of Kubernetes have its version, with v0 for v1, in `require` and in `replace`, and the
# modules of src and the conformance tests require the same. The old version becomes the one to which tests go back.
edit() {
  if [[ $1 == k8s.io/kubernetes ]]; then
    { sed '/^module /,$d' previous-patch.mod && sed -n '/^module /,$p' go.mod; } >"$saved/previous-patch.mod" &&
      cp "$saved/previous-patch.mod" . && cp go.sum previous-patch.sum || return
    local modules=(../../helpers ../../release ../../testbed ../../tools/conformance) module
    sed -i -E "s#^(.*k8s\.io/[^ ]+ )v0\.${2#v1.}( .*)?\$#\1v0.${3#v1.}\2#" go.mod "${modules[@]/%//go.mod}" &&
      sed -i "/^## Unreleased/,/^## /s/^Ships Kubernetes ${2#v}\./Ships Kubernetes ${3#v}./" ../../../CHANGELOG.md &&
      (cd ../../tools/conformance && go mod edit -require="$1@$3") || return
    for module in "${modules[@]}"; do
      (cd "$module" && go mod tidy) || return
    done
  fi
  go mod edit -require="$1@$3"
}

bump kubernetes k8s.io/kubernetes
bump kubernetes sigs.k8s.io/metrics-server
bump etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/etcdctl/v3 go.etcd.io/etcd/etcdutl/v3
bump containerd github.com/containerd/containerd/v2
bump cri-tools sigs.k8s.io/cri-tools
bump runc github.com/opencontainers/runc
bump cni-plugins github.com/containernetworking/plugins
bump flannel github.com/flannel-io/flannel
bump coredns github.com/coredns/coredns
bump cloud-provider-aws k8s.io/cloud-provider-aws
bump cloud-provider-openstack k8s.io/cloud-provider-openstack
bump csi github.com/kubernetes-sigs/aws-ebs-csi-driver
bump csi github.com/kubernetes-csi/external-attacher/v4
bump csi github.com/kubernetes-csi/external-provisioner/v6
bump csi github.com/kubernetes-csi/external-resizer/v2
bump csi github.com/kubernetes-csi/external-snapshotter/v8
