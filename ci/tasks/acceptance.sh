#!/bin/bash
# Deploys the candidate in labs and looks at the clusters. The task must be privileged: VMs of the lab are Linux namespaces.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz

cd repository
make test-acceptance test-first-cluster CANDIDATE="$candidate"
