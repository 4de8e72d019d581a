#!/bin/bash
# Runs the conformance tests of Kubernetes on a control VM and workers in a lab of its own. Tests, ginkgo, which runs them, and the
# programs of their images come from the pins of src/tools/conformance. FOCUS and SKIP are regular expressions for names of tests, LABELS
# an expression of ginkgo for labels of tests, in place of Conformance; DRIVER is a file that describes a CSI driver for those of storage.
# WORKERS is the number of workers, 2 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/.build/conformance
state=$folder/lab
lab=(bin/lab --state "$state")
deploy=("${lab[@]}" up -o ops-files/aws.yml -o ops-files/lab.yml -o ops-files/lab-aws.yml -o src/testbed/conformance/one-control-vm.yml -o ops-files/scale-workers.yml -v "worker_instances=${WORKERS:-2}")

echo "conformance: building the tests and the programs of their images, which takes five minutes the first time"
rm -rf "$folder"/bin/{coredns,pause} && mkdir -p "$folder"/bin/{coredns,pause}
cd src/tools/conformance
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
module=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
export CGO_ENABLED=0
go build -trimpath -ldflags '-s -w' -o "$folder/bin/" \
  github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/{agnhost,nonewprivs} k8s.io/sample-apiserver
# Tests compare their own version with the cluster's.
IFS=. read -r major minor _ <<<"${version#v}"
variables=k8s.io/component-base/version
go test -c -trimpath -ldflags "-s -w -X $variables.gitVersion=$version -X $variables.gitMajor=$major -X $variables.gitMinor=$minor" \
  -o "$folder/bin/e2e.test" k8s.io/kubernetes/test/e2e
cd - >/dev/null
release=$(tar -xzOf .build/release/kubernetes.tgz release.MF | awk '/^version:/ { print $2 }')

serving=
finish() {
  [[ -z $serving ]] || kill "$serving" || true
  "${lab[@]}" down >/dev/null
}
trap finish EXIT

# The registry listens on this machine's address in the lab's network, which is known when the lab is up.
"${deploy[@]}"
"${lab[@]}" ssh control/0 cat /var/vcap/packages/etcd/bin/etcd >"$folder/bin/etcd"
for image in coredns pause; do
  "${lab[@]}" ssh control/0 cat "/var/vcap/packages/images/$image.tar" | tar -x -C "$folder/bin/$image"
done
registry=$(grep -o -m 1 'https://10\.[0-9]*' "$state/kubeconfig" | cut -d/ -f3).255.254:5000
rm -f "$folder/images.txt"
.build/bin/conformance registry --programs "$folder/bin" --module "$module" --address "$registry" --ready "$folder/images.txt" &
serving=$!
until [[ -e $folder/images.txt ]]; do
  kill -0 "$serving"
  sleep 0.2
done
"${deploy[@]}" -o ops-files/set-registry-mirror.yml -v registry_host=registry.k8s.io -v "registry_mirror=http://$registry" -v 'registry_ca=""'

# The tests take the API's address from a kubeconfig, but not the name in its certificate (LoadConfig in test/e2e/framework/util.go), so
# the address is that name.
kubectl=("$state/bin/kubectl" --kubeconfig "$folder/kubeconfig" config)
cp "$state/kubeconfig" "$folder/kubeconfig"
api=$("${kubectl[@]}" view -o 'jsonpath={.clusters[0].cluster.tls-server-name}')
"${kubectl[@]}" set-cluster "$("${kubectl[@]}" view -o 'jsonpath={.clusters[0].name}')" --server "https://$api:6443"

"${lab[@]}" client .build/bin/conformance run --programs "$folder/bin" --module "$module" --release "$release" \
  --kubeconfig "$folder/kubeconfig" --kubectl "$state/bin/kubectl" --output "$folder/results" \
  ${DRIVER:+--driver="$DRIVER"} ${LABELS+--labels="$LABELS"} ${FOCUS:+--focus="$FOCUS"} ${SKIP:+--skip="$SKIP"}
