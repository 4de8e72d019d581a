#!/bin/bash
# Requests this node's object from the API with kubelet's certificate, by host name and by the Service kubernetes, until
# /tmp/requests-end exists. Prints one line per request: time, host, HTTP status, curl's message.
credentials=/var/vcap/data/kubelet/pki/kubelet-client-current.pem
node=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' /var/vcap/data/cloud-provider/node.json)
rm -f /tmp/requests-end
request() {
  until [[ -e /tmp/requests-end ]]; do
    response=$(curl -sS --noproxy '*' --max-time 10 -o /dev/null -w ' %{http_code} %{remote_ip} %{time_total}s' --cert "$credentials" --key "$credentials" \
      --cacert /var/vcap/jobs/kubelet/config/ca.pem "https://$1/api/v1/nodes/$node" 2>&1 | tr '\n' ' ')
    echo "$(date -u +%T) $1 $response"
    sleep 0.1
  done
}
request api.lab.kubernetes.internal:6443 &
request 10.96.0.1:443 &
wait
