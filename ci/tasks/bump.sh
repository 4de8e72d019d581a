#!/bin/bash
# Pins the newest patch versions of the shipped programs, and commits that if anything changed.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules

git clone --quiet repository bumped
cd bumped
make bump
if [[ -n $(git status --porcelain) ]]; then
  git add --all
  git -c user.name="$GIT_USER_NAME" -c user.email="$GIT_USER_EMAIL" commit --quiet --message "Pins: newest patch versions"
fi
