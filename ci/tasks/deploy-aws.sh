#!/bin/bash
# Deploys the candidate to AWS as a new cluster. The bosh CLI reads the Director and its credentials from the environment.
set -euo pipefail
export BOSH_ENVIRONMENT BOSH_CLIENT BOSH_CLIENT_SECRET BOSH_CA_CERT BOSH_NON_INTERACTIVE=true
inputs=$PWD

cd repository
bosh upload-stemcell "$inputs/stemcell/stemcell.tgz"
make aws-deploy CLUSTER="$CLUSTER" CANDIDATE="$inputs/candidate/kubernetes.tgz"
