#!/bin/bash
# Renders the manifest with every ops-file, and checks the documents that describe them.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules

cd repository
make test-ops-files
