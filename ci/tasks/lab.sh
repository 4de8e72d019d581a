#!/bin/bash
# Runs the README's first command with the candidate on the worker itself, without a container, and removes the lab again, whatever happens.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz

cd repository
trap 'make down' EXIT
make up CANDIDATE="$candidate"
trap - EXIT
make down
make leftovers
