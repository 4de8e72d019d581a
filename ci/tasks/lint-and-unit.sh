#!/bin/bash
# Runs what requires nothing built: linters and unit tests. The task must be privileged: as root, which it is, tests
# create Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules

cd repository
go clean -testcache # Go's results of tests do not depend on files outside of a module, such as pins and templates
make lint
make test-unit
