#!/bin/bash
# Builds csi-sanity from the pins of src/tools/csi-sanity, into .build/bin.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/.build/bin"
cd "$root/src/tools/csi-sanity"
echo "csi-sanity: building it, which takes half a minute the first time"
CGO_ENABLED=0 go test -c -trimpath -o "$root/.build/bin/csi-sanity" .
