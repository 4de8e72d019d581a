#!/bin/bash
# prometheus.sh PROGRAM…: builds promtool or prometheus, which src/tools/prometheus pins, into .build/bin. The release does not ship them.
# Of the services that Prometheus discovers targets in, they have Kubernetes alone: the others need the SDKs of all clouds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/.build/bin"
cd "$root/src/tools/prometheus"
module=github.com/prometheus/prometheus
pinned=$(go list -m -f '{{.Version}}' "$module")
for program in "$@"; do
  built=$(go version -m "$root/.build/bin/$program" 2>/dev/null | awk -v module="$module" '$1 == "dep" || $1 == "mod" {if ($2 == module) print $3}') || true
  if [[ $built != "$pinned" ]]; then
    echo "$program: building $pinned, which takes a few minutes the first time"
    go clean -testcache # results of tests that ran the earlier one
    CGO_ENABLED=0 go build -trimpath -tags remove_all_sd,enable_kubernetes_sd -ldflags '-s -w' -o "$root/.build/bin/$program" "$module/cmd/$program"
  fi
done
