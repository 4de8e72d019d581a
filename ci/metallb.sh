#!/bin/bash
# Builds MetalLB, which src/tools/metallb pins, and takes its manifest along, into .build/metallb. The release does not ship it.
set -euo pipefail
folder=$(cd "$(dirname "$0")/.." && pwd)/.build/metallb
mkdir -p "$folder"
cd "$(dirname "$0")/../src/tools/metallb"
echo "metallb: building it, which takes some minutes the first time"
module=go.universe.tf/metallb
for program in controller speaker; do
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$folder/$program" "$module/$program"
done
install -m 644 "$(go list -m -f '{{.Dir}}' "$module")/config/manifests/metallb-native.yaml" "$folder/"
