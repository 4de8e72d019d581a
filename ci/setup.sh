#!/bin/bash
# setup.sh [PACKAGE…]: installs the Debian packages that building, testing and the lab need, and those that are named; does nothing when
# all are there.
set -euo pipefail

wanted=(
  ca-certificates curl jq                            # tools of scripts and people
  gcc libc6-dev libseccomp-dev pkg-config            # runc, flannel and pause have parts in C
  ruby                                               # ERB, in which BOSH templates are written
  monit                                              # supervises processes on VMs, the lab's too
  systemd                                            # a VM of the lab has its programs, and substitutes what needs the daemon
  conntrack e2fsprogs ethtool iproute2 iptables kmod nftables socat util-linux xfsprogs # what programs of nodes call
  shellcheck                                         # make lint
  xz-utils                                           # packs the release's packages
  "$@"
)

# look finds the missing packages, and ends the script if there are none.
look() {
  local package state
  missing=()
  for package in "${wanted[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
  done
  if [[ ${#missing[@]} == 0 ]]; then
    echo "setup: all ${#wanted[@]} Debian packages are there"
    exit
  fi
}
look
if [[ $EUID != 0 ]]; then
  echo "Error: these Debian packages are missing and only root can install them: ${missing[*]}" >&2
  echo "Run as root: apt-get install ${missing[*]}" >&2
  exit 1
fi

# Targets that run side by side install one after another: apt-get does not wait, and each would remove the other's policy.
lock=/run/lock/kubernetes-release-setup
mkdir -p "${lock%/*}"
exec 9>"$lock"
if ! flock --nonblock 9; then
  echo "setup: waiting until another one has installed its packages"
  flock --timeout 1800 9 || {
    echo "Error: another setup still holds $lock after half an hour; fuser --verbose $lock shows it" >&2
    exit 1
  }
fi
look # one that has ended meanwhile may have installed them

# A package's services are not started: monit is wanted as a program, run in the lab's VMs only.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

started=$SECONDS
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
# quietly WHAT COMMAND…: its output is shown only if it fails three times.
quietly() {
  local what=$1 attempt
  shift
  for attempt in 1 2 3; do
    echo "setup: $what"
    "$@" >"$log" 2>&1 9>&- && return
    echo "setup: $what failed, attempt $attempt of 3"
    sleep $((attempt * 5))
  done
  cat "$log" >&2
  echo "Error: $what failed: $*" >&2
  exit 1
}
quietly "1/2 reading the package lists" timeout 300 apt-get update
quietly "2/2 installing ${missing[*]}" timeout 900 apt-get install -y --no-install-recommends "${missing[@]}"
rm -f "$log"

if [[ " ${missing[*]} " == *" monit "* && -d /run/systemd/system ]]; then
  systemctl disable --quiet monit.service || true # it would start at the next boot
fi
echo "setup: done in $((SECONDS - started))s"
