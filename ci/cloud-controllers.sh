#!/bin/bash
# Builds the programs of clouds that src/tools pins and the release does not ship, into .build/bin.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/.build/bin"
build() { # PROGRAM FOLDER MODULE PACKAGE
  local program=$root/.build/bin/$1 module=$3 pinned built
  cd "$root/src/tools/$2"
  pinned=$(go list -m -f '{{.Version}}' "$module")
  built=$(go version -m "$program" 2>/dev/null | awk -v module="$module" '$1 == "dep" || $1 == "mod" {if ($2 == module) print $3}') || true
  [[ $built != "$pinned" ]] || return 0
  echo "$1: building $pinned, which takes a few minutes the first time"
  go clean -testcache # results of tests that ran the earlier one
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-s -w' -o "$program" "$4"
}
build vsphere-cloud-controller-manager vsphere k8s.io/cloud-provider-vsphere k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager
build cloud-node-manager azure sigs.k8s.io/cloud-provider-azure sigs.k8s.io/cloud-provider-azure/cmd/cloud-node-manager
build gce-cloud-controller-manager gce k8s.io/cloud-provider-gcp/providers .
