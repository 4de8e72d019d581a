#!/bin/bash
# Draws the pictures of README.md from real runs: a deploy that ends in a cluster, and a preflight that stops one. The lab is removed
# after each.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -e .lab/lab.json ]]; then
  echo "Error: there is a lab in .lab, and the pictures need a new one; make down removes it" >&2
  exit 1
fi
trap 'bin/lab down >/dev/null' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS OPS VARS

# draw FILE EXIT-CODE TITLE COMMAND: runs the command line in a shell and shows it as it is.
draw() {
  .build/bin/pictures -o "docs/images/$1" --exit-code "$2" --title "$3" --shown "$4" --columns 128 -- bash -c "$4"
  bin/lab down >/dev/null
}
draw up.svg 0 "make up" "make up && .lab/bin/kubectl get nodes"
draw preflight.svg 2 "A preflight stops the deploy" "make up OPS=src/testbed/acceptance/testdata/without-tags.yml"
