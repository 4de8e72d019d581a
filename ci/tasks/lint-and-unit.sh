#!/bin/bash
# Runs what requires nothing built: linters and unit tests.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules

cd repository
make lint
make test-unit
