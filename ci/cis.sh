#!/bin/bash
# Runs kube-bench on a control VM, which is a worker too, and on a worker VM in a lab of its own, and compares the failures with those
# that have a reason. The program and the definitions of the benchmark come from one module, which src/tools/kube-bench pins.
set -euo pipefail
cd "$(dirname "$0")/.."
benchmark=cis-1.10
folder=.build/cis
lab=(bin/lab --state "$folder/lab")

echo "cis: building kube-bench, which takes three minutes the first time"
rm -rf "$folder/kube-bench" && mkdir -p "$folder/kube-bench"
(cd src/tools/kube-bench && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "../../../$folder/kube-bench/kube-bench" github.com/aquasecurity/kube-bench)
module=$(cd src/tools/kube-bench && go list -m -f '{{.Dir}}' github.com/aquasecurity/kube-bench)
cp -r --no-preserve=mode "$module/cfg/$benchmark" "$folder/kube-bench/"
cp src/testbed/cis/kube-bench.yaml "$folder/kube-bench/config.yaml"

trap '"${lab[@]}" down >/dev/null' EXIT
"${lab[@]}" up -o ops-files/single-vm.yml -o ops-files/aws.yml -o ops-files/lab.yml -o ops-files/lab-aws.yml -o ops-files/scale-workers.yml -v worker_instances=1

# check VM TARGETS: writes the results of kube-bench. Scripts of the benchmark run with /bin/sh and are written for bash:
# dash would answer wrongly, so that bash takes its place for them.
check() {
  local vm=$1 targets=$2
  tar -C "$folder/kube-bench" -c . | "${lab[@]}" ssh "$vm/0" bash -c 'mkdir -p /root/kube-bench && tar -x -C /root/kube-bench'
  # shellcheck disable=SC2016 # the shell on the VM has $0 and $1
  "${lab[@]}" ssh "$vm/0" unshare --mount bash -euc '
    mount --bind /bin/bash /bin/sh
    cd /root/kube-bench
    export KUBECONFIG=/var/vcap/jobs/kubectl/config/kubeconfig.json
    ./kube-bench run --targets "$0" --benchmark "$1" --config-dir . --config config.yaml --json --include-test-output' \
    "$targets" "$benchmark" >"$folder/results-$vm.json"
}
check control master,etcd,controlplane,node,policies
check worker node

.build/bin/cis --control "$folder/results-control.json" --worker "$folder/results-worker.json" \
  --remaining src/testbed/cis/remaining.yml --output "$folder"
