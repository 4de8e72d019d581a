#!/bin/bash
# Builds helm, which src/tools/helm pins, into .build/bin. The release does not ship it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/.build/bin/helm
mkdir -p "${program%/*}"
cd "$root/src/tools/helm"
module=helm.sh/helm/v3
pinned=$(go list -m -f '{{.Version}}' "$module")
built=$(go version -m "$program" 2>/dev/null | awk -v module="$module" '$1 == "dep" || $1 == "mod" {if ($2 == module) print $3}') || true
if [[ $built != "$pinned" ]]; then
  echo "helm: building $pinned, which takes some minutes the first time"
  go clean -testcache # results of tests that ran the earlier one
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$program" "$module/cmd/helm"
fi
