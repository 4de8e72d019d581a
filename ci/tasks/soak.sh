#!/bin/bash
# Runs the acceptance tests that take long. The task must be privileged: VMs of the lab are Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz

cd repository
make soak CANDIDATE="$candidate"
