#!/bin/bash
# Deletes a cluster and what it created in the account.
set -euo pipefail
export BOSH_ENVIRONMENT BOSH_CLIENT BOSH_CLIENT_SECRET BOSH_CA_CERT BOSH_NON_INTERACTIVE=true
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION

cd repository
make aws-delete CLUSTER="$CLUSTER"
