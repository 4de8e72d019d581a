#!/bin/bash
# Deletes what clusters without a deployment have left in the account, and candidates from the Director. A job that deletes one could meet
# the upload of the same one by another job; nothing is deployed meanwhile here.
set -euo pipefail
export BOSH_ENVIRONMENT BOSH_CLIENT BOSH_CLIENT_SECRET BOSH_CA_CERT BOSH_NON_INTERACTIVE=true
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION

cd repository
for cluster in $CLUSTERS; do
  make aws-sweep CLUSTER="$cluster"
done
bosh clean-up
