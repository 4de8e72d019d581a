#!/bin/bash
# Asks the API for this node as kubelet does, by host name and by the Service kubernetes, until /tmp/requests-end appears.
# One line a request: the time, the host, the HTTP status, what curl says.
credentials=/var/vcap/data/kubelet/pki/kubelet-client-current.pem
node=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' /var/vcap/data/cloud-provider/node.json)
rm -f /tmp/requests-end
ask() {
  until [[ -e /tmp/requests-end ]]; do
    answer=$(curl -sS --noproxy '*' --max-time 10 -o /dev/null -w ' %{http_code} %{remote_ip} %{time_total}s' --cert "$credentials" --key "$credentials" \
      --cacert /var/vcap/jobs/kubelet/config/ca.pem "https://$1/api/v1/nodes/$node" 2>&1 | tr '\n' ' ')
    echo "$(date -u +%T) $1 $answer"
    sleep 0.1
  done
}
ask api.lab.kubernetes.internal:6443 &
ask 10.96.0.1:443 &
wait
