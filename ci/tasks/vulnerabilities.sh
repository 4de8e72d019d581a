#!/bin/bash
# Looks for known vulnerabilities of the modules in the candidate's programs.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz

cd repository
make vulnerabilities CANDIDATE="$candidate"
