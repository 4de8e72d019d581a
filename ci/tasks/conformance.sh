#!/bin/bash
# Runs Kubernetes' conformance tests on a cluster of the candidate. The task must be privileged: VMs of the lab are Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz

cd repository
make conformance CANDIDATE="$candidate"
