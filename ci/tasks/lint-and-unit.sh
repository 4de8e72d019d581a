#!/bin/bash
# Runs what requires nothing built: linters and unit tests. The task must be privileged: as root, which it is, tests
# create Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules

cd repository
make lint
make test-unit
