#!/bin/bash
# Writes a kubeconfig for a deployed cluster, with everything that it needs embedded. The operator's machine needs kubectl, and
# credhub or bosh. Runs with the bash 3.2 of macOS. docs/api-access.md describes it.
set -euo pipefail

usage() {
  cat <<'EOF'
Writes a kubeconfig for a deployed cluster.

Usage:
  write-kubeconfig.sh --server URL (--credhub /DIRECTOR/DEPLOYMENT | --vars-store FILE) [options]

Options:
  --server URL           address of the API, for example https://api.prod.example.com:6443
  --credhub PATH         read the credentials from CredHub, below /DIRECTOR/DEPLOYMENT; log in first (credhub login)
  --vars-store FILE      read them from the file that `bosh deploy --vars-store` wrote
  --credential NAME      variable with the client certificate; default: tls_kubernetes_admin, the administrator's
  --name NAME            name of cluster and context in the kubeconfig; default: kubernetes
  --output FILE          file to write, mode 0600; other entries of an existing kubeconfig stay. Default: kubeconfig
  --oidc-issuer URL      log in with OpenID Connect instead of a client certificate
  --oidc-client-id ID    client ID at that issuer
  --oidc-scope SCOPE     scope to request in addition to openid, such as groups; can be given several times
EOF
}

fail() {
  echo "Error: $1" >&2
  exit "${2:-2}"
}

server='' credhub='' vars_store='' credential=tls_kubernetes_admin name=kubernetes output=kubeconfig issuer='' client_id=''
scopes=()
while [[ $# -gt 0 ]]; do
  option=$1
  case $option in
    --help) usage; exit ;;
    --server | --credhub | --vars-store | --credential | --name | --output | \
      --oidc-issuer | --oidc-client-id | --oidc-scope)
      [[ -n ${2:-} ]] || fail "$option requires a value" ;;
    *) fail "unknown argument $option; --help lists the options" ;;
  esac
  case $option in
    --server) server=$2 ;;
    --credhub) credhub=${2%/} ;;
    --vars-store) vars_store=$2 ;;
    --credential) credential=$2 ;;
    --name) name=$2 ;;
    --output) output=$2 ;;
    --oidc-issuer) issuer=$2 ;;
    --oidc-client-id) client_id=$2 ;;
    --oidc-scope) scopes+=("--exec-arg=--oidc-extra-scope=$2") ;;
  esac
  shift 2
done
[[ $server == https://?* ]] || fail "--server must be a URL that begins with https://, not '$server'"
if [[ -n $credhub && -n $vars_store || -z $credhub$vars_store ]]; then fail "exactly one of --credhub and --vars-store is required"; fi
if [[ -n $issuer && -z $client_id || -z $issuer && -n $client_id ]]; then fail "--oidc-issuer and --oidc-client-id require each other"; fi
if [[ ${#scopes[@]} -gt 0 && -z $issuer ]]; then fail "--oidc-scope requires --oidc-issuer"; fi

umask 077
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# Reads one part (ca, certificate or private_key) of the client certificate into the file $parts/PART.
read_part() {
  local from
  if [[ -n $credhub ]]; then
    from="$credhub/$credential of CredHub"
    credhub get -n "$credhub/$credential" -k "$1" >"$parts/$1" || fail "cannot read $1 from $from" 1
  else
    from="$credential in $vars_store"
    bosh int "$vars_store" --path "/$credential/$1" >"$parts/$1" || fail "cannot read $1 from $from" 1
  fi
  grep -q -e '^-----BEGIN ' "$parts/$1" || fail "$1 of $from is not in PEM format" 1
}

config() {
  kubectl config --kubeconfig="$output" "$@" >/dev/null
}

# Everything is read before the kubeconfig is changed.
read_part ca
if [[ -z $issuer ]]; then
  read_part certificate
  read_part private_key
fi
if [[ -e $output ]]; then chmod 600 "$output"; fi
config set-cluster "$name" --server="$server" --certificate-authority="$parts/ca" --embed-certs=true
if [[ -z $issuer ]]; then
  user=$name-client
  config set-credentials "$user" --client-certificate="$parts/certificate" --client-key="$parts/private_key" --embed-certs=true
else
  # kubectl oidc-login is the plugin https://github.com/int128/kubelogin.
  user=$name-oidc
  config set-credentials "$user" --exec-api-version=client.authentication.k8s.io/v1 --exec-interactive-mode=IfAvailable \
    --exec-command=kubectl --exec-arg=oidc-login --exec-arg=get-token \
    --exec-arg="--oidc-issuer-url=$issuer" --exec-arg="--oidc-client-id=$client_id" ${scopes[@]+"${scopes[@]}"}
fi
config set-context "$name" --cluster="$name" --user="$user"
config use-context "$name"
echo "Wrote $output: context $name, user $user"
