#!/bin/bash
# Builds the conformance tests of Gateway API and their backend from the pins of src/tools/gateway-conformance, into the folder that
# GATEWAY_CONFORMANCE_DIR names.
set -euo pipefail
cd "$(dirname "$0")/../src/tools/gateway-conformance"
echo "gateway-conformance: building the tests, which takes some minutes the first time"
mkdir -p "$GATEWAY_CONFORMANCE_DIR"
export CGO_ENABLED=0
go test -c -trimpath -o "$GATEWAY_CONFORMANCE_DIR/" .
go build -trimpath -ldflags '-s -w' -o "$GATEWAY_CONFORMANCE_DIR/" sigs.k8s.io/gateway-api/conformance/echo-basic
