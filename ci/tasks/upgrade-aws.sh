#!/bin/bash
# Deploys the last final release with the manifest in its source, then upgrades the cluster to the candidate.
set -euo pipefail
export BOSH_ENVIRONMENT BOSH_CLIENT BOSH_CLIENT_SECRET BOSH_CA_CERT BOSH_NON_INTERACTIVE=true
inputs=$PWD
final=("$inputs"/final-release/kubernetes-*.tgz)

cd repository
bosh upload-stemcell "$inputs/stemcell/stemcell.tgz"
make aws-upgrade CLUSTER="$CLUSTER" SOURCE="$inputs/final-release/source.tar.gz" FINAL="${final[0]}" \
  CANDIDATE="$inputs/candidate/kubernetes.tgz"
