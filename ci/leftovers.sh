#!/bin/bash
# Fails if a lab has left anything on this machine: network namespaces, links, mounts, loop devices, control groups or processes.
set -euo pipefail
shopt -s inherit_errexit

found=$(
  ip netns list
  ip -oneline link
  cat /proc/self/mountinfo
  losetup --all
  find /sys/fs/cgroup -ignore_readdir_race -type d -name '*lab*'
  readlink /proc/[0-9]*/exe || true # a thread of the kernel has no program
)
if grep -F -e klab -e "$PWD/bin/" -e "$PWD/.lab/" <<<"$found"; then
  echo "Error: the lines above are left of a lab, or one is running" >&2
  exit 1
fi
echo "leftovers: there are none"
