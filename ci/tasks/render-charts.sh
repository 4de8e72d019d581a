#!/bin/bash
# Renders charts with helm and joins them with manifests, as the variable of ops-files/add-manifests.yml, in rendered/vars.yml. Requires
# helm, and credhub for charts with Secrets.
set -euo pipefail
export CREDHUB_SERVER CREDHUB_CLIENT CREDHUB_SECRET CREDHUB_CA_CERT
prepare=$PWD/repository/scripts/prepare-manifests.sh
output=$PWD/rendered/vars.yml
# Charts can depend on the version of Kubernetes, which helm does not know.
version=$(sed -nE 's/^(require)?[[:space:]]+k8s\.io\/kubernetes (v[0-9.]+)$/\2/p' repository/src/components/kubernetes/go.mod)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/manifests"
cd addons

for file in $MANIFESTS; do
  { echo --- && cat "$file"; } >>"$work/manifests"
done

render() {
  helm template "$name" "$chart" --namespace "$namespace" --include-crds --kube-version "$version" ${options[@]+"${options[@]}"}
}

while read -r name namespace chart values; do
  [[ -n $name ]] || continue
  echo "rendering $chart as $name in $namespace"
  options=() secrets=()
  for file in $values; do options+=(--values "$file"); done
  if [[ -n $CREDHUB_PATH ]]; then secrets=(--credhub "$CREDHUB_PATH/${name}_secrets"); fi
  render >"$work/chart"
  render | cmp -s - "$work/chart" ||
    echo "Warning: $chart renders differently each time, so each deploy changes it: set the passwords or certificates that it generates" >&2
  "$prepare" --namespace "$namespace" ${secrets[@]+"${secrets[@]}"} <"$work/chart" >>"$work/manifests"
done <<<"$CHARTS"

{ echo 'manifests: |' && sed 's/^/  /' "$work/manifests"; } >"$output"
