#!/bin/bash
# Builds the cloud controller manager of vSphere, which src/tools/vsphere pins, into .build/bin. The release does not ship it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/.build/bin/vsphere-cloud-controller-manager
mkdir -p "${program%/*}"
cd "$root/src/tools/vsphere"
module=k8s.io/cloud-provider-vsphere
pinned=$(go list -m -f '{{.Version}}' "$module")
built=$(go version -m "$program" 2>/dev/null | awk -v module="$module" '$1 == "dep" || $1 == "mod" {if ($2 == module) print $3}') || true
if [[ $built != "$pinned" ]]; then
  echo "vsphere-cloud-controller-manager: building $pinned, which takes a few minutes the first time"
  go clean -testcache # results of tests that ran the earlier one
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-s -w' -o "$program" "$module/cmd/vsphere-cloud-controller-manager"
fi
