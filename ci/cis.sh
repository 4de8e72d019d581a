#!/bin/bash
# Runs kube-bench on a single VM in a lab of its own, and compares the failures with those that have a reason. The program and the
# definitions of the benchmark come from one module, which src/tools/kube-bench pins.
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
cp src/test/cis/kube-bench.yaml "$folder/kube-bench/config.yaml"

trap '"${lab[@]}" down >/dev/null' EXIT
"${lab[@]}" up -o ops-files/single-vm.yml -o ops-files/aws.yml -o ops-files/lab.yml
tar -C "$folder/kube-bench" -c . | "${lab[@]}" ssh control/0 bash -c 'mkdir -p /root/kube-bench && tar -x -C /root/kube-bench'

# Scripts of the benchmark run with /bin/sh and are written for bash: dash would answer wrongly, so that bash takes its place for them.
"${lab[@]}" ssh control/0 unshare --mount bash -euc '
  mount --bind /bin/bash /bin/sh
  cd /root/kube-bench
  export KUBECONFIG=/var/vcap/jobs/kubectl/config/kubeconfig.json
  ./kube-bench run --targets master,etcd,controlplane,node,policies --benchmark '"$benchmark"' \
    --config-dir . --config config.yaml --json --include-test-output' >"$folder/results.json"
.build/bin/cis --results "$folder/results.json" --remaining src/test/cis/remaining.yml --output "$folder"
