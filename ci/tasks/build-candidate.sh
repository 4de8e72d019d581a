#!/bin/bash
# Builds the release once, and tests its programs. All later jobs get this tarball. The task must be privileged: VMs of
# the lab are Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate

cd repository
go clean -testcache # Go's results of tests do not depend on files outside of a module, such as programs
make release
make test-programs
cp .build/release/kubernetes.tgz "$candidate/"
