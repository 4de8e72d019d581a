#!/bin/bash
# Runs the errands of a deployed cluster: the preflight of the account, and smoke tests with load balancers.
set -euo pipefail
export BOSH_ENVIRONMENT BOSH_CLIENT BOSH_CLIENT_SECRET BOSH_CA_CERT BOSH_NON_INTERACTIVE=true

cd repository
make aws-test CLUSTER="$CLUSTER"
