#!/bin/bash
# Prepares manifests, such as the output of `helm template`, for the property manifests of job kubernetes-addons, from standard input to
# standard output. Runs with the bash 3.2 of macOS and any awk. docs/add-ons.md describes it.
set -euo pipefail

usage() {
  cat <<'EOT'
Prepares Kubernetes manifests for ops-files/add-manifests.yml, from standard input to standard output.

Usage:
  helm template NAME CHART --namespace NAMESPACE --include-crds | prepare-manifests.sh --namespace NAMESPACE [options]

Hooks of a chart are left out, and each is named. What BOSH or the release would replace in the text, (( and ${image:, is
written so that it stays.

Options:
  --namespace NAME       namespace of objects that have none
  --cluster-scoped KIND  a kind without namespaces, other than those of Kubernetes and those that the input defines; can be
                         given several times
  --credhub NAME         write Secrets to CredHub as NAME, for example /bosh/kubernetes/agents_secrets, in place of which the
                         output has the variable; log in first (credhub login)
  --inline-secrets       leave Secrets in the output, and so in the manifest that the Director stores
EOT
}

fail() {
  echo "Error: $1" >&2
  exit "${2:-2}"
}

namespace='' credhub='' inline='' scoped=''
while [[ $# -gt 0 ]]; do
  option=$1
  case $option in
    --help) usage; exit ;;
    --inline-secrets) inline=yes; shift; continue ;;
    --namespace | --cluster-scoped | --credhub) [[ -n ${2:-} ]] || fail "$option requires a value" ;;
    *) fail "unknown argument $option; --help lists the options" ;;
  esac
  case $option in
    --namespace) namespace=$2 ;;
    --cluster-scoped) scoped="$scoped $2" ;;
    --credhub) credhub=$2 ;;
  esac
  shift 2
done
[[ -z $inline || -z $credhub ]] || fail "--credhub and --inline-secrets exclude each other"
# A period would end the variable's name.
[[ -z $credhub || $credhub =~ ^(/[A-Za-z0-9_-]+)+$ ]] ||
  fail "--credhub must be a name of /, letters, digits, _ and -, such as /bosh/kubernetes/agents_secrets, not '$credhub'"

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/secrets"

# Kinds of Kubernetes without namespaces. Others have one, unless a CustomResourceDefinition or --cluster-scoped says otherwise.
cluster_kinds='APIService CSIDriver CSINode CertificateSigningRequest ClusterRole ClusterRoleBinding ClusterTrustBundle
  CustomResourceDefinition DeviceClass DeviceTaintRule FlowSchema IPAddress IngressClass MutatingAdmissionPolicy
  MutatingAdmissionPolicyBinding MutatingWebhookConfiguration Namespace Node PersistentVolume PriorityClass
  PriorityLevelConfiguration ResourcePoolStatusRequest ResourceSlice RuntimeClass ServiceCIDR StorageClass StorageVersionMigration
  ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration VolumeAttachment VolumeAttributesClass'

