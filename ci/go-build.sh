#!/bin/bash
# go-build.sh STEP FOLDER PACKAGE…: builds programs from src into a folder, and says how far it is while it compiles.
set -euo pipefail
step=$1 folder=$2
shift 2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/../src"

begun=$SECONDS
log=$(mktemp)
trap 'rm -f "$log"' EXIT
total=$(go list -deps "$@" 2>"$log" | wc -l) || { cat "$log" >&2; exit 1; }
: >"$log"
CGO_ENABLED=0 go build -v -trimpath -buildvcs=false -o "$folder/" "$@" 2>"$log" &
build=$!
trap 'kill $build 2>/dev/null || true; rm -f "$log"' EXIT
waited=0
while kill -0 $build 2>/dev/null; do
  sleep 0.2
  waited=$((waited + 1))
  if ((waited % 75 == 0)); then
    echo "$step: compiled $(wc -l <"$log") of at most $total packages, $((SECONDS - begun))s"
  fi
done
if ! wait $build; then
  tail -n 40 "$log" >&2
  echo "Error: $step could not be built; see above" >&2
  exit 1
fi
echo "$step: built ${*##*/} in $((SECONDS - begun))s"
