#!/bin/bash
# Runs Kubernetes' conformance tests on a cluster of the candidate, and packs their results, also those of tests that failed. The task must
# be privileged: VMs of the lab are Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz
packed=$PWD/results/conformance.tgz

cd repository
mkdir -p .build/conformance/results
trap 'tar -czf "$packed" -C .build/conformance results' EXIT
make conformance CANDIDATE="$candidate"