# The text is not parsed as YAML: each document must have its fields kind and metadata at the beginning of a line, as helm, kustomize and
# projects write them. What is not so is refused.
# shellcheck disable=SC2016 # awk has $0
program='
function value(line) {
  sub(/^[^:]*:[ \t]*/, "", line); sub(/[ \t]+#.*$/, "", line); gsub(/["\047]/, "", line); sub(/[ \t]+$/, "", line)
  return line
}
function say(text) { print text | "cat 1>&2" }
function refuse(text) { say("Error: document " number (source == "" ? "" : " (" source ")") ": " text); failed = 1 }
# kept is a line in which neither BOSH nor the release replaces anything.
function kept(line) {
  gsub(/\$\{image:/, "${$}{image:", line); gsub(/\$\{\(\}/, "${$}{(}", line); gsub(/\(\(/, "(${(}", line)
  return line
}
function reset() {
  count = 0; filled = 0; kind = ""; name = ""; key = ""; hook = ""; data = 0; items = 0; has = 0; at = 0; indent = ""; inline = 0
  names = 0; defined = ""; cluster = 0; source = ""
}
function add(line,   start) {
  lines[++count] = line
  if (line ~ /^# Source: /) { source = substr(line, 11) }
  if (line ~ /^[ \t]*(#|$)/) { return }
  filled = 1
  if (line ~ /^["\047]?[A-Za-z]+["\047]?[ \t]*:/) {
    key = line; sub(/[ \t]*:.*/, "", key); gsub(/["\047]/, "", key)
    if (key == "kind") { kind = value(line) }
    if (key == "items") { items = 1 }
    if (key == "metadata") { at = count; inline = value(line) != "" }
    if ((key == "data" || key == "stringData") && value(line) !~ /^({}|null|~)?$/) { data = 1 }
    if (key == "metadata" && inline) { metadata(line) }
    return
  }
  if (key == "data" || key == "stringData") { data = 1 }
  if (key == "metadata") { metadata(line) }
  if (key == "spec" && line ~ /^ +scope:/) { cluster = value(line) == "Cluster" }
  if (key == "spec" && line ~ /^ +names:/) { names = 1 }
  if (key == "spec" && names && defined == "" && match(line, /[ {]kind:[ ]+[A-Za-z]+/)) { defined = value(substr(line, RSTART, RLENGTH)) }
}
function metadata(line,   field) {
  if (line ~ /helm\.sh\/hook["\047]?[ \t]*:/) { hook = line; sub(/.*helm\.sh\/hook/, "", hook); hook = value(hook) }
  if (inline) {
    if (line ~ /[{, ]["\047]?namespace["\047]?[ \t]*:/) { has = 1 }
    if (name == "" && match(line, /[{, ]name:[ ]*[^,} ]+/)) { name = value(substr(line, RSTART, RLENGTH)) }
    return
  }
  field = line; sub(/[^ ].*/, "", field)
  if (indent == "") { indent = field }
  if (field != indent) { return }
  if (line ~ /^ +["\047]?namespace["\047]?[ \t]*:/) { has = 1 }
  if (line ~ /^ +["\047]?name["\047]?[ \t]*:/) { name = value(line) }
}
function finish(   n, file, line) {
  if (!filled) { reset(); return }
  number++
  if (kind == "" || !at) { refuse("has no line that begins with kind: or none with metadata:. Write it in block style"); reset(); return }
  if (items && kind ~ /List$/) { refuse(kind " " name ": write its items as documents"); reset(); return }
  if (kind == "CustomResourceDefinition" && cluster) { scope[defined] = 1 }
  if (hook != "") { say("left out: " kind " " name ", a hook of the chart (" hook ")"); reset(); return }
  file = manifests
  if (kind == "Secret" && data) {
    if (mode == "refuse") { refuse("Secret " name ": choose --credhub NAME or --inline-secrets"); reset(); return }
    if (mode == "credhub") { file = secrets }
  }
  found++
  print "---" > file
  for (n = 1; n <= count; n++) {
    line = lines[n]
    if (n == at && namespace != "" && !has && !(kind in scope)) {
      if (inline) { sub(/{/, "{namespace: " namespace ", ", line) } else { line = line "\n" indent "namespace: " namespace }
    }
    print kept(line) > file
  }
  reset()
}
BEGIN { split(kinds, list); for (n in list) { scope[list[n]] = 1 }; reset() }
{ sub(/\r$/, "") }
/^%/ && !filled { next }
/^(---|\.\.\.)([ \t]|$)/ {
  finish(); sub(/^...[ \t]*/, ""); if ($0 != "") { add($0) }
  next
}
{ add($0) }
END {
  finish()
  if (!found && !failed) { source = ""; say("Error: the input has no objects"); failed = 1 }
  close("cat 1>&2"); exit failed
}'
mode=refuse
if [[ -n $credhub ]]; then mode=credhub; elif [[ -n $inline ]]; then mode=inline; fi
touch "$work/manifests" "$work/secrets/text"
# Not every awk takes a value of several lines.
awk -v kinds="${cluster_kinds//$'\n'/ }$scoped" -v namespace="$namespace" -v mode="$mode" \
  -v manifests="$work/manifests" -v secrets="$work/secrets/text" "$program" || exit 1

cat "$work/manifests"
if [[ -s $work/secrets/text ]]; then
  { printf 'credentials:\n- name: %s\n  type: value\n  value: |\n' "$credhub" && sed 's/^/    /' "$work/secrets/text"; } |
    credhub import --file /dev/stdin >&2 || fail "CredHub did not take the Secrets as $credhub" 1
  # The text begins with ---.
  printf '((%s))\n' "$credhub"
fi
